"""Commands of the pages and of the help: the command line takes each, and those that can run here run.

A folder of the tests has what they name: messages, subscriptions, the output of a job, a registry, queues.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager, nullcontext

import pytest

import selectroute as sr
from docs.site.pages import DOCS, ROOT, blocks, documentation
from selectroute.testing.broker import free_ports
from tests.docs import world
from tests.docs.shell import BASH, Shell, code_of, environment, find_command, lines, words
from tests.support.servers.certificates import Authority

HELP = DOCS / "reference/cli.md"
OPTIONS_BEFORE = "--snapshots snapshots --output out"
"""What … stands for in the help: options of the examples before."""

RUN = "selectroute stream run --input messages --snapshots snapshots --output out"
REGISTRY = "sqlite:///subscriptions.db"
DATABASES = {"SELECTROUTE_REGISTRY": REGISTRY, "SELECTROUTE_QUEUES": "sqlite:///queues.db"}
LISTENS = r"selectroute: (http://\S+) serves"
ANY_PORT = {"SELECTROUTE_PORT": "0"}
NOT_SMALL = {"SELECTROUTE_MAX_MESSAGE_BYTES": "4194304"}


def code(page, mark):
    """The shell blocks of a page with a mark, in their order."""
    return code_of(ROOT / page, "shell", mark)


def examples(*parts):
    """The examples of the help that have all of these parts, patterns."""
    found = [line for block in blocks(HELP.read_text(encoding="utf-8"))
             if block.language == "shell" for line in lines(block.code)]  # fmt: skip
    return [line for line in found if all(re.search(part, line) for part in parts)]


def whole(text):
    """The commands `selectroute …` of a page's blocks, with all of their words, those of `submit.py` and of
    images among them.
    """
    for block in blocks(text):
        for line in lines(block.code) if block.language in ("shell", "docker") else ():
            if line.startswith(("spark-submit", "docker run")):
                line = re.sub(r"\S*/submit\.py |\S+/selectroute(-service)?:TAG ", "; selectroute ", line)
            for found in re.finditer(r"(?:^|[;|&(] *|until |^RUN \S+ )(?=selectroute )", line):
                yield line[found.end() :].replace(" …", f" {OPTIONS_BEFORE}")


def parsed(command):
    """Parse a command as the command line does, with its values; it is not run."""
    found, rest = find_command(words(command)[1:])
    return found.make_context(found.name, rest)


@pytest.mark.parametrize("page", [one for one in documentation() if any(whole(one.read_text("utf-8")))],
                         ids=lambda page: str(page.relative_to(ROOT)))  # fmt: skip
def test_each_command_is_one_that_the_command_line_takes(page):
    for command in whole(page.read_text(encoding="utf-8")):
        if not {"--help", "--version"} & {*words(command)}:
            parsed(command)


@pytest.mark.parametrize(
    ("wrong", "why"),
    {
        "queue depth": "Missing parameter: queue",
        "queue depth Q --priority 4": "No such option",
        "stream status out --top many": "a valid integer",
        "index build a b c": "unexpected extra argument",
    }.items(),
)
def test_a_command_that_the_command_line_does_not_take_is_found(wrong, why):
    with pytest.raises(Exception, match=why):
        parsed(f"selectroute {wrong}")


def test_the_options_of_the_benchmark_exist(monkeypatch):
    import argparse

    from bench.__main__ import main

    def parse_only(parser, arguments, whole=argparse.ArgumentParser.parse_args):
        whole(parser, arguments)
        raise InterruptedError

    (block,) = code("bench/README.md", "parsed")
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    for command in lines(block):
        python, m, bench, *options = words(command)
        assert (python, m, bench) == ("python", "-m", "bench")
        with pytest.raises(InterruptedError):
            main(options)


def test_files_of_the_repository_that_blocks_name_exist():
    for page in documentation():
        for block in blocks(page.read_text(encoding="utf-8")):
            for name in re.findall(r"(?<![\w/.])streaming/[\w/.-]+", block.code):
                assert (ROOT / name).exists(), f"{page}: {name}"


def needing_more():
    """Commands of jobs that need a cluster or a schema registry, and all of the help: some need Kafka."""
    for page in documentation():
        for one in blocks(page.read_text(encoding="utf-8")):
            if one.mark.partition(":")[0] in ("parsed", "cluster") or page == HELP:
                for command in whole(f"```shell\n{one.code}```\n"):
                    if "stream run" in command:
                        yield pytest.param(command, id=f"{page.name}: {command[22:60]}")


@pytest.mark.parametrize("command", [*needing_more()])
def test_a_job_that_needs_more_than_there_is_here_is_one(tmp_path, monkeypatch, command):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra `kafka`)")
    from selectroute.cli.commands import stream_run

    described = []

    def up_to_the_connection(options, log, stop):
        with options.opened() as registry:
            described.append(options.job(registry))
        return 0

    monkeypatch.setattr(stream_run, "_run", up_to_the_connection)
    with sr.Registry.open(f"sqlite:///{tmp_path}/subscriptions.db"):
        (tmp_path / "registry.properties").write_text("timeout=5\n")
        Shell(tmp_path).one(command)
    assert len(described) == 1


# Commands on the folder of a job.


def spark(test):
    """Mark a test that runs a job in the session of all tests."""
    return pytest.mark.spark(pytest.mark.slow(test))


def counts(folder, batch=0):
    read = map(json.loads, (folder / "accounting.jsonl").read_text().splitlines())
    (line,) = (one for one in read if one["batch"] == batch)
    return [line[name] for name in ("messages", "routed", "unrouted", "dead_lettered", "deliveries")]


ROUTED = [15, 4, 9, 2, 4]
"""What becomes of the messages of the folder."""


@spark
def test_dead_letters_are_listed_and_replayed_and_batches_routed_again(shell):
    listing, replaying, again = code("docs/how-to/replay.md", "job")
    shell.one(RUN)
    assert counts(shell.folder / "out") == ROUTED
    one, numbers, left = (shell.one(command) for command in lines(listing))
    assert "'no message'" in one and "too-large" not in one and "too-large" in left
    assert numbers.split() == ["1", "parse", "not-json", "1", "read", "too-large"]
    dry, wait = lines(replaying)
    assert shell.one(dry).split() == ["1", "read", "too-large"]
    process, _ = shell.begun(wait, "request .*: 1 dead letter")
    try:
        shell.one(RUN, **NOT_SMALL)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
    assert counts(shell.folder / "out", -1) == [1, 1, 0, 0, 1]
    assert "too-large" not in shell.one(lines(listing)[2])
    shell.run(again)
    assert shell.reported.splitlines()[1:] == ["batch 0  revision 1  same files"]


@spark
def test_a_job_is_watched(shell):
    state, why, now = code("docs/how-to/watch.md", "job")
    shell.one(RUN)
    said = shell.run(state)
    assert "15 = 4 routed + 9 unrouted + 2 dead letters" in said and "WRONG" not in said
    who, reason = (shell.one(command) for command in lines(why))
    assert "heavy" in who and "weight is long 3000" in reason
    for command in lines(now):
        assert "heavy" in shell.one(command, **DATABASES)


@spark
@pytest.mark.parametrize("page", ["docs/how-to/run-a-job.md", "streaming/README.md"])
def test_a_job_is_run(shell, page):
    (block,) = code(page, "job")
    for command in lines(block):
        shell.one(command)
        assert counts(shell.folder / "out") == ROUTED
        shutil.rmtree(shell.folder / "out")


@spark
def test_a_job_reports_to_the_service_with_a_console(shell):
    (block,) = code("streaming/console/README.md", "job")
    serve, run = lines(block)
    with shell.started(serve.removesuffix("&"), LISTENS, **ANY_PORT) as found:
        assert run.count("http://127.0.0.1:8080") == 1
        shell.one(run.replace("http://127.0.0.1:8080", found[1]))
        assert counts(shell.folder / "out") == ROUTED
        (stream,) = answer(f"{found[1]}/v1/streams")["items"]
        assert stream["name"] == "flights"
        (job,) = answer(f"{found[1]}/v1/jobs")["items"]
        assert job["name"] == "flights"


@spark
def test_jobs_on_kafka_and_what_shows_their_records(shell, kafka):
    """The page's command, and the examples of the help: the last names record 9 of partition 3."""

    def run(command):
        command = re.sub(r"(--kafka-servers )\S+", rf"\g<1>{kafka.address}", command)
        return shell.one(command)

    (command,) = lines(code("docs/how-to/run-a-job.md", "kafka")[0])
    same, deliveries, explain = examples("stream .*--kafka-servers")
    assert words(same.replace("…", OPTIONS_BEFORE)) == words(command)
    for topic in {"cars", "t"} - kafka.topics():
        kafka.create(topic, 4)
    record = None, b"", [("JMSType", b"car"), ("weight", b"3000")]
    kafka.produce("cars", [(0, *record)])
    kafka.produce("t", [(3, *record)] * 10)
    (shell.folder / "snapshots").rename(shell.folder / "others")
    sr.publish(sr.build_snapshot([("heavy", world.HEAVY), ("a", "")]), shell.folder / "snapshots")
    run(command)
    assert "weight=3000" in run(deliveries)
    shutil.rmtree(shell.folder / "out")
    run(command.replace("cars", "t"))
    assert "a gets" in run(explain)


@pytest.mark.nightly
@pytest.mark.application
def test_a_cluster_runs_a_job(shell):
    from tests.support.servers import cluster

    submit, servers = code("docs/how-to/clusters.md", "cluster")
    port = str(*free_ports(1))
    (shell.folder / "streaming").symlink_to(ROOT / "streaming")
    names = ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYTHONPATH")
    shell.variables |= {name: cluster.environment()[name] for name in names}
    own = {"SPARK_WORKER_DIR": "work", "SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"}
    with (shell.folder / "servers").open("w") as said:
        started = subprocess.Popen(
            [*BASH, f"{servers.replace('7077', port)}wait"],
            cwd=shell.folder,
            env=environment() | shell.variables | own,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            while not (shell.folder / "cluster.conf").exists():
                assert started.poll() is None, (shell.folder / "servers").read_text()
                time.sleep(0.1)
            shell.bash(submit.replace("host:7077", f"127.0.0.1:{port}"))
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait()
    assert counts(shell.folder / "out") == ROUTED


def answer(url):
    """What a service answers; an error unless it is a success."""
    with urllib.request.urlopen(url, timeout=60) as found:
        return json.load(found)


# Commands that need a service.


@pytest.mark.slow
@pytest.mark.parametrize("command", [*lines(code("docs/how-to/registry.md", "service")[0]),
                                     *examples("selectroute serve .*postgresql")])  # fmt: skip
def test_a_service_starts(shell, request, command):
    if "postgresql" in command:
        url = request.getfixturevalue("postgres")()
        command = re.sub(r"postgresql\S+", lambda _: shlex.quote(url), command)
        if "--host 0.0.0.0" in command:
            shell.one(f"selectroute token create --role admin --registry {shlex.quote(url)}")
    command = command.replace("/srv/snapshots", f"{shell.folder}/srv")
    with shell.started(command, LISTENS, **ANY_PORT) as found:
        answer(f"{found[1]}/healthz")


@pytest.mark.slow
@pytest.mark.parametrize("command", [*lines(code("docs/how-to/jms.md", "service")[0]),
                                     *examples("selectroute broker")])  # fmt: skip
def test_a_broker_starts(shell, command):
    if "--certificate broker.pem" in command:
        (shell.folder / "broker.pem").write_text(Authority(shell.folder).issue("broker").both)
    with shell.started(f"{command} --port 0", r"selectroute: amqps?://\S+ serves JMS clients"):
        pass


@pytest.mark.slow
def test_messages_are_put_and_got_over_http(shell):
    (block,) = code("docs/tutorials/queue.md", "service")
    with shell.started(f"selectroute serve --registry {REGISTRY}", LISTENS, **ANY_PORT) as found:
        said = shell.bash(block.replace("http://127.0.0.1:8080", found[1]))
    assert re.findall(r"HTTP/1.1 (\d+)", said) == ["200", "200"] and said.count("shipped") == 2
    assert '"messageId"' in said  # of the list


# Examples of the help.


def databases(folder, name="*"):
    """The files of databases; a folder of snapshots may stand beside one."""
    return [path for path in folder.glob(f"{name}.db*") if path.is_file()]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with messages, subscriptions and queues, and copies of its databases."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    folder = tmp_path_factory.mktemp("examples")
    world.fill(folder)
    (folder / "selector.txt").write_text(world.HEAVY)
    (folder / "order.json").write_text('{"order": 7}')
    shell = Shell(folder, **DATABASES)
    for queue in ("ORDERS", "ORDERS.BACKOUT"):
        shell.one(f"selectroute queue create {queue}")
        shell.one(f"selectroute queue put {queue} shipped -p weight:integer=3000 --correlation-id order-7")
    for _ in range(12):
        shell.one("selectroute queue put ORDERS light -p weight:integer=5")
    (folder / "kept").mkdir()
    for path in databases(folder):
        shutil.copy(path, folder / "kept" / path.name)
    return folder


@pytest.fixture
def example_shell(prepared):
    """The folder with its databases as they were."""
    for path in databases(prepared):
        path.unlink()
    for path in (prepared / "kept").iterdir():
        shutil.copy(path, prepared / path.name)
    return Shell(prepared, **DATABASES, **world.OF_A_JOB)


@contextmanager
def opened(shell):
    with sr.Registry.open(f"sqlite:///{shell.folder}/subscriptions.db") as registry:
        yield registry


def empty(shell):
    """A registry without subscriptions."""
    for path in databases(shell.folder, "subscriptions"):
        path.unlink()
    with opened(shell):
        pass


def another(shell):
    """A registry without subscriptions, and the old one."""
    shutil.copy(shell.folder / "subscriptions.db", shell.folder / "old.db")
    empty(shell)


def paused(shell):
    with opened(shell) as registry:
        registry.pause("heavy")


def replaced(shell):
    with opened(shell) as registry:
        assert registry.replace("heavy", sr.SubscriptionSpec(selector=world.HEAVY)).revision == 18


@contextmanager
def used(shell):
    """A stream that uses the next revision."""

    def report():
        with opened(shell) as registry:
            registry.streams.note_query("q", source="files", can_replay=True)
            if registry.wait(17, 60):
                registry.streams.note_batch("q", 1, 18)

    reporting = threading.Thread(target=report)
    reporting.start()
    try:
        yield
    finally:
        reporting.join()


BEFORE = {
    "subscription add": empty,
    "subscription import subscriptions.jsonl": empty,
    "sqlite:///old.db": another,
    "--if-revision 18": replaced,
    "subscription resume": paused,
}
"""What is done before an example that has these words."""


def run_example(shell, example):
    for part, prepare in BEFORE.items():
        if part in example:
            prepare(shell)
    if "01k7tq2x8m4ha6s0v3wznb5c9d" in example:
        with opened(shell) as registry:
            token, _ = registry.tokens.add("reader")
        example = example.replace("01k7tq2x8m4ha6s0v3wznb5c9d", token.id)
    with used(shell) if "--wait 30" in example else nullcontext():
        return shell.one(example)


@pytest.mark.slow
@pytest.mark.parametrize("example", [
    one for one in examples() if not re.search("selectroute (serve|broker|stream)|--follow|http://", one)
])  # fmt: skip
def test_an_example_of_the_help_runs(example_shell, example):
    run_example(example_shell, example)


@pytest.mark.slow
@pytest.mark.parametrize("example", examples("selectroute serve .*sqlite|--follow"))
def test_an_example_of_the_help_that_goes_on_runs_until_it_is_stopped(example_shell, example):
    command = example.replace("/srv/snapshots", f"{example_shell.folder}/srv")
    with example_shell.started(command, "selectroute: .* Ctrl-C ends it", **ANY_PORT):
        pass


@pytest.mark.slow
def test_the_example_of_the_help_that_asks_a_service_runs(example_shell):
    (example,) = examples("http://")
    with example_shell.started(f"selectroute serve --registry {REGISTRY}", LISTENS, **ANY_PORT) as found:
        assert "17" in example_shell.one(example.replace("http://127.0.0.1:8080", found[1]))


@spark
def test_the_examples_of_the_help_of_jobs_run(example_shell):
    """In one folder: the first starts the job, and the others show what it did."""
    own = "^(?!.*--kafka-servers)selectroute stream "
    runs, others = examples(f"{own}run "), examples(f"{own}(?!run )")
    assert (len(runs), len(others)) == (2, 6) and runs[0] == RUN
    none = dict.fromkeys(DATABASES, "")
    example_shell.one(RUN, **none)
    for example in others:
        example_shell.one(example, **none)
    shutil.rmtree(example_shell.folder / "out")
    example_shell.one(runs[1], **none)
    assert counts(example_shell.folder / "out") == ROUTED
    shutil.rmtree(example_shell.folder / "out")
