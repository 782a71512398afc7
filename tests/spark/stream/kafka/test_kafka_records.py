"""Records of Kafka that are no messages, hardly any, or not there: each is one dead letter, or counted."""

import pytest

from selectroute.spark.audit.audit import audit
from selectroute.spark.cluster import KafkaCluster
from selectroute.testing.broker import LARGEST_MESSAGE
from tests.spark.kafka_world import cars
from tests.support.components import KAFKA

pytestmark = [pytest.mark.spark, *KAFKA]


def test_what_is_no_message_is_a_dead_letter_with_key_value_and_headers_as_they_came(pipe):
    pipe.publish(1, heavy="weight > 5", odd="b IS NULL")
    many = [(f"h{n}", b"\xff\xfe") for n in range(1_000)]
    bad = [
        (0, b"\xff", b"\x00", [("weight", b"x"), ("weight", None), *many]),
        (1, None, None, [*many, ("weight", b"7 ")]),
    ]
    pipe.broker.produce(pipe.name, [*bad, *cars(3)])
    (report,) = pipe.run()
    assert (report.counts.messages, report.counts.dead_lettered, report.counts.routed) == (5, 2, 3)
    rows = {row["partition"]: row for row in pipe.world.rows("dead-letters")}
    assert {(row["source"], row["offset"], row["revision"]) for row in rows.values()} == {(pipe.name, 0, 1)}
    for partition, key, value, headers in bad:
        row = rows[partition]
        assert (row["key"], row["raw"]) == (key, value)
        assert [(one["key"], one["value"]) for one in row["headers"]] == headers
    assert {(row["stage"], row["reason"]) for row in rows.values()} == {("read", "too-many-headers")}
    assert audit(pipe.world.output).findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("most", [None, LARGEST_MESSAGE])
def test_a_record_of_a_hundred_megabytes_is_judged_or_a_dead_letter(pipe, most):
    large = b"x" * 100_000_000
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all=("weight >= 0", out))
    records = [*cars(3), (1, b"large", large, [("weight", b"1")]), *cars(3)]
    pipe.broker.produce(pipe.name, records)
    options = {} if most is None else {"max_message_bytes": most}
    clients = {"kafka.max.request.size": str(LARGEST_MESSAGE)}
    (report,) = pipe.run(cluster=KafkaCluster(pipe.broker.address, clients), **options)
    assert (report.counts.messages, report.counts.sent) == (7, 6 if most is None else 7)
    sent = {record.key(): record.value() for record in pipe.broker.records(out)}
    if most is None:
        (row,) = pipe.world.rows("dead-letters")
        assert (row["reason"], row["partition"], row["offset"]) == ("too-large", 1, 1)
        assert row["raw"] == large[: len(row["raw"])] and len(row["raw"]) == 1 << 16
        assert b"large" not in sent
    else:
        assert sent[b"large"] == large


def test_what_transactions_leave_between_records_is_counted_and_nothing_is_missed(pipe):
    from confluent_kafka import Producer

    pipe.publish(1, all="weight >= 0")
    producer = Producer({"bootstrap.servers": pipe.broker.address, "transactional.id": pipe.name})
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        for partition, key, value, headers in cars(6):
            producer.produce(pipe.name, value, key, partition, headers=headers)
        assert producer.flush(60) == 0  # what is aborted has been written, too
        (producer.commit_transaction if commits else producer.abort_transaction)()
    # The next one of this name is told when the marks of the last transaction are written.
    Producer({"bootstrap.servers": pipe.broker.address, "transactional.id": pipe.name}).init_transactions()
    committed = KafkaCluster(pipe.broker.address, {"kafka.isolation.level": "read_committed"})
    reports = pipe.run(cluster=committed, max_offsets=7)
    assert sum(one.counts.messages for one in reports) == 12
    found = audit(pipe.world.output)
    assert found.findings == [] and found.counts.messages == 12
    # A mark in each partition for each transaction, and the six records that were taken back.
    assert found.gaps == 3 * 3 + 6
    assert sum(pipe.delivered().values()) == 12 and set(pipe.delivered().values()) == {1}


def test_a_topic_that_appears_later_is_read_from_its_beginning(pipe):
    pipe.publish(1, all="weight >= 0")
    pipe.broker.produce(pipe.name, cars(3))
    pattern = f"{pipe.name}.*"
    pipe.run(pattern=pattern, starting="latest")
    later = pipe.broker.create(pipe.name + "-later", 3)
    pipe.broker.produce(later, cars(6))
    pipe.run(pattern=pattern, starting="latest")
    assert {row["source"] for row in pipe.world.rows("deliveries")} == {later}
    assert sum(pipe.delivered().values()) == 6
    assert audit(pipe.world.output).findings == []
