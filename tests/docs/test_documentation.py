"""Whatever the documentation shows runs: doctests, and the Python and the shell commands of each page."""

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

from docs.site.pages import DOCS, ROOT, blocks
from selectroute.selector import Dialect, Message, Selector
from selectroute.selector.dialect_table import rows

SOURCES = ROOT / "src"
README = ROOT / "README.md"
TUTORIALS = DOCS / "tutorials"
PAGES = [README, ROOT / "streaming/README.md", *sorted(DOCS.rglob("*.md"))]
"""Pages whose examples run. Those for contributors and of benchmarks name commands that take minutes."""

MARKS = {"", "not run", "spark", "kafka", "s3", "hdfs", "yarn", "delta"}
"""What runs a block: its page (no mark), nothing, a session of Spark, or a test of its own."""


def _mark(block):
    return block.mark.partition(":")[0]


def _pages(language, mark, of=lambda code: True):
    """The pages that have such blocks, as parameters of a test."""
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if any(map(of, _blocks(page, language, mark)))
    ]


def _blocks(page, language, mark=""):
    """The code of a page in a language, by the mark of what runs it."""
    found = blocks(page.read_text(encoding="utf-8"))
    return [block.code for block in found if block.language == language and _mark(block) == mark]


def _modules_with_doctests():
    for folder in (SOURCES, ROOT / "docs"):
        for path in sorted(folder.rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8") and path.name != "docstrings.py":
                root = SOURCES if folder == SOURCES else ROOT
                name = ".".join(path.relative_to(root).with_suffix("").parts)
                yield name.removesuffix(".__init__")


@pytest.mark.parametrize("name", list(_modules_with_doctests()))
def test_doctests_of_docstrings_hold(name):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted and not failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_says_what_runs_it_and_python_compiles(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language in ("python", "shell"):
            assert _mark(block) in MARKS, block.mark
        if block.language == "python":
            compile(block.code, str(page), "exec")


@pytest.mark.parametrize("page", _pages("python", ""))
def test_python_runs_top_to_bottom(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, code in enumerate(_blocks(page, "python"), start=1):
        exec(compile(code, f"{page.name}, python block {number}", "exec"), names)


@pytest.mark.spark
@pytest.mark.parametrize("page", _pages("python", "spark"))
def test_python_of_spark_runs(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    for code in _blocks(page, "python", "spark"):
        exec(compile(code, f"{page.name}, a block of Spark", "exec"), {})


def _streams(code):
    """Whether a block starts a stream, and with it Spark."""
    return "selectroute stream run" in code


def _installs(code):
    """Whether a block installs: .ci/run runs these, and whoever follows the README."""
    return "venv" in code or "pip install" in code


def _environment():
    """Without what somebody told the commands on this machine, and with those of this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SELECTROUTE_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "XDG_CONFIG_HOME": os.devnull}


BASH = ("bash", "-euo", "pipefail", "-c")


def _run(command, folder, timeout=300, **variables):
    """Run a command of a page."""
    ran = subprocess.run(
        command, cwd=folder, env=_environment() | variables, capture_output=True, text=True, timeout=timeout
    )
    assert ran.returncode == 0, f"{command[-1]}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


WITH_STREAMS = [TUTORIALS / "changing-selector.md", TUTORIALS / "first-fan-out.md"]
"""Pages whose shell starts Spark: each has a test of its own below."""


def test_every_page_with_a_stream_has_its_test():
    assert [one for one in PAGES if any(map(_streams, _blocks(one, "shell")))] == WITH_STREAMS


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        one
        for one in _pages("shell", "", lambda code: not _installs(code))
        if one.values[0] not in WITH_STREAMS
    ],
)
def test_shell_commands_run(tmp_path, page):
    for code in _blocks(page, "shell"):
        if not _installs(code):
            _run([*BASH, code], tmp_path, timeout=120)


@pytest.mark.slow
@pytest.mark.application
def test_the_first_fan_out_delivers_as_its_page_shows(tmp_path):
    said = _run([*BASH, "".join(_blocks(TUTORIALS / "first-fan-out.md", "shell"))], tmp_path, timeout=600)
    assert "monday.jsonl" in said
    (line,) = (tmp_path / "out" / "accounting.jsonl").read_text().splitlines()
    assert json.loads(line)["deliveries"] == 1


@pytest.mark.slow
@pytest.mark.xdist_group("kafka")
def test_the_tutorial_of_kafka_delivers_as_its_page_shows(tmp_path, monkeypatch, kafka):
    page = TUTORIALS / "kafka-to-kafka.md"
    for topic in ("cars", "heavy-cars"):
        if topic not in kafka.topics():
            kafka.create(topic)
    monkeypatch.setenv("KAFKA", kafka.address)
    names: dict[str, object] = {}
    exports = ""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and _mark(block) == "kafka":
            exec(compile(block.code, page.name, "exec"), names)
        elif block.language == "shell" and _mark(block) == "kafka":
            code = block.code.replace("localhost:9092", kafka.address)
            _run([*BASH, exports + code], tmp_path, timeout=600)
            exports += "".join(line for line in code.splitlines(keepends=True) if line.startswith("export "))


RED = b'{"properties": {"color": {"type": "string", "value": "red"}}}\n'


def _subscribed(folder):
    """Put a file of subscriptions where the commands of some pages expect it."""
    (folder / "subscriptions.jsonl").write_text('{"id": "red", "selector": "color = \'red\'"}\n')


@pytest.mark.slow
@pytest.mark.application
def test_the_example_of_delta_tables_runs(tmp_path):
    page = DOCS / "how-to" / "delta-tables.md"
    (shell,), (python,) = _blocks(page, "shell", "delta"), _blocks(page, "python", "delta")
    _subscribed(tmp_path)
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

    (code,) = _blocks(DOCS / "how-to" / "object-stores.md", "shell", store)
    _subscribed(tmp_path)
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


@pytest.mark.slow
@pytest.mark.application
def test_a_selector_changes_while_its_stream_runs_as_its_page_shows(tmp_path):
    page = TUTORIALS / "changing-selector.md"
    [code] = _blocks(page, "shell")
    with socket.create_server(("127.0.0.1", 0)) as free:  # somebody else may have the port of the page
        port = free.getsockname()[1]
    code = code.replace("8080", str(port))
    assert code.count("\nsleep 1 ") == 1
    code = code.replace("\nsleep 1 ", f"\n{_published(port)}\nsleep 1 ")
    with (tmp_path / "said").open("w+") as said:
        # In a group of its own: were it to fail half way, service and stream would stay.
        ran = subprocess.Popen(
            [*BASH, code],
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
    assert f"```\n{explained}```" in page.read_text(encoding="utf-8")


def test_the_explanation_shown_is_the_one_given():
    message = Message(properties={"weight": "3000"})
    explanation = Selector("weight > 2500 AND color = 'red'").explain(message)
    assert f"```\n{explanation}\n```" in (DOCS / "reference/selectors.md").read_text(encoding="utf-8")


def test_the_error_shown_is_the_one_given():
    from selectroute.selector import InvalidSelectorError

    with pytest.raises(InvalidSelectorError) as invalid:
        Selector("region = 'EMEA AND price > 10")
    assert f"```\n{invalid.value}\n```" in (DOCS / "reference/errors.md").read_text(encoding="utf-8")


def test_the_table_of_dialects_has_every_field():
    fields = [field.name for field in dataclasses.fields(Dialect) if field.name != "name"]
    assert [row.field for row in rows()] == fields


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
