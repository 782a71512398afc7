"""A topic is not its name: what was created again, or lost records, is never taken for what it was."""

import pytest

from selectroute.kafka.errors import KafkaClientError
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.audit.audit import audit
from selectroute.spark.cluster import KafkaCluster
from selectroute.storage import Location
from tests.spark.kafka_world import cars
from tests.spark.stream.kafka.test_kafka import shown
from tests.support.components import KAFKA, after_first

pytestmark = [pytest.mark.spark, *KAFKA]


def findings(pipe):
    return [one.sentence for one in audit(pipe.world.output, kafka=pipe.cluster).findings]


def again(pipe, topic, partitions=3):
    pipe.broker.delete(topic)
    return pipe.broker.create(topic, partitions)


def reading(pipe):
    return KafkaCluster(pipe.broker.address, recreated="read")


@pytest.mark.parametrize("count, partitions", after_first(pytest.mark.nightly, (8, 3), (4, 3), (2, 5)))
def test_a_topic_that_was_created_again_is_named_and_read_from_its_beginning_if_asked(
    pipe, monkeypatch, capsys, count, partitions
):
    out = pipe.broker.create(pipe.name + "-out")
    pipe.publish(1, heavy=("weight >= 0", out))
    pipe.broker.produce(pipe.name, cars(4))
    pipe.run()
    assert findings(pipe) == []
    again(pipe, pipe.name, partitions)
    pipe.broker.produce(pipe.name, cars(count, first=100))
    with pytest.raises(SelectRouteError, match="was created again") as error:
        pipe.run()
    assert pipe.name in str(error.value) and "--kafka-recreated read" in str(error.value)
    (finding,) = findings(pipe)
    assert f"the topic {pipe.name} was created again" in finding
    servers = ("--kafka-servers", pipe.broker.address)
    code, text, _ = shown(pipe, monkeypatch, capsys, *servers)
    assert code == 0 and text.count("is no longer in Kafka") == 4 and "body 10" not in text

    warnings = []
    (report,) = pipe.run(cluster=reading(pipe), on_warning=warnings.append)
    assert report.counts.sent == count
    assert [one for one in warnings if f"{pipe.name}@2 in the output" in one]
    ids = pipe.sent(out)
    assert len(ids) == 4 + count and sum(f"{pipe.name}@2/" in id for id in ids) == count
    (finding,) = findings(pipe)
    assert finding.startswith(f"it begins the topic {pipe.name} anew, as {pipe.name}@2")
    place = ("--source", f"{pipe.name}@2", "--partition", "1", "--offset", "0")
    code, text, err = shown(pipe, monkeypatch, capsys, *servers, *place, verb="explain")
    assert code == 0 and "weight is int 10" in text, err
    place = ("--source", pipe.name, "--partition", "1", "--offset", "0")
    code, _, err = shown(pipe, monkeypatch, capsys, *servers, *place, verb="explain")
    assert code == 3 and "is no longer in Kafka" in err
    pipe.broker.produce(pipe.name, cars(1, first=200))
    assert pipe.run(cluster=reading(pipe))[0].counts.messages == 1
    assert len(findings(pipe)) == 1


def test_a_topic_that_was_created_again_before_its_batch_was_read_is_named_too(pipe):
    pipe.publish(1, all="weight >= 0")
    pipe.broker.produce(pipe.name, cars(6))
    pipe.run_killed()
    again(pipe, pipe.name)
    pipe.broker.produce(pipe.name, cars(3, first=100))
    with pytest.raises(SelectRouteError, match=f"the topic {pipe.name} was created again"):
        pipe.run()
    reports = pipe.run(cluster=reading(pipe))
    assert [one.counts.messages for one in reports] == [0, 3]
    assert len(findings(pipe)) == 1


def test_a_topic_of_deliveries_that_was_created_again_is_named_and_delivered_to_if_asked(pipe):
    out = pipe.to_topic(6)
    first = pipe.start(lambda _: None)
    first.wait()
    again(pipe, out, 1)
    pipe.broker.produce(pipe.name, cars(3, first=6))
    with pytest.raises(KafkaClientError, match=f"the topic {out}, to which subscriptions are delivered"):
        pipe.run()
    assert any(f"the topic {out}, which the job writes, was created again" in one for one in findings(pipe))
    (report,) = pipe.run(cluster=reading(pipe))
    assert report.counts.sent == 3 and len(pipe.broker.records(out)) == 3
    (finding,) = findings(pipe)
    assert f"the topic {out} was created again, 1 time" in finding


def test_a_topic_of_deliveries_that_is_created_again_while_the_job_runs_is_named(pipe):
    out = pipe.to_topic(6)

    def recreate(report):
        if report.batch == 0:
            again(pipe, out, 2)

    with pytest.raises(SelectRouteError, match=f"the topic {out} was created again"):
        pipe.start(recreate, max_offsets=3).wait()
    assert not pipe.broker.records(out)


@pytest.mark.parametrize("while_down", after_first(pytest.mark.nightly, True, False))
def test_a_topic_of_tokens_that_was_created_again_between_batches_is_named(pipe, while_down):
    out = pipe.to_topic(6)

    def recreate(_=None):
        tokens = Location.of(pipe.world.output / "_job.json").read_json()["tokens"]
        pipe.broker.delete(tokens)
        pipe.broker.create(tokens, 16, cleanup_policy="compact")

    if while_down:
        pipe.run()
        recreate()
        pipe.broker.produce(pipe.name, cars(3, first=6))
        assert len(findings(pipe)) == 1
    with pytest.raises(SelectRouteError, match="commit tokens was created again"):
        pipe.start(lambda report: None if while_down else recreate(), max_offsets=3).wait()
    if not while_down:  # a batch has begun: what of it was sent is not known
        with pytest.raises(KafkaClientError, match="is gone, so it is not known"):
            pipe.run(cluster=reading(pipe))
        return
    pipe.run(cluster=reading(pipe))
    ids = pipe.sent(out)
    assert set(ids.values()) == {1} and len(ids) == 9
    assert findings(pipe) == []


@pytest.mark.parametrize("later", after_first(pytest.mark.nightly, "topic", "partition"))
def test_a_partition_that_is_met_later_begins_where_its_records_do(pipe, later):
    pipe.publish(1, all="")
    pipe.broker.produce(pipe.name, cars(3))
    pattern = f"{pipe.name}.*"
    pipe.run(pattern=pattern)
    topic, partition = pipe.name, 3
    if later == "topic":
        topic, partition = pipe.broker.create(pipe.name + "-later", 3), 0
    else:
        pipe.broker.widen(pipe.name, 4)
    pipe.broker.produce(topic, [(partition, None, b"x", [("weight", b"1")])] * 5)
    pipe.broker.drop(topic, partition, before=2)
    warnings = []
    (report,) = pipe.run(pattern=pattern, on_warning=warnings.append)
    assert report.counts.messages == 3
    (warning,) = warnings
    assert f"{topic}/{partition}, which is new, begins at offset 2: 2 records before it" in warning
    pipe.broker.produce(topic, [(partition, None, b"x", [("weight", b"1")])])
    assert [one.counts.messages for one in pipe.run(pattern=pattern)] == [1]
    found = audit(pipe.world.output, kafka=pipe.cluster)
    assert (found.findings, found.skipped, found.gaps) == ([], 2, 0)
