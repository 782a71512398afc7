"""Batches of Kafka's records that come again, whole or in part, against another registry: nothing changes."""

import hashlib
from collections import Counter

import pytest

from selectroute.spark.audit.audit import audit
from selectroute.spark.tables.schemas import SINKS
from selectroute.storage import Location
from tests.spark.kafka_world import cars, headers_of
from tests.spark.registry_log import Log, committed, delivered
from tests.support.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


def tree(folder):
    """Every published file, by its name, with its digest."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for sink in SINKS
        for path in sorted((folder / sink).rglob("*.parquet"))
    }


def forget(folder, batch):
    """Take a batch from Spark's log of those that are done."""
    (folder / "_checkpoint" / "commits" / str(batch)).unlink()


@pytest.mark.parametrize("widened", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_what_was_sent_and_not_committed_is_not_sent_again(pipe, widened):
    out = pipe.broker.create(pipe.name + "-out", 3)
    pipe.publish(1, all=("weight >= 0", out), some=("weight > 5", f"{out}?grouping=message"))
    keyless = [(partition, None, value, headers) for partition, _, value, headers in cars(12)]
    pipe.broker.produce(pipe.name, [*cars(12), *keyless])
    pipe.run_killed()
    before = sent(pipe, out)
    assert len(before) == 24 + 12 and not pipe.world.rows("deliveries")
    if widened:
        pipe.broker.widen(out, 7)
    pipe.publish(2, other=("weight >= 0", out))
    (report,) = pipe.run()
    assert (report.revision, report.counts.sent) == (1, len(before))
    assert sent(pipe, out) == before
    assert {partition for partition, key in before.values() if key is None} == {0, 1, 2}
    assert sum(pipe.delivered().values()) == len(before)
    assert not list((pipe.world.output / "pins").glob("*.plan.json"))


@pytest.mark.nightly
def test_grouped_records_that_are_too_large_are_refused_by_a_repeat_too(pipe):
    small = pipe.broker.create(pipe.name + "-small", 1, max_message_bytes="1500")
    many = {f"{'long-name-' * 10}{n}": ("weight = 5", small) for n in range(9)}
    pipe.publish(1, all=("weight < 5", small), **many)
    pipe.broker.produce(pipe.name, cars(9))
    pipe.run_killed(kafka_grouping="message")
    assert len(pipe.broker.records(small)) == 5
    (report,) = pipe.run(kafka_grouping="message")
    assert (report.counts.sent, report.counts.refused) == (5, 9)
    assert len(pipe.broker.records(small)) == 5
    assert audit(pipe.world.output).findings == []


def sent(pipe, topic):
    """Partition and key of each delivery on a topic, none of which is there twice."""
    found = {}
    for record in pipe.broker.records(topic):
        assert found.setdefault(headers_of(record)["selectroute-delivery-id"], record) is record
    return {id: (record.partition(), record.key()) for id, record in found.items()}


@pytest.mark.nightly
def test_a_batch_that_spark_forgot_comes_again_and_changes_no_byte(pipe):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, heavy=("weight > 7", out), light="weight < 3")
    pipe.broker.produce(pipe.name, [*cars(12), (0, None, b"v", [("weight", b"x")])])
    pipe.run()
    before, sent = tree(pipe.world.output), len(pipe.broker.records(out))
    forget(pipe.world.output, 0)
    pipe.publish(2, heavy="weight > 1", other="weight = 5")
    (report,) = pipe.run()
    assert report.skipped and report.revision == 1
    assert tree(pipe.world.output) == before
    assert len(pipe.broker.records(out)) == sent
    assert audit(pipe.world.output).findings == []


@pytest.mark.nightly
def test_a_batch_that_was_pinned_and_not_committed_is_routed_as_pinned(pipe):
    pipe.publish(1, heavy="weight > 7", light="weight < 3")
    pipe.broker.produce(pipe.name, [*cars(12), (0, None, b"v", [("weight", b"x")])])
    pipe.run()
    output = pipe.world.output
    before = {sink: pipe.world.rows(sink) for sink in SINKS}
    forget(output, 0)
    (output / "_commits" / "0.json").unlink()
    for path in [output / name for name in tree(output)]:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    pipe.publish(2, heavy="weight > 1", other="weight = 5")
    (report,) = pipe.run()
    assert not report.skipped and report.revision == 1
    # The rows in their order, and not the bytes: Arrow's encoder leaves what it does not need as it was.
    assert {sink: pipe.world.rows(sink) for sink in SINKS} == before
    pipe.broker.produce(pipe.name, cars(3, first=12))
    (report,) = pipe.run()
    assert report.revision == 2


def test_who_is_resumed_gets_the_records_that_he_missed(pipe):
    log = Log(pipe)
    log.add("some", "weight > 2")
    pipe.broker.produce(pipe.name, cars(6))
    pipe.run(registry=log)
    log.pause("some")
    pipe.broker.produce(pipe.name, cars(6, first=6))
    pipe.run(registry=log)
    pipe.broker.produce(pipe.name, cars(3, first=12))
    pipe.run(registry=log)
    pipe.broker.drop(pipe.name, 0, before=3)  # one of the six of batch 1
    log.resume("some")
    pipe.broker.produce(pipe.name, cars(3, first=15))
    reports = pipe.run(registry=log)
    backfills = [one for one in reports if one.batch < 0]
    assert sum(one.counts.deliveries for one in backfills) == 8
    (missing,) = [sentence for one in backfills for sentence in one.missing]
    assert "no longer kept by Kafka" in missing and f"{pipe.name}/0" in missing
    given = delivered(pipe.world)
    offsets = Counter((row["partition"], row["offset"]) for row in pipe.world.rows("deliveries"))
    assert set(offsets.values()) == {1}
    assert len(offsets) == 18 - 3 - 1
    assert {batch for batch, *_ in given} == {0, 3, *(one.batch for one in backfills)}
    assert committed(pipe.world, -1)["backfill"]["missing"][0]["batch"] == 1
    assert audit(pipe.world.output).findings == []


@pytest.mark.nightly
def test_a_backfill_goes_on_without_a_topic_that_was_deleted(pipe):
    other = pipe.broker.create(pipe.name + "-other", 3)
    options = {"topics": (pipe.name, other)}
    log = Log(pipe)
    log.add("some", "weight >= 0")
    log.pause("some")
    for topic in (pipe.name, other):
        pipe.broker.produce(topic, cars(3))
    pipe.run(registry=log, **options)
    source = pipe.start(lambda _: None, registry=log, **options)
    source.wait()
    commit = Location.of(pipe.world.output / "_commits" / "0.json").read_json()
    pipe.broker.delete(other)
    (found,) = source._source.reread([commit])
    assert {one.topic for one in found.inputs} == {pipe.name} and len(found.inputs) == 3
    assert len(found.gone) == 3 and all(one.startswith(other) for one in found.gone)
    pipe.broker.create(other, 3)
    (again,) = source._source.reread([commit])
    assert again.gone == found.gone, "a topic made anew has other records"
