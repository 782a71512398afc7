"""Kafka goes away, or is another one; a job meets what it must not go on with: each is one sentence."""

import threading
from collections import Counter

import pytest

from selectroute.spark import JobError
from selectroute.spark.audit.audit import audit
from selectroute.spark.cluster import KafkaCluster
from selectroute.spark.sources.checkpoint import SourceError
from selectroute.spark.stream.fan_out import StreamError
from tests.spark.kafka_world import cars, headers_of, refuse_after_plan
from tests.spark.storages import ON_EVERY_STORAGE
from tests.support.components import KAFKA, after_first

pytestmark = [pytest.mark.spark, *KAFKA]


def one_sentence(error):
    text = str(error.value)
    assert text and "\n" not in text and "Traceback" not in text and len(text) < 600, text
    return text


@ON_EVERY_STORAGE
def test_topics_to_which_nothing_can_be_delivered_cost_their_own_deliveries_only(pipe):
    out = pipe.broker.create(pipe.name + "-out")
    own = {"own": ("weight < 2", pipe.name), "listed": ("weight < 2", f"{pipe.name}?grouping=message")}
    pipe.publish(1, gone=("", "no-such-topic"), good=("", out), **own)
    pipe.broker.produce(pipe.name, cars(6))
    warnings = []
    (report,) = pipe.run(on_warning=warnings.append)
    assert (report.counts.sent, report.counts.refused, report.counts.dead_lettered) == (6, 10, 0)
    assert len(pipe.broker.records(out)) == 6
    reasons = Counter((row["reason"], row["subscription"]) for row in pipe.world.rows("dead-letters"))
    assert reasons == {("unknown-topic", "gone"): 6, ("input-topic", "own"): 2, ("input-topic", "listed"): 2}
    assert len(warnings) == 2 and audit(pipe.world.output).findings == []
    assert any(one.startswith("1 subscription delivers to kafka:no-such-topic") for one in warnings)
    assert any(
        one.startswith("2 subscriptions deliver") and "the job reads this topic" in one for one in warnings
    )


@pytest.mark.nightly
def test_a_topic_that_takes_less_after_the_batch_is_planned_costs_its_own_deliveries_only(pipe, monkeypatch):
    out, short = (pipe.broker.create(f"{pipe.name}-{one}") for one in ("out", "short"))
    pipe.publish(1, good=("", out), short=("", short))
    pipe.broker.produce(pipe.name, cars(60))
    refuse_after_plan(monkeypatch, pipe.broker, short, 100)
    warnings = []
    (report,) = pipe.run(destination_wait=0.0, on_warning=warnings.append)
    assert (report.counts.sent, report.counts.refused) == (60, 60)
    assert len({headers_of(one)["selectroute-delivery-id"] for one in pipe.broker.records(out)}) == 60
    assert not any(one.headers() for one in pipe.broker.records(short))
    rows = pipe.world.rows("dead-letters")
    assert Counter((row["reason"], row["subscription"]) for row in rows) == {
        ("destination-refused", "short"): 60
    }
    assert audit(pipe.world.output).findings == []
    (warning,) = warnings
    assert short in warning and "become dead letters" in warning


@ON_EVERY_STORAGE
def test_a_topic_that_refuses_for_a_while_is_waited_for_and_gets_each_delivery_once(pipe, monkeypatch):
    out, short = (pipe.broker.create(f"{pipe.name}-{one}") for one in ("out", "short"))
    pipe.publish(1, good=("", out), short=("", short))
    pipe.broker.produce(pipe.name, cars(60))
    refuse_after_plan(monkeypatch, pipe.broker, short, 100)
    warnings = []

    def warned(sentence):
        if not warnings:  # the other topic had all of its own before this one was waited for
            assert len(pipe.broker.records(out)) == 60
        warnings.append(sentence)
        pipe.broker.configure(short, "max.message.bytes", "1000000")

    (report,) = pipe.run(on_warning=warned)
    assert (report.counts.sent, report.counts.refused) == (120, 0)
    for topic in (out, short):
        ids = Counter(
            headers_of(one)["selectroute-delivery-id"] for one in pipe.broker.records(topic) if one.headers()
        )
        assert len(ids) == 60 and set(ids.values()) == {1}
    assert "its deliveries wait" in warnings[0] and "accepts messages again" in warnings[-1]
    assert audit(pipe.world.output).findings == []


def test_a_topic_that_is_read_and_delivered_to_is_refused_before_the_stream_starts(pipe):
    pipe.publish(1, all=("", pipe.name))
    for read in ({}, {"pattern": f"{pipe.name[:-2]}.*"}):
        with pytest.raises(JobError, match=f"{pipe.name}, which the job reads") as error:
            pipe.run(missing_destinations="fail", **read)
        one_sentence(error)


def test_a_setting_that_no_producer_takes_is_one_sentence():
    with pytest.raises(SourceError, match=r"max\.request\.size") as error:
        KafkaCluster("host:9092", {"kafka.max.request.size": "many"})
    one_sentence(error)


@pytest.mark.parametrize("file", after_first(pytest.mark.nightly, "offsets/1", "sources/0/0"))
@pytest.mark.parametrize("damage", after_first(pytest.mark.nightly, b"v1\n{", b"", b"\xff" * 40))
def test_a_damaged_checkpoint_stops_the_job_and_delivers_nothing_wrong(pipe, file, damage):
    pipe.publish(1, all="")
    pipe.broker.produce(pipe.name, cars(3))
    pipe.run()
    pipe.broker.produce(pipe.name, cars(3, first=3))
    pipe.run()
    path = pipe.world.output / "_checkpoint" / file
    path.write_bytes(damage)
    pipe.broker.produce(pipe.name, cars(3, first=6))
    try:
        pipe.run()
    except (SourceError, StreamError) as error:
        assert "\n" not in str(error)
    delivered = pipe.delivered()
    assert set(delivered.values()) == {1} and len(delivered) in (6, 9)
    assert file == "sources/0/0" or len(delivered) == 6


def test_records_that_kafka_dropped_before_they_were_read_end_the_job(pipe):
    pipe.publish(1, all="")
    pipe.broker.produce(pipe.name, cars(6))
    pipe.run()
    pipe.broker.produce(pipe.name, cars(9, first=6))
    pipe.broker.drop(pipe.name, 1, before=4)
    with pytest.raises(StreamError) as error:
        pipe.run()
    one_sentence(error)
    assert sum(pipe.delivered().values()) == 6
    assert audit(pipe.world.output).findings == []


@ON_EVERY_STORAGE
def test_a_broker_that_is_stopped_and_started_while_batches_run_loses_and_repeats_nothing(pipe):
    out = pipe.to_topic(60)
    stopped, reports = threading.Event(), []

    def stop_once(report):
        reports.append(report)
        if len(reports) == 2:
            pipe.broker.stop()
            threading.Timer(1, lambda: (pipe.broker.start(), stopped.set())).start()

    pipe.start(stop_once, max_offsets=12).wait()
    assert stopped.wait(600)
    assert sum(report.counts.messages for report in reports) == 60
    assert len(pipe.delivered()) == 60 and set(pipe.delivered().values()) == {1}
    sent = pipe.sent(out)
    assert len(sent) == 60 and set(sent.values()) == {1}
    assert audit(pipe.world.output).findings == []
