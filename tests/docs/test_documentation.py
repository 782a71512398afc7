"""Whatever the documentation shows runs: doctests, the README's Python and its shell commands."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from selectroute.selector import Dialect, Message, Selector
from selectroute.selector.dialect_table import rows, to_markdown

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
README = ROOT / "README.md"

_BLOCK = re.compile(
    r"(?P<mark><!-- not run: [^>]*-->\n)?^```(?P<language>python|shell)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def _modules_with_doctests():
    for path in sorted((SOURCES / "selectroute").rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
            yield name.removesuffix(".__init__")


def _blocks(language):
    """The README's code blocks in a language: their text, and whether they are to be run."""
    text = README.read_text(encoding="utf-8")
    return [
        (found["code"], found["mark"] is None)
        for found in _BLOCK.finditer(text)
        if found["language"] == language
    ]


@pytest.mark.parametrize("name", list(_modules_with_doctests()))
def test_doctests_of_docstrings_hold(name):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted and not failed


def test_readme_python_runs_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = _blocks("python")
    assert blocks
    for number, (code, run) in enumerate(blocks, start=1):
        compiled = compile(code, f"README.md, python block {number}", "exec")
        if run:
            exec(compiled, names)


def test_readme_shell_commands_run(tmp_path):
    # Those that install are run by .ci/run and by whoever follows the README.
    commands = [code for code, run in _blocks("shell") if run and "venv" not in code]
    assert commands
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for code in commands:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"


def test_the_explanation_shown_is_the_one_given():
    message = Message(properties={"weight": "3000"})
    explanation = Selector("weight > 2500 AND color = 'red'").explain(message)
    assert f"```\n{explanation}\n```" in README.read_text(encoding="utf-8")


def test_the_table_of_dialects_is_up_to_date():
    text = README.read_text(encoding="utf-8")
    [table] = re.findall("<!-- dialects -->\n(.*?)\n<!-- /dialects -->", text, re.DOTALL)
    assert table == to_markdown(), "run: selectroute selector dialects -o markdown"


def test_the_table_of_dialects_has_every_field():
    fields = [field.name for field in dataclasses.fields(Dialect) if field.name != "name"]
    assert [row.field for row in rows()] == fields


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "streaming/README.md"]
)
def test_links_between_pages_lead_somewhere(page):
    source = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", source.read_text(encoding="utf-8")):
        assert (source.parent / target).exists(), f"{page} links to {target}"


def test_importing_the_package_loads_neither_numpy_nor_spark():
    heavy = ("numba", "numpy", "pandas", "pyarrow", "pyspark", "typer")
    code = f"import selectroute, sys; print([name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
