"""A full batch is sent to Kafka while the next one is routed: order, failures and crashes in between."""

from __future__ import annotations

import threading

import pytest
from selectroute.spark.stream.background_publisher import PUBLISHER_THREAD

from selectroute.durable import disk
from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job.job import JobError
from selectroute.spark.senders.kafka import KafkaSender
from tests.spark.kafka_world import cars, headers_of
from tests.support.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


def batches_of(records):
    """The batches of records, each as often as it begins anew."""
    found = [int(headers_of(record)["selectroute-batch"].split("/")[1]) for record in records]
    return [batch for n, batch in enumerate(found) if n == 0 or found[n - 1] != batch]


@pytest.fixture
def flow(pipe, monkeypatch):
    """Two batches of records, of which none is sent before `go` is set."""
    pipe.out = pipe.broker.create(pipe.name + "-out")
    pipe.publish(1, all=("weight >= 0", pipe.out))
    pipe.broker.produce(pipe.name, cars(24))
    pipe.go = threading.Event()
    pipe.real = KafkaSender._write

    def waiting(self, *given):
        assert pipe.go.wait(600)
        pipe.real(self, *given)

    monkeypatch.setattr(KafkaSender, "_write", waiting)
    return pipe


def until(condition):
    """Wait for what another thread does."""
    never = threading.Event()
    for _ in range(6000):
        if condition():
            return
        never.wait(0.1)
    raise AssertionError


def test_the_next_batch_is_committed_while_one_is_sent_and_both_are_published_in_order(flow):
    reports, commits = [], Commits(flow.world.output)
    fan = flow.start(reports.append, max_offsets=12)
    until(lambda: commits.is_committed(1))
    assert reports == [] and flow.world.rows("deliveries") == []
    meanwhile = audit(flow.world.output)
    assert meanwhile.findings == [] and meanwhile.absent == []
    assert {0, 1} <= set(meanwhile.pending)
    assert fan.publishing
    flow.go.set()
    fan.wait()
    assert not fan.publishing
    assert [report.batch for report in reports] == [0, 1]
    assert set(reports[0].seconds) == {"pin", "plan", "match", "commit", "publish"}
    assert batches_of(flow.broker.records(flow.out)) == [0, 1]
    done = audit(flow.world.output)
    assert done.findings == [] and done.absent == [] and done.pending == []
    assert len(flow.delivered()) == 24 and set(flow.delivered().values()) == {1}


def test_only_what_has_more_behind_it_is_sent_beside_the_next_batch(flow, monkeypatch):
    threads = []

    def seen(self, *given):
        threads.append(threading.current_thread().name)
        flow.real(self, *given)

    monkeypatch.setattr(KafkaSender, "_write", seen)
    flow.broker.produce(flow.name, cars(6, first=24))
    flow.run(max_offsets=12)
    assert [name == PUBLISHER_THREAD for name in threads] == [True, True, False]
    assert batches_of(flow.broker.records(flow.out)) == [0, 1, 2]
    flow.broker.produce(flow.name, cars(6, first=30))
    flow.run()
    assert threads[3] != PUBLISHER_THREAD and len(flow.broker.records(flow.out)) == 36


def test_what_cannot_be_sent_ends_a_stream_that_waits_for_input_and_the_next_start_sends_it(
    flow, monkeypatch
):
    def refused(self, *_):
        raise JobError("no more of this")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaSender, "_write", refused)
        with pytest.raises(JobError, match="no more of this"):
            start_fanout(flow.spark, flow.job(max_offsets=24)).wait()
    assert flow.broker.records(flow.out) == [] and flow.world.rows("deliveries") == []
    flow.go.set()
    flow.run()
    assert len(flow.broker.records(flow.out)) == 24
    assert audit(flow.world.output).findings == []


def test_two_batches_that_are_committed_and_not_sent_are_sent_in_order_by_the_next_start(flow, monkeypatch):
    commits = Commits(flow.world.output)

    def refused(self, *_):
        until(lambda: commits.is_committed(1))
        raise JobError("no more of this")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaSender, "_write", refused)
        with pytest.raises(JobError):
            flow.run(max_offsets=12)
    # A folder that was half removed when the process died is none to go on with.
    left = flow.world.output / "_staging" / f"0-{'0' * 32}.done"
    disk.make_folder(left / "outgoing-kafka")
    flow.go.set()
    flow.run(max_offsets=12)
    assert batches_of(flow.broker.records(flow.out)) == [0, 1]
    assert not any((flow.world.output / "_staging").iterdir())
    assert len(flow.delivered()) == 24 and set(flow.delivered().values()) == {1}
    assert audit(flow.world.output).findings == []


def test_told_to_stop_it_sends_what_is_committed_first(flow):
    reports, commits = [], Commits(flow.world.output)
    fan = flow.start(reports.append, max_offsets=12)
    until(lambda: commits.is_committed(0))
    threading.Timer(0.5, flow.go.set).start()
    fan.stop(600)
    fan.wait()
    committed = commits.batches()
    assert [report.batch for report in reports] == committed
    assert len(flow.broker.records(flow.out)) == 12 * len(committed)
