"""``selectroute stream run`` on Kafka, used wrongly: one sentence before it starts, and an exit code."""

import signal
import sys

import pytest

from selectroute.cli import main
from selectroute.spark import Job, KafkaCluster, KafkaInput
from selectroute.spark.folder import OutputFolder
from selectroute.storage import Location
from selectroute.testing.broker import CLUSTER
from tests.spark.kafka_world import answer_within, cars
from tests.support.components import KAFKA

FAILURE, USAGE, NOT_FOUND, CONFLICT = 1, 2, 3, 4


def on_kafka(test):
    """Marks of tests that need a broker."""
    for mark in (pytest.mark.spark, *KAFKA):
        test = mark(test)
    return test


@pytest.fixture
def refused(monkeypatch, capsys):
    """A function that starts the application, in this process and on its session if there is one; returns
    what it says.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def start(world, code, *arguments, servers="127.0.0.1:1", topics="t", output=None):
        folders = ["--snapshots", world.snapshots, "--output", output or world.output]
        read = ["--kafka-servers", servers, "--kafka-topics", topics, "--available-now"]
        monkeypatch.setattr(
            sys, "argv", ["selectroute", "stream", "run", *map(str, (*read, *folders, *arguments))]
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (code, ""), said.err
        *start, line = said.err.splitlines()
        assert len(start) <= 1 and all(other.startswith("routing `") for other in start)
        assert line.startswith("selectroute: ") and "Traceback" not in line and len(line) < 600
        assert not world.rows("deliveries")
        return line

    yield start
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--bind", "weight:integer"), "integer"),
        (("--bind", "customer=@nowhere"), "'@nowhere' is not a valid source"),
        (("--bind", "JMSPriority:string"), "JMSPriority"),
        (("--topic-separator", "/"), "separator"),
        (("--kafka-binding", "no-such-file.toml"), "no-such-file.toml can't be read"),
        (("--kafka-config", "no-such-file.properties"), "no-such-file.properties"),
        (("--starting-offsets", "yesterday"), "yesterday"),
        (("--schema-registry", "host:8081"), "must be https://host or http://host, not 'host:8081'"),
        (("--schema-registry", "http://h", "--schema-registry-config", "no-such-file"), "no-such-file"),
        (("--unrouted-topic", "audit/#=burn"), "burn"),
    ],
)
def test_a_wrong_binding_or_option_is_wrong_usage(world, refused, arguments, sentence):
    world.publish(1, all="")
    assert sentence in refused(world, USAGE, *arguments)
    assert not world.output.exists()


def test_a_checkpoint_of_files_is_none_of_a_job_on_kafka(world, refused):
    world.publish(1, all="")
    folder = OutputFolder(world.job())
    folder.claim()
    checkpoint = world.job().checkpoint.path
    (checkpoint / "metadata").write_text('{"id": "query-1"}')
    (checkpoint / "commits").mkdir()
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    folder.bind()
    folder.release()
    assert "belongs to another job: its input is" in refused(world, CONFLICT)
    elsewhere = world.root / "elsewhere"
    said = refused(world, CONFLICT, "--checkpoint", checkpoint, output=elsewhere)
    assert "has run batches, but the output folder" in said
    assert not elsewhere.exists()


@on_kafka
def test_a_broker_that_does_not_answer_and_topics_that_are_not_there(pipe, refused, monkeypatch):
    servers = pipe.broker.address
    pipe.publish(1, all="")
    with monkeypatch.context() as patch:
        answer_within(patch, 2)
        assert "Kafka at 127.0.0.1:1 does not answer within" in refused(pipe.world, FAILURE)
    said = refused(pipe.world, NOT_FOUND, servers=servers, topics=f"{pipe.name},no-such-topic")
    assert "has no topic no-such-topic" in said
    pipe.publish(2, all=("", "nor-this"))
    fail = ("--missing-destinations", "fail")
    said = refused(pipe.world, NOT_FOUND, *fail, servers=servers, topics=pipe.name)
    assert "delivered to topics that do not exist in Kafka" in said and "nor-this" in said


@on_kafka
def test_another_cluster_and_a_job_that_runs(pipe, refused):
    pipe.publish(1, none="weight < 0")
    pipe.broker.produce(pipe.name, cars(3))
    pipe.run()
    servers = pipe.broker.address
    record = pipe.world.output / "_job.json"
    written = Location.of(record).read_json()
    Location.of(record).put_json(written | {"system": "another"})
    assert written["system"] == CLUSTER
    said = refused(pipe.world, CONFLICT, servers=servers, topics=pipe.name)
    assert f"Kafka cluster another, and this cluster is {CLUSTER}" in said
    Location.of(record).put_json(written)
    running = OutputFolder(
        Job.of(KafkaInput(KafkaCluster(servers), (pipe.name,)), pipe.world.snapshots, pipe.world.output)
    )
    running.claim()
    said = refused(pipe.world, CONFLICT, servers=servers, topics=pipe.name)
    assert "another process runs a job on the checkpoint" in said
    running.release()
