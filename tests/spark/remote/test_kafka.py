"""Kafka in and out of a job whose folders are in an object store: each record once, through crashes."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.spark import rerun
from selectroute.spark.audit.audit import audit
from selectroute.spark.audit.status import status
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job.output_folder import LEASE
from selectroute.spark.replay.request import ReplayFilterSpec, make_request
from selectroute.storage import Location
from tests.crash.programs.command import wait_until
from tests.crash.programs.object_store import kill
from tests.spark.kafka_world import cars, headers_of
from tests.spark.stream.test_application import command
from tests.support.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


def ids(broker, topic):
    """The ids of the deliveries that a reader of committed records sees."""
    return Counter(headers_of(one)["selectroute-delivery-id"] for one in broker.records(topic))


def test_what_was_sent_before_a_crash_is_not_sent_again_and_batches_can_be_repeated(pipe):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all=("weight >= 0", out), gone=("weight = 1", "no-such-topic"))
    pipe.broker.produce(pipe.name, cars(9))
    pipe.run_killed()
    assert len(ids(pipe.broker, out)) == 9
    record = (pipe.world.output / "_job.json").read_json()
    assert record["tokens"] in pipe.broker.topics() and record["tokens_id"]
    # The next driver is on another machine: it has no copy of the checkpoint.
    pipe.broker.produce(pipe.name, cars(6, first=9))
    reports = pipe.run(max_offsets=6)
    assert [(one.batch, one.counts.sent, one.counts.refused) for one in reports] == [(0, 9, 1), (1, 6, 0)]
    sent = ids(pipe.broker, out)
    assert len(sent) == 15 and set(sent.values()) == {1}
    assert (status(pipe.world.output).planned, audit(pipe.world.output).findings) == ((), [])
    again = rerun(pipe.spark, pipe.job(max_offsets=6), pipe.world.root / "again")
    assert [(one.batch, one.held) for one in again] == [(0, True), (1, True)]
    assert ids(pipe.broker, out) == sent
    pipe.publish(2, all=("weight >= 0", out), gone=("weight = 1", out))
    make_request(pipe.world.output, ReplayFilterSpec(reasons=("unknown-topic",)))
    (replayed,) = pipe.run()
    assert (replayed.kind, replayed.counts.sent, replayed.counts.refused) == ("replay", 1, 0)
    assert ids(pipe.broker, out) - sent == Counter([f"{pipe.name}/1/0/gone"])
    assert audit(pipe.world.output).findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("world", ["s3", "hdfs"], indirect=True)
def test_a_job_that_is_killed_goes_on_on_another_machine_and_sends_each_record_once(pipe, tmp_path):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all=("weight >= 0", out))
    log, sent = tmp_path / "log", 0
    folders = [
        f"--{name}={pipe.world.root / place}"
        for name, place in (("snapshots", "snapshots"), ("output", "out"))
    ]
    more = ["--kafka-servers", pipe.broker.address, "--kafka-topics", pipe.name, "--bind", "weight:int"]
    more += ["--max-offsets-per-trigger", "3", "--trigger-seconds", "0", "--cores", "2"]

    def start(*options):
        given = command(*folders, *more, *options) | {"stderr": log.open("ab"), "stdout": subprocess.DEVNULL}
        return subprocess.Popen(**given, start_new_session=True)

    def committed():
        return len(Commits(Location.of(f"{pipe.world.root}/out")).batches())

    for number in range(3):
        pipe.broker.produce(pipe.name, cars(30, first=sent))
        sent += 30
        job, wanted = start(), (committed() if (pipe.world.root / "out" / LEASE).exists() else 0) + 2 + number
        wait_until(
            lambda job=job, wanted=wanted: (
                job.poll() is not None
                or ((pipe.world.root / "out" / "_job.json").exists() and committed() >= wanted)
            ),
            300,
            "batches",
        )
        assert job.poll() is None, log.read_text()
        kill(job)
    job = start("--available-now")
    assert job.wait(600) == 0, log.read_text()
    found = ids(pipe.broker, out)
    assert len(found) == sent and set(found.values()) == {1}
    assert sum(pipe.delivered().values()) == sent and set(pipe.delivered().values()) == {1}
    assert audit(pipe.world.output).findings == []
