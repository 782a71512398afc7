"""What of a message goes to a queue, to which, and what becomes of deliveries that no queue can take."""

from collections import Counter

import pyarrow as pa
import pytest

import selectroute as sr

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.storage import Location
from tests.spark.queue_world import A, B, delivery_ids, numbered
from tests.spark.storages import ON_EVERY_STORAGE


@ON_EVERY_STORAGE
def test_deliveries_go_to_the_queues_that_subscriptions_name(queues):
    queues.create("A", "B")
    queues.publish(7, a=("n < 4", A), b=("n > 2", B), also=("n = 3", A), none=("n = 0 OR n = 1", None))
    report = queues.router().route(0, [queues.world.drop_json("a.jsonl", *numbered(6))], "q")
    assert (report.counts.deliveries, report.counts.queued, report.counts.refused) == (10, 8, 0)
    assert queues.ids("A") == delivery_ids("a.jsonl", "a", range(4)) + delivery_ids("a.jsonl", "also", [3])
    assert queues.ids("B") == delivery_ids("a.jsonl", "b", [3, 4, 5])
    assert len(queues.world.deliveries()) == 10, "every delivery is recorded, whatever its destination"
    (line,) = queues.world.accounting()
    assert line["queued"] == 8
    assert Location.of(queues.world.output / "_staging").folders() == []


@ON_EVERY_STORAGE
def test_a_message_is_on_the_queue_with_all_that_it_had(queues):
    queues.create("A")
    queues.publish(7, all=("", A))
    message = {
        "headers": {
            **{"JMSMessageID": "ID:" + "0a" * 24, "JMSCorrelationID": "order-1", "JMSType": "car"},
            **{"JMSPriority": 9, "JMSDeliveryMode": "PERSISTENT", "JMSTimestamp": 1_000},
            "JMSReplyTo": "queue:///R",
        },
        "properties": {
            **{"weight": {"type": "int", "value": 3000}, "JMSXGroupID": "g"},
            **{"JMSXGroupSeq": {"type": "int", "value": 2}, "gone": None},
        },
        "topic": "cars/eu",
        "body": {"type": "bytes", "value": "00ff"},
    }
    queues.router().route(0, [queues.world.drop_json("a b/é.jsonl", message)], "q")
    (got,) = queues.get_all("A")
    descriptor = got.descriptor
    assert got.body == b"\x00\xff"
    assert (descriptor.msg_id, descriptor.correl_id) == (b"\x0a" * 24, b"order-1".ljust(24, b"\0"))
    assert (descriptor.group_id, descriptor.msg_seq_number) == (b"g".ljust(24, b"\0"), 2)
    assert (descriptor.priority, descriptor.persistence, descriptor.timestamp) == (9, True, 1_000)
    assert (descriptor.expiry, descriptor.expiration, descriptor.backout_count) == (-1, 0, 0)
    assert dict(got.properties) == {
        **{"JMSCorrelationID": "order-1", "JMSType": "car", "JMSReplyTo": "queue:///R", "JMSXGroupID": "g"},
        **{"weight": sr.Int(3000), "selectroute_topic": "cars/eu", "selectroute_subscription": "all"},
        **{"selectroute_delivery_id": "a b/é.jsonl/0/0/all", "selectroute_revision": sr.Long(7)},
    }


@ON_EVERY_STORAGE
def test_parquet_goes_to_queues_with_every_column(sqlite):
    sqlite.create("A")
    sqlite.publish(1, heavy=("weight > 5", A))
    table = pa.table(
        {
            "weight": pa.array(range(10), pa.int16()),
            "color": [None if n == 7 else f"c{n}" for n in range(10)],
            "a": [{"b": float(n)} for n in range(10)],
            "@topic": ["t"] * 10,
            "@id": ["ID:" + f"{n:02}" * 24 if n != 8 else "own" for n in range(10)],
            "@body": [b"x" * n for n in range(10)],
            "@offset": range(10),
        }
    )
    sqlite.router().route(0, [sqlite.world.drop_parquet("a.parquet", table, row_group_size=3)], "q")
    got = sqlite.get_all("A")
    assert [one.body for one in got] == [b"x" * n for n in range(6, 10)]
    assert [one.properties["weight"] for one in got] == [sr.Short(n) for n in range(6, 10)]
    assert [one.properties.get("color") for one in got] == ["c6", None, "c8", "c9"]
    assert [one.properties["a.b"] for one in got] == [sr.Double(float(n)) for n in range(6, 10)]
    assert got[0].descriptor.msg_id == b"\x06" * 24
    assert got[2].properties["selectroute_message_id"] == "own"
    own = {f"selectroute_{name}" for name in ("topic", "subscription", "delivery_id", "revision")}
    assert set(got[0].properties) == {"weight", "color", "a.b"} | own


@ON_EVERY_STORAGE
def test_a_message_of_which_every_delivery_is_refused_is_unrouted(sqlite):
    sqlite.create("B")
    sqlite.publish(1, a=("", A))
    report = sqlite.router().route(0, [sqlite.world.drop_json("a.jsonl", *numbered(2))], "q")
    assert (report.counts.unrouted, report.counts.routed, report.counts.refused) == (2, 0, 2)
    assert len(sqlite.world.rows("unrouted")) == 2 and not sqlite.world.deliveries()
    # Another start, of a job without queues.
    report = sqlite.world.router().route(1, [sqlite.world.drop_json("b.jsonl", *numbered(1))], "q")
    (dead,) = [row for row in sqlite.world.rows("dead-letters") if row["batch"] == 1]
    assert report.counts.refused == 1 and "--queues" in dead["message"]


@ON_EVERY_STORAGE
def test_what_no_queue_can_hold_is_a_dead_letter_of_the_delivery_alone(sqlite):
    sqlite.create("A", max_message_length=10)
    sqlite.create("B")
    sqlite.publish(1, a=("", A), b=("n < 9", B), files=("", None))
    messages = [
        {"properties": {"n": 1}, "body": "x" * 11},
        {"properties": {"n": 2, "Root.MQMD.MsgId": {"type": "bytes", "value": "00ff"}}},
        {"properties": {"n": 3, "JMSXGroupSeq": 0}},
        {"properties": {"n": 4} | {f"p{n}": n for n in range(998)}},
        {"properties": {"n": 5}, "body": "short"},
        {"properties": {"n": 6, "jms.Pri": {"type": "int", "value": 12}}},
    ]
    report = sqlite.router().route(0, [sqlite.world.drop_json("a.jsonl", *messages)], "q")
    assert report.counts.routed == 6 and report.counts.refused == 9 and report.counts.queued == 3
    dead = {(row["offset"], row["subscription"], row["reason"]) for row in sqlite.world.rows("dead-letters")}
    assert dead == {(0, "a", "too-large")} | {
        (offset, subscription, "not-for-queues") for offset in (1, 2, 3, 5) for subscription in "ab"
    }
    said = {row["offset"]: row["message"] for row in sqlite.world.rows("dead-letters")}
    assert "2206" in said[1] and "2250" in said[2] and "2478" in said[3]
    assert sqlite.ids("A") == {"a.jsonl/0/4/a": 1}
    assert sqlite.ids("B") == {"a.jsonl/0/0/b": 1, "a.jsonl/0/4/b": 1}


@ON_EVERY_STORAGE
def test_a_column_that_is_no_property_is_a_dead_letter_of_deliveries_to_queues(sqlite):
    sqlite.create("A")
    sqlite.publish(1, a=("x = 1", A), files=("x = 1", None))
    table = pa.table({"x": [1, 2], "when": pa.array([1, 2], pa.timestamp("ms"))})
    report = sqlite.router().route(0, [sqlite.world.drop_parquet("a.parquet", table)], "q")
    assert (report.counts.deliveries, report.counts.refused, report.counts.routed) == (1, 1, 1)
    (dead,) = sqlite.world.rows("dead-letters")
    assert (dead["reason"], dead["subscription"]) == ("not-for-queues", "a") and "when" in dead["message"]


@ON_EVERY_STORAGE
def test_what_expires_has_its_time_on_the_queue_and_what_has_expired_is_never_got(sqlite):
    sqlite.create("A")
    sqlite.publish(1, all=("", A))
    times = [4_000_000_000_000, 1_000, 0]
    messages = [{"headers": {"JMSExpiration": time}} for time in times]
    report = sqlite.router().route(0, [sqlite.world.drop_json("a.jsonl", *messages)], "q")
    assert report.counts.queued == 3
    assert [one.descriptor.expiration for one in sqlite.get_all("A")] == [4_000_000_000_000, 0]


@ON_EVERY_STORAGE
def test_messages_of_many_blocks_and_tasks_keep_their_own_bodies(sqlite, monkeypatch):
    monkeypatch.setattr("selectroute.spark.destinations.queues.writer.QueueMessages.block", lambda *_: 7)
    monkeypatch.setattr("selectroute.spark.sources.files.splits._SMALLEST_SPLIT", 1_000)
    sqlite.create("A")
    sqlite.publish(1, all=("", A), even=("n / 2 * 2 = n", A))
    path = sqlite.world.drop_json("a.jsonl", *numbered(300))
    assert sqlite.router(tasks=3).route(0, [path], "q").counts.queued == 450
    got = sqlite.get_all("A")
    assert len(got) == 450
    assert all(one.body.decode() == f"body {one.properties['n'].value}" for one in got)
    assert Counter(one.properties["n"].value for one in got) == Counter({n: 2 - n % 2 for n in range(300)})
