"""Kafka in and out of a job whose folders are in an object store: each record once, through crashes."""

import json
import os
import signal
import subprocess
from collections import Counter

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.spark import rerun
from selectroute.spark.audit.audit import audit
from selectroute.spark.batch import pins
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job_administration import status
from selectroute.spark.replay.request import ReplayFilterSpec
from selectroute.storage import Location
from tests.crash.programs.harness import kill, wait_until
from tests.spark.kafka_world import cars
from tests.spark.stream.test_application import command
from tests.support.components import KAFKA
from tests.support.remote_world import for_workers
from tests.support.replays import make_request
from tests.support.servers.faulty_proxy import (
    answers_between_commits,
    between_commits,
    faulty_proxy,
    requests_in,
    slow_after_first,
    waited_for,
)
from tests.support.servers.s3 import store_at

pytestmark = [pytest.mark.spark, *KAFKA]


def test_what_was_sent_before_a_crash_is_not_sent_again_and_batches_can_be_repeated(pipe):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all=("weight >= 0", out), gone=("weight = 1", "no-such-topic"))
    pipe.broker.produce(pipe.name, cars(9))
    pipe.run_killed()
    assert len(pipe.sent(out)) == 9
    record = (pipe.world.output / "_job.json").read_json()
    assert record["tokens"] in pipe.broker.topics() and record["tokens_id"]
    # The next driver is on another machine: it has no copy of the checkpoint.
    pipe.broker.produce(pipe.name, cars(6, first=9))
    reports = pipe.run(max_offsets=6)
    assert [(one.batch, one.counts.sent, one.counts.refused) for one in reports] == [(0, 9, 1), (1, 6, 0)]
    sent = pipe.sent(out)
    assert len(sent) == 15 and set(sent.values()) == {1}
    assert (status(pipe.world.output).planned, audit(pipe.world.output).findings) == ((), [])
    written = (pipe.world.output / "_job.json").read_json()
    unbound = {name: value for name, value in written.items() if name != "system"}
    (pipe.world.output / "_job.json").put_json(unbound)
    again = rerun(pipe.spark, pipe.job(max_offsets=6), pipe.world.root / "again")
    assert [(one.batch, one.held) for one in again] == [(0, True), (1, True)]
    assert (pipe.world.output / "_job.json").read_json() == unbound, "a rerun only reads"
    (pipe.world.output / "_job.json").put_json(written)
    assert pipe.sent(out) == sent
    pipe.publish(2, all=("weight >= 0", out), gone=("weight = 1", out))
    make_request(pipe.world.output, ReplayFilterSpec(reasons=("unknown-topic",)))
    (replayed,) = pipe.run()
    assert (replayed.kind, replayed.counts.sent, replayed.counts.refused) == ("replay", 1, 0)
    assert pipe.sent(out) - sent == Counter([f"{pipe.name}/1/0/gone"])
    assert audit(pipe.world.output).findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("come_as", ["records", "files"])
def test_a_batch_waits_for_three_round_trips(pipe, s3, tmp_path, monkeypatch, come_as):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all=("weight >= 0", out))
    if come_as == "records":
        pipe.broker.produce(pipe.name, cars(18))
        options = {"max_offsets": 3}
    else:
        line = json.dumps({"properties": {"weight": {"type": "int", "value": 1}}}) + "\n"
        for number in range(6):
            pipe.world.drop_bytes(f"{number}.jsonl", 3 * line.encode())
        options = {"input": pipe.world.input, "kafka": pipe.cluster, "max_files": 1}
    # As in a real job: here what is published is the newest revision at once, for a request more.
    monkeypatch.setattr(pins, "_OLD_SECONDS", 5.0)
    log, switch, reports = tmp_path / "log", tmp_path / "switch", []
    note = slow_after_first(switch, last=5)
    with faulty_proxy(s3, log, switch=switch) as slow, store_at(slow).client():
        for_workers(pipe.spark, monkeypatch, store_at(slow).environment)
        pipe.start(lambda report: (reports.append(report), note(report)), **options).wait()
    assert [one.counts.sent for one in reports] == 6 * [3]
    requests = requests_in(log)
    for within in between_commits(requests, range(1, 6)):
        assert waited_for(within) == 3, within
    # By the clock as well; a machine that is busy takes longer for some.
    assert min(answers_between_commits(requests, range(1, 6))) == 3


class Command:
    """The command of a job of a pipe, as a user runs it, and what came out."""

    def __init__(self, pipe, folder):
        self.pipe = pipe
        self.out = pipe.broker.create(pipe.name + "-out", 2)
        pipe.publish(1, all=("weight >= 0", self.out))
        self.log = folder / "log"
        self.config = folder / "kafka.properties"
        self.config.write_text("transaction.timeout.ms=5000\n")
        self.sent = 0

    def produce(self, count):
        self.pipe.broker.produce(self.pipe.name, cars(count, first=self.sent))
        self.sent += count

    def start(self, *options):
        root, broker = self.pipe.world.root, self.pipe.broker
        given = [f"--snapshots={root / 'snapshots'}", f"--output={root / 'out'}"]
        given += ["--kafka-servers", broker.address, "--kafka-config", self.config]
        given += ["--kafka-topics", self.pipe.name, "--bind", "weight:int"]
        given += ["--max-offsets-per-trigger", "3", "--trigger-seconds", "0", "--cores", "2", *options]
        run = command(*given) | {"stderr": self.log.open("ab"), "stdout": subprocess.DEVNULL}
        return subprocess.Popen(**run, start_new_session=True)

    def started(self):
        return (self.pipe.world.root / "out" / "_job.json").exists()

    def committed(self):
        return len(Commits(Location.of(f"{self.pipe.world.root}/out")).batches()) if self.started() else 0

    def wait_for(self, job, done):
        """Wait until something is so; the job must still run then."""
        wait_until(lambda: job.poll() is not None or done(), 300, "batches")
        assert job.poll() is None, self.log.read_text()

    def finish(self):
        """Let it route what is left, and hold what came out against what was sent."""
        job = self.start("--available-now")
        assert job.wait(600) == 0, self.log.read_text()
        self.check()

    def check(self):
        found = self.pipe.sent(self.out)
        assert len(found) == self.sent and set(found.values()) == {1}
        delivered = self.pipe.delivered()
        assert sum(delivered.values()) == self.sent and set(delivered.values()) == {1}
        assert audit(self.pipe.world.output).findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("world", ["s3", "hdfs"], indirect=True)
def test_a_job_that_is_killed_goes_on_on_another_machine_and_sends_each_record_once(pipe, tmp_path):
    job = Command(pipe, tmp_path)
    for number in range(3):
        job.produce(30)
        wanted = job.committed() + 2 + number
        run = job.start()
        job.wait_for(run, lambda wanted=wanted: job.committed() >= wanted)
        kill(run)
    job.finish()


@pytest.mark.nightly
@pytest.mark.parametrize("stopped", range(3))
def test_a_driver_that_stands_still_for_longer_than_its_transactions_commits_nothing_when_it_wakes_up(
    pipe, tmp_path, stopped
):
    job = Command(pipe, tmp_path)
    job.produce(60)
    first = job.start()
    job.wait_for(first, lambda: job.committed() >= 1 + stopped)
    pins = pipe.world.root / "out" / "pins"
    job.wait_for(first, lambda: sum(one.stem.isdigit() for one in pins.files()) > job.committed())
    os.killpg(first.pid, signal.SIGSTOP)
    try:
        job.finish()  # the second driver takes over, and all transactions of the first have ended
        job.produce(30)
    finally:
        os.killpg(first.pid, signal.SIGCONT)
    assert first.wait(300) == 4, job.log.read_text()
    assert "another process has taken over the output folder" in job.log.read_text()
    job.finish()
