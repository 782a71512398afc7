"""Whatever the documentation shows runs: doctests, the README's Python and its shell commands."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from selectroute.selector import Dialect, Message, Selector
from selectroute.selector.dialect_table import rows, to_markdown

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
README = ROOT / "README.md"

_BLOCK = re.compile(
    r"(?P<mark><!-- (?:not run|spark|s3|hdfs|yarn|delta): [^>]*-->\n)?"
    r"^```(?P<language>python|shell)\n(?P<code>.*?)^```$",
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


@pytest.mark.spark
@pytest.mark.parametrize("page", ["README.md", "streaming/README.md"])
def test_python_of_spark_runs(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [
        found["code"] for found in _BLOCK.finditer(text) if (found["mark"] or "").startswith("<!-- spark")
    ]
    assert blocks
    for code in blocks:
        exec(compile(code, f"{page}, a block of Spark", "exec"), {})


def _streams(code):
    """Whether a block starts a stream, and with it Spark."""
    return "selectroute stream run" in code


def _environment():
    """Without what somebody told the commands on this machine, and with those of this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SELECTROUTE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "XDG_CONFIG_HOME": os.devnull}


@pytest.mark.slow
def test_readme_shell_commands_run(tmp_path):
    # Those that install are run by .ci/run and by whoever follows the README.
    commands = [code for code, run in _blocks("shell") if run and "venv" not in code and not _streams(code)]
    assert commands
    for code in commands:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=tmp_path,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"


def _left(group):
    """Whether processes of a group stay; Spark's Java ends a moment after who started it."""
    for _ in range(3_000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


def _published(port):
    """A command that waits until a service has published all: the page waits as long as that takes a user."""
    url = f"http://127.0.0.1:{port}/readyz"
    ask = f"import json, urllib.request; found = json.load(urllib.request.urlopen('{url}'))"
    return f"until python -c \"{ask}; exit(found['published'] < found['revision'])\"; do sleep 0.1; done"


def _of_streams(mark):
    """The blocks of the page on streams with a mark."""
    text = (ROOT / "streaming/README.md").read_text(encoding="utf-8")
    found = [one["code"] for one in _BLOCK.finditer(text) if (one["mark"] or "").startswith(f"<!-- {mark}:")]
    assert found
    return found


def _run(command, folder, **variables):
    """Run a command of a page in a folder that has a file of subscriptions."""
    (folder / "subscriptions.jsonl").write_text('{"id": "red", "selector": "color = \'red\'"}\n')
    ran = subprocess.run(
        command, cwd=folder, env=_environment() | variables, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, f"{command[-1]}\n{ran.stdout}\n{ran.stderr}"


RED = b'{"properties": {"color": {"type": "string", "value": "red"}}}\n'
BASH = ("bash", "-euo", "pipefail", "-c")


@pytest.mark.slow
@pytest.mark.application
def test_the_example_of_delta_tables_runs(tmp_path):
    shell, python = _of_streams("delta")
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "a.jsonl").write_bytes(RED * 3)
    _run([*BASH, shell], tmp_path)
    seen = "print(table.count(), versions[0]); assert (table.count(), list(versions)) == (3, [0])"
    _run([sys.executable, "-c", f"{python}\n{seen}"], tmp_path)


@pytest.mark.application
@pytest.mark.parametrize(
    "store", [pytest.param("s3", marks=pytest.mark.slow), pytest.param("hdfs", marks=pytest.mark.nightly)]
)
def test_the_example_of_remote_storage_runs(tmp_path, request, store):
    from tests.support.remote_world import numba_cache, remote_folder

    (code,) = _of_streams(store)
    with remote_folder(request, store) as base:
        (base / "in" / "a.jsonl").put(RED * 3)
        if store == "s3":
            code = code.replace("https://s3.example.com", os.environ["AWS_ENDPOINT_URL"])
            code = code.replace("s3://bucket", str(base))
        else:
            code = code.replace("/etc/hadoop/conf", os.environ["HADOOP_CONF_DIR"])
            code = code.replace("hdfs://namenode", str(base))
        _run([*BASH, code], tmp_path, NUMBA_CACHE_DIR=numba_cache(), XDG_CACHE_HOME=str(tmp_path / "cache"))
        (commit,) = [one.read_json() for one in (base / "out" / "_commits").files()]
    assert commit["counts"]["deliveries"] == 3


@pytest.mark.slow
@pytest.mark.application
def test_a_selector_changes_while_its_stream_runs_as_the_readme_shows(tmp_path):
    [code] = [code for code, run in _blocks("shell") if run and _streams(code)]
    with socket.create_server(("127.0.0.1", 0)) as free:  # somebody else may have the port of the page
        port = free.getsockname()[1]
    code = code.replace("8080", str(port))
    assert code.count("\nsleep 1 ") == 1
    code = code.replace("\nsleep 1 ", f"\n{_published(port)}\nsleep 1 ")
    with (tmp_path / "said").open("w+") as said:
        # In a group of its own: were it to fail half way, service and stream would stay.
        ran = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=tmp_path,
            env=_environment(),
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = ran.wait(timeout=900)
            left = _left(ran.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
            ran.wait()
        said.seek(0)
        shown = said.read()
    assert ended == 0, shown
    assert not left, "service and stream have ended with the page"
    first, second = re.findall(r"effective from batch (\d+) of query", shown)
    assert (first, second) == ("0", "1")
    lines = [line for line in shown.splitlines() if line.startswith('{"batch"')]
    counts = [(row["messages"], row["routed"], row["unrouted"]) for row in map(json.loads, lines)]
    assert counts == [(1, 1, 0), (1, 0, 1)]
    [explained] = re.findall(r"heavy does not get.*\n(?:  .*\n)+", shown)
    assert f"```\n{explained}```" in README.read_text(encoding="utf-8")


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
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "bench/README.md",
        "streaming/README.md",
        "streaming/console/README.md",
    ],
)
def test_links_between_pages_lead_somewhere(page):
    source = ROOT / page
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", source.read_text(encoding="utf-8")):
        assert (source.parent / target).exists(), f"{page} links to {target}"


def test_every_screen_of_the_console_has_its_picture_on_the_page():
    pytest.importorskip("playwright", reason="playwright is not installed")
    from streaming.console.pictures import SCREENS

    folder = ROOT / "streaming/console"
    shown = re.findall(r"!\[[^\]]+\]\((\S+)\.png\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(SCREENS) == sorted(path.stem for path in folder.glob("*.png"))


def test_importing_the_package_loads_neither_numpy_nor_spark():
    heavy = ("numba", "numpy", "pandas", "pyarrow", "pyspark", "typer")
    code = f"import selectroute, sys; print([name for name in {heavy!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
