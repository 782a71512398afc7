"""Whatever the documentation shows runs: doctests, and the code, the commands and the data of each page.

`RUN_BY` says what runs, reads or compares each block. Commands that need a job or a service are in
`test_commands.py`.
"""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from typing import Any

import pytest

import selectroute as sr
from docs.site.pages import DOCS, ROOT, blocks, documentation
from selectroute.cli.commands.selector import dialect_rows
from selectroute.index.retention import collect
from selectroute.selector import Dialect, Message, Selector
from selectroute.testing.broker import free_ports
from tests.docs.shell import BASH, Shell, code_of, environment, finished, lines
from tests.support.running_broker import RunningBroker, run_client

SOURCES = ROOT / "src"
README = ROOT / "README.md"
TUTORIALS = DOCS / "tutorials"
PAGES = documentation()
COMMANDS, CALLS = DOCS / "reference/cli.md", DOCS / "reference/http.md"

RUN_BY = {
    ("python", ""): "test_python_runs_top_to_bottom",
    ("python", "spark"): "test_python_of_spark_runs",
    ("python", "kafka"): "test_the_tutorial_of_kafka_delivers_as_its_page_shows",
    ("python", "delta"): "test_the_example_of_delta_tables_runs",
    ("shell", ""): "test_shell_commands_run",
    ("shell", "kafka"): "test_the_tutorial_of_kafka_delivers_as_its_page_shows, test_commands.py",
    ("shell", "delta"): "test_the_example_of_delta_tables_runs",
    ("shell", "s3"): "test_the_example_of_remote_storage_runs",
    ("shell", "hdfs"): "test_the_example_of_remote_storage_runs",
    ("shell", "yarn"): "tests/spark/runtime/test_yarn.py",
    ("shell", "cluster"): "test_commands.py",
    ("shell", "job"): "test_commands.py",
    ("shell", "service"): "test_commands.py",
    ("shell", "parsed"): "test_commands.py",
    ("shell", "installs"): "test_what_is_installed_is_there",
    ("console", "installs"): "test_what_is_installed_is_there",
    ("shell", "not run"): "nothing",
    ("java", "jms"): "test_the_jms_client_shown_gets_its_message",
    ("xml", "jms"): "test_the_jms_client_shown_gets_its_message",
    ("json", "message"): "test_messages_shown_are_read",
    ("json", "subscription"): "test_the_subscription_shown_is_registered_and_indexed",
    ("toml", ""): "test_the_configuration_shown_is_read",
    ("text", "output"): "test_the_error_shown_is_the_one_given and the two like it",
    ("text", "folder"): "test_a_snapshot_folder_has_the_files_shown",
    ("text", "drawing"): "nothing: a drawing",
}
"""What runs a block, by its language and the first word of the comment before it."""

GENERATED = {
    COMMANDS: {"console": "test_pages.py", "shell": "test_commands.py", "docker": "test_commands.py"},
    CALLS: {"json": "tests/unit/service/http/test_openapi.py", "text": "the same"},
}
"""Generated pages: what runs a block, by its language."""

OF_ONE_PAGE = {
    ("python", "kafka"): ["docs/tutorials/kafka-to-kafka.md"],
    ("python", "delta"): ["docs/how-to/delta-tables.md"],
    ("shell", "kafka"): ["docs/how-to/run-a-job.md", "docs/tutorials/kafka-to-kafka.md"],
    ("shell", "delta"): ["docs/how-to/delta-tables.md"],
    ("shell", "s3"): ["docs/how-to/object-stores.md"],
    ("shell", "hdfs"): ["docs/how-to/object-stores.md"],
    ("shell", "yarn"): ["docs/how-to/clusters.md"],
    ("shell", "cluster"): ["docs/how-to/clusters.md"],
    ("shell", "service"): ["docs/how-to/jms.md", "docs/how-to/registry.md", "docs/tutorials/queue.md"],
    ("shell", "job"): [
        "docs/how-to/replay.md",
        "docs/how-to/run-a-job.md",
        "docs/how-to/watch.md",
        "streaming/README.md",
        "streaming/console/README.md",
    ],
    ("json", "subscription"): ["docs/reference/formats.md"],
    ("toml", ""): ["docs/reference/configuration.md"],
    ("text", "folder"): ["docs/reference/formats.md"],
    ("text", "output"): [
        "docs/reference/errors.md",
        "docs/reference/selectors.md",
        "docs/tutorials/changing-selector.md",
    ],
}
"""Pages whose blocks of a kind have a test that names the page."""


def _mark(block):
    return block.mark.partition(":")[0]


def _pages(language, mark):
    """The pages that have such blocks, as parameters of a test."""
    return [
        pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES if code_of(page, language, mark)
    ]


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
    text = page.read_text(encoding="utf-8")
    assert len(blocks(text)) == len(re.findall("^ *(?:```|~~~)", text, re.MULTILINE)) / 2, "a fence not read"
    for block in blocks(text):
        if page in GENERATED:
            assert block.language in GENERATED[page], block
        elif block.mark != "drawing":  # generated
            assert (block.language, _mark(block)) in RUN_BY, block
        if _mark(block) in ("not run", "parsed"):
            assert re.search(r": \w+ \w+", block.mark), "the reason"
        if block.language == "python":
            compile(block.code, str(page), "exec")


def test_blocks_with_a_test_of_their_own_are_on_the_pages_that_it_names():
    found: dict[tuple[str, str], set[str]] = {}
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")) if page not in GENERATED else ():
            kind = block.language, _mark(block)
            found.setdefault(kind, set()).add(page.relative_to(ROOT).as_posix())
    assert {kind: sorted(found[kind]) for kind in OF_ONE_PAGE} == OF_ONE_PAGE
    assert RUN_BY.keys() <= found.keys()


def test_few_blocks_are_not_run():
    """A new one needs a reason, and this number."""
    marks = [_mark(block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8"))]
    assert (marks.count("not run"), marks.count("parsed"), marks.count("installs")) == (5, 4, 5)


def _run_python(codes, page):
    """Run blocks of a page one after another; return their names."""
    names: dict[str, Any] = {}
    for number, code in enumerate(codes, start=1):
        exec(compile(code, f"{page.name}, python block {number}", "exec"), names)
    return names


@pytest.mark.parametrize("page", _pages("python", ""))
def test_python_runs_top_to_bottom(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    _run_python(code_of(page, "python"), page)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("page", _pages("python", "spark"))
def test_python_of_spark_runs(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    _run_python(code_of(page, "python", "spark"), page)


WITH_STREAMS = [TUTORIALS / "changing-selector.md", TUTORIALS / "first-fan-out.md"]
"""Pages whose shell starts Spark: each has a test of its own below."""


def test_every_page_with_a_stream_has_its_test():
    found = [page for page in PAGES if "selectroute stream run" in "".join(code_of(page, "shell"))]
    assert found == sorted([*WITH_STREAMS, COMMANDS])


@pytest.mark.parametrize(
    "page", [one for one in _pages("shell", "") if one.values[0] not in (*WITH_STREAMS, COMMANDS)]
)
def test_shell_commands_run(tmp_path, page):
    shell = Shell(tmp_path)
    for code in code_of(page, "shell"):
        shell.run(code)


def test_what_is_installed_is_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if _mark(block) == "installs":
                assert "pip install" in block.code
        for named in re.findall(r"(?:\.|selectroute)\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= set(extras["optional-dependencies"]), page


@pytest.mark.slow
@pytest.mark.spark
def test_the_first_fan_out_delivers_as_its_page_shows(tmp_path):
    page = TUTORIALS / "first-fan-out.md"
    shell = Shell(tmp_path)
    said = "".join(shell.run(code) + shell.reported for code in code_of(page, "shell"))
    assert "monday.jsonl" in said
    (line,) = re.findall(r"`(batch 0 [^`]*), …`", page.read_text(encoding="utf-8"))
    assert " ".join(line.split()) in " ".join(said.split())
    (line,) = (tmp_path / "out" / "accounting.jsonl").read_text().splitlines()
    assert json.loads(line)["deliveries"] == 1


@pytest.mark.slow
@pytest.mark.xdist_group("qpid-jms")
def test_the_jms_client_shown_gets_its_message(tmp_path):
    page = DOCS / "how-to/jms.md"
    (code,), (dependency,) = (code_of(page, language, "jms") for language in ("java", "xml"))
    version = dependency.partition("<version>")[2].partition("<")[0]
    broker = RunningBroker(f"sqlite:///{tmp_path}/broker.db", tmp_path / "snapshots")
    try:
        code = code.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")
        imports = "import jakarta.jms.*;\nimport org.apache.qpid.jms.JmsConnectionFactory;\n"
        main = "public static void main(String[] arguments) throws Exception"
        done = run_client(tmp_path, "Shown", f"{imports}class Shown {{ {main} {{\n{code}}} }}", version)
    finally:
        broker.stop()
    assert done.stdout == "heavy\n", done.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_the_tutorial_of_kafka_delivers_as_its_page_shows(tmp_path, monkeypatch, kafka):
    page = TUTORIALS / "kafka-to-kafka.md"
    for topic in {"cars", "heavy-cars"} - kafka.topics():
        kafka.create(topic)
    monkeypatch.setenv("KAFKA", kafka.address)
    names: dict[str, object] = {}
    shell = Shell(tmp_path)
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and _mark(block) == "kafka":
            exec(compile(block.code, page.name, "exec"), names)
        elif block.language == "shell" and _mark(block) == "kafka":
            shell.run(block.code.replace("localhost:9092", kafka.address))


RED = b'{"properties": {"color": {"type": "string", "value": "red"}}}\n'


def _subscribed(folder):
    """Put a file of subscriptions where the commands of some pages expect it."""
    (folder / "subscriptions.jsonl").write_text('{"id": "red", "selector": "color = \'red\'"}\n')


@pytest.mark.slow
@pytest.mark.spark
def test_the_example_of_delta_tables_runs(tmp_path, monkeypatch):
    page = DOCS / "how-to" / "delta-tables.md"
    (shell,), (python,) = code_of(page, "shell", "delta"), code_of(page, "python", "delta")
    _subscribed(tmp_path)
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "a.jsonl").write_bytes(RED * 3)
    Shell(tmp_path).run(shell)
    monkeypatch.chdir(tmp_path)
    names = _run_python([python], page)
    assert (names["table"].count(), [*names["versions"]]) == (3, [0])


@pytest.mark.application
@pytest.mark.parametrize(
    "store", [pytest.param("s3", marks=pytest.mark.slow), pytest.param("hdfs", marks=pytest.mark.nightly)]
)
def test_the_example_of_remote_storage_runs(tmp_path, request, store):
    from tests.support.remote_world import numba_cache, remote_folder

    (code,) = code_of(DOCS / "how-to" / "object-stores.md", "shell", store)
    _subscribed(tmp_path)
    with remote_folder(request, store) as base:
        (base / "in" / "a.jsonl").put(RED * 3)
        if store == "s3":
            code = code.replace("https://s3.example.com", os.environ["AWS_ENDPOINT_URL"])
            code = code.replace("s3://bucket", str(base))
        else:
            code = code.replace("/etc/hadoop/conf", os.environ["HADOOP_CONF_DIR"])
            code = code.replace("hdfs://namenode", str(base))
        finished(
            [*BASH, code], tmp_path, NUMBA_CACHE_DIR=numba_cache(), XDG_CACHE_HOME=str(tmp_path / "cache")
        )
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
    [code] = code_of(page, "shell")
    (port,) = free_ports(1)  # somebody else may have the port of the page
    code = code.replace("8080", str(port))
    assert code.count("\nsleep 1 ") == 1
    code = code.replace("\nsleep 1 ", f"\n{_published(port)}\nsleep 1 ")
    with (tmp_path / "said").open("w+") as said:
        # In a group of its own: were it to fail half way, service and stream would stay.
        ran = subprocess.Popen(
            [*BASH, code],
            cwd=tmp_path,
            env=environment(),
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
    assert f"```text\n{explained}```" in page.read_text(encoding="utf-8")


def test_the_explanation_shown_is_the_one_given(tmp_path):
    page = DOCS / "reference/selectors.md"
    (commands,) = code_of(page, "shell")
    assert Shell(tmp_path).one(lines(commands)[1]) == _line(page, "text", "output")


def test_the_error_shown_is_the_one_given():
    from selectroute.selector import InvalidSelectorError

    with pytest.raises(InvalidSelectorError) as invalid:
        Selector("region = 'EMEA AND price > 10")
    assert f"```text\n{invalid.value}\n```" in (DOCS / "reference/errors.md").read_text(encoding="utf-8")


def _line(page, language, mark):
    """The only block of a page of this language and mark."""
    (code,) = code_of(page, language, mark)
    return code


def test_the_first_page_shows_who_gets_its_message():
    message = Message.from_json(json.loads(_line(README, "json", "message")))
    row = re.compile(r"^\| `(\w+)` \|(.*)\| `(.*)` \| (yes|no)\b(.*) \|$", re.MULTILINE)
    table = row.findall(README.read_text(encoding="utf-8"))
    assert [id for id, *_ in table] == ["heavy", "red", "typo"]
    index = sr.Index()
    for id, topic, selector, _, _ in table:
        index.add(id, selector, topic=topic.strip(" `") or None)
    expected = [id for id, *_, gets, _ in table if gets == "yes"]
    assert sorted(index.match(message)) == sorted(index.freeze().match_one(message).ids()) == expected
    why = {id: reason for id, *_, reason in table}
    red = [str(Selector(part).explain(message)) for part in ("color IN ('red', 'orange')", "price < 10")]
    assert [one.split()[0] for one in red] == ["FALSE", "UNKNOWN"] and "`price < 10` is UNKNOWN" in why["red"]
    assert str(Selector("weight = '3000'").explain(message)).startswith("FALSE")
    assert "`weight = '3000'` compares a number with a string, which is FALSE" in why["typo"]


@pytest.mark.parametrize("page", _pages("json", "message"))
def test_messages_shown_are_read(page):
    for code in code_of(page, "json", "message"):
        message = Message.from_json(json.loads(code))
        assert Selector("JMSType = 'car' AND weight > 2500").matches(message) and message.topic == "cars/eu"


def test_bodies_of_calls_are_json():
    bodies = [one.code for one in blocks(CALLS.read_text(encoding="utf-8")) if one.language == "json"]
    for body in bodies:
        try:
            json.loads(body)
        except json.JSONDecodeError:  # lines of JSON
            assert all(map(json.loads, body.splitlines()))
    assert len(bodies) > 15


def test_the_subscription_shown_is_registered_and_indexed(tmp_path):
    from selectroute.cli import app

    code = _line(DOCS / "reference/formats.md", "json", "subscription")
    (tmp_path / "subscriptions.jsonl").write_text(code)
    with sr.Registry.open(f"sqlite:///{tmp_path}/registry.db") as registry:
        registry.import_([code.encode()])
        (exported,) = registry.export()
    given = json.loads(code)
    assert {name: json.loads(exported)[name] for name in given} == given
    with pytest.raises(SystemExit) as ended:
        app(["index", "build", f"{tmp_path}/subscriptions.jsonl", f"{tmp_path}/snapshots"])
    assert not ended.value.code
    (row,) = sr.Snapshot.open(tmp_path / "snapshots").subscriptions.to_pylist()
    assert (row["id"], row["topic"], row["selector"]) == (given["id"], given["topic"], given["selector"])


def test_the_configuration_shown_is_read(tmp_path, monkeypatch, capsys):
    from selectroute.cli.settings import ServeSettings, settings_of

    settings, limits = code_of(DOCS / "reference/configuration.md", "toml")
    file = tmp_path / "config.toml"
    file.write_text(f"{settings}\n{limits}")
    file.chmod(0o600)
    monkeypatch.setattr(os, "environ", environment() | {"SELECTROUTE_CONFIG": str(file)})
    given = tomllib.loads(file.read_text())
    found = settings_of(ServeSettings)
    assert found.token.get_secret_value() == given["token"]
    for name in given.keys() - {"limits", "token"}:
        assert getattr(found, name) == given[name]
    assert found.limits.page == given["limits"]["page"] == 100
    assert capsys.readouterr().err == ""


def test_a_snapshot_folder_has_the_files_shown(tmp_path):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from tests.support.world import World

    code = _line(DOCS / "reference/formats.md", "text", "folder")
    shown = [line.split()[0].removeprefix("folder/") for line in code.splitlines()]
    world = World(tmp_path)
    for revision in (1, 2):
        world.publish(revision, **{f"s{number}": f"color = 'c{number}'" for number in range(100)})
    world.drop_json("a.jsonl", {"properties": {"color": "c7"}})
    world.route("a.jsonl")
    collect(world.snapshots, keep=1, grace_seconds=0)
    with sr.Publisher(world.snapshots) as publisher:
        publisher.apply([sr.Remove("s17"), sr.Add("all")])
    paths = [path for path in world.snapshots.rglob("*") if path.is_file()]
    found = [path.relative_to(world.snapshots).as_posix() for path in paths]
    matched = {name: [one for one in found if re.fullmatch(_pattern(name), one)] for name in shown}
    assert {one for some in matched.values() for one in some} == set(found)
    assert all(matched.values())


def _pattern(name):
    """A pattern for the names that a name with `<parts>` stands for."""
    return r"[\w-]+".join(map(re.escape, re.split(r"<\w+>", name)))


def test_the_table_of_dialects_has_every_field():
    fields = [field.name for field in dataclasses.fields(Dialect) if field.name != "name"]
    assert [row.field for row in dialect_rows()] == fields


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
