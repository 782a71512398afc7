"""Kafka in and out: a real broker, and every record accounted for."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

import pytest

import selectroute as sr
from selectroute.cli import main
from selectroute.kafka.errors import KafkaClientError
from selectroute.selector.values import Int
from selectroute.spark import JobError
from selectroute.spark.audit.audit import audit
from selectroute.spark.replay.request import ReplayFilterSpec
from selectroute.storage import Location
from tests.spark.kafka_world import cars, headers_of
from tests.spark.queue_world import A
from tests.spark.storages import ON_EVERY_STORAGE
from tests.support.components import KAFKA, after_first
from tests.support.replays import make_request

pytestmark = [pytest.mark.spark, *KAFKA]


def test_records_are_routed_by_offset_and_accounted_for(pipe):
    pipe.publish(5, heavy="weight > 7", light="weight < 3")
    pipe.broker.produce(pipe.name, cars(10))
    (report,) = pipe.run()
    counts = report.counts
    assert (counts.messages, counts.routed, counts.unrouted, counts.deliveries) == (10, 5, 5, 5)
    assert report.topics == {pipe.name: 10}
    rows = pipe.world.rows("deliveries")
    assert {(row["source"], row["revision"]) for row in rows} == {(pipe.name, 5)}
    assert Counter((row["partition"], row["offset"], row["subscription"]) for row in rows) == Counter(
        (n % 3, n // 3, "heavy" if n > 7 else "light") for n in (0, 1, 2, 8, 9)
    )
    assert audit(pipe.world.output).findings == []
    names = {name for name in pipe.broker.topics() if name.startswith("selectroute-")}
    record = Location.of(pipe.world.output / "_job.json").read_json()
    assert "tokens" not in record and not any(record["id"] in name for name in names)


@pytest.mark.nightly
@ON_EVERY_STORAGE
def test_a_topic_of_tokens_is_made_when_it_is_needed_and_must_stay_while_a_batch_is_sent(pipe):
    out = pipe.broker.create(pipe.name + "-out", 2)
    pipe.publish(1, all="weight >= 0")
    pipe.broker.produce(pipe.name, cars(6))
    pipe.run()
    pipe.publish(2, all=("weight >= 0", out))
    pipe.broker.produce(pipe.name, cars(6))
    pipe.run_killed()
    tokens = Location.of(pipe.world.output / "_job.json").read_json()["tokens"]
    assert len(pipe.broker.records(out)) == 6 and tokens in pipe.broker.topics()
    pipe.broker.delete(tokens)
    with pytest.raises(KafkaClientError, match=f"the topic {tokens} with the job's commit tokens is gone"):
        pipe.run()
    assert len(pipe.broker.records(out)) == 6 and tokens not in pipe.broker.topics()


@pytest.mark.nightly
def test_a_sample_has_the_newest_records_of_the_partition_with_most(pipe):
    pipe.publish(1, all="weight >= 0")
    pipe.broker.produce(pipe.name, [*cars(9), *((1, *rest) for _, *rest in cars(4, 20))])
    with sr.Registry.open(f"sqlite:///{pipe.world.root}/registry.db") as registry:
        pipe.run(registry=registry, sample_messages=5)
        found = [one.message for one in registry.streams.recent_messages()]
        (batch,) = registry.streams.reports(pipe.query).batches
    assert batch["busiest"] == {"all": 13}
    assert [one["properties"]["weight"]["value"] for one in found] == [7, 20, 21, 22, 23]
    assert all(one["topic"] == pipe.name and "body" not in one for one in found)


@ON_EVERY_STORAGE
def test_deliveries_go_to_the_topics_of_their_subscriptions_with_key_body_and_headers(pipe):
    one, two = pipe.broker.create(pipe.name + "-1", 4), pipe.broker.create(pipe.name + "-2", 1)
    pipe.publish(7, heavy=("weight > 7", one), odd=("weight = 9", two), none="weight = 0")
    pipe.broker.produce(
        pipe.name, [*cars(10), (0, None, None, [("weight", b"9"), ("a", b"\xff"), ("a", None)])]
    )
    (report,) = pipe.run()
    assert (report.counts.deliveries, report.counts.sent) == (6, 5)
    heavy = pipe.broker.records(one)
    assert sorted((record.value() or b"").decode() for record in heavy) == ["", "body 8", "body 9"]
    assert {headers_of(record)["selectroute-subscription"] for record in heavy if record.key()} == {"heavy"}
    nine = next(record for record in pipe.broker.records(two) if record.key() == b"k9")
    assert nine.value() == b"body 9"
    found = headers_of(nine)
    assert found["weight"] == "9"
    assert found["selectroute-delivery-id"] == f"{pipe.name}/0/3/odd"
    assert found["selectroute-revision"] == "7"
    query, batch, task, number = found["selectroute-batch"].split("/")
    assert query == pipe.query and batch == "0" and task.isdigit() and number.isdigit()
    bare = next(record for record in heavy if record.key() is None)
    assert list(bare.headers())[:3] == [("weight", b"9"), ("a", b"\xff"), ("a", None)]


def test_a_delivery_has_the_time_of_its_source_unless_its_topic_refuses_it(pipe):
    from confluent_kafka import Producer

    any_time = pipe.broker.create(pipe.name + "-in", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    out = pipe.broker.create(pipe.name + "-out", 1)
    now = round(time.time() * 1_000)
    producer = Producer({"bootstrap.servers": pipe.broker.address})
    for timestamp in (now - 86_400_000, now * 1_000):  # yesterday, and in microseconds
        producer.produce(any_time, b"body", timestamp=timestamp)
    producer.flush()
    pipe.publish(1, all=("", out))
    (report,) = pipe.run(topics=(any_time,))
    assert report.counts.sent == 2
    yesterday, other = pipe.broker.records(out)
    assert yesterday.timestamp()[1] == now - 86_400_000
    assert "selectroute-source-timestamp" not in headers_of(yesterday)
    assert now <= other.timestamp()[1] < now + 86_400_000
    assert headers_of(other)["selectroute-source-timestamp"] == str(now * 1_000)


def test_a_subscription_says_how_the_records_of_its_topic_are_grouped(pipe):
    one, two = pipe.broker.create(pipe.name + "-1", 2), pipe.broker.create(pipe.name + "-2", 1)
    small = pipe.broker.create(pipe.name + "-small", 1, max_message_bytes="1500")
    many = {f"{'long-name-' * 10}{n}": ("weight = 5", f"{small}?grouping=message") for n in range(9)}
    pipe.publish(
        7,
        a=("weight > 5", f"{one}?grouping=message"),
        b=("weight > 5", one),
        c=("weight > 6", f"{one}?grouping=message"),
        d=("weight > 6", f"{one}?grouping=delivery"),
        e=("weight = 9", two),
        f=("weight = 9", f"{two}?grouping=delivery"),
        g=("weight = 5", small),
        **many,
    )
    keyless = [(0, None, b"body 10", [("weight", b"10")])]
    pipe.broker.produce(pipe.name, [*cars(10), *keyless])
    (report,) = pipe.run()
    assert (report.counts.sent, report.counts.refused) == (21, 9)
    check_both_kinds(pipe.broker.records(one), pipe.name)
    of_two = [headers_of(record) for record in pipe.broker.records(two)]
    assert sorted(one["selectroute-subscription"] for one in of_two) == ["e", "f"]
    assert [headers_of(record)["selectroute-subscription"] for record in pipe.broker.records(small)] == ["g"]
    assert {row["reason"] for row in pipe.world.rows("dead-letters")} == {"too-large"}
    assert audit(pipe.world.output).findings == []
    pipe.publish(8, b=("weight > 5", one), d=("weight > 6", f"{one}?grouping=delivery"))
    pipe.broker.produce(pipe.name, cars(3, 7))
    pipe.run(kafka_grouping="message")
    found = [headers_of(record) for record in pipe.broker.records(one)]
    new = Counter(one["selectroute-subscription"] for one in found if one["selectroute-revision"] == "8")
    assert new == {"b": 3, "d": 3}


def check_both_kinds(records, source):
    """Each message has one record for the subscriptions that are grouped by message, and one for each other
    one, in the order of the messages.
    """
    found = Counter(
        (
            (record.value() or b"").decode(),
            ",".join(sorted(own["selectroute-subscription"].split(","))),
            own.get("selectroute-subscription-count"),
            own["selectroute-delivery-id"].split("/")[-1],
            own["weight"],
        )
        for record in records
        for own in [headers_of(record)]
    )
    of_six, of_more = [("a", "1", "*")], [("a,c", "2", "*"), ("d", None, "d")]
    expected = Counter(
        (f"body {n}", *record, str(n))
        for n in range(6, 11)
        for record in [("b", None, "b"), *(of_six if n == 6 else of_more)]
    )
    assert found == expected
    places: dict[tuple[int, str], list[int]] = {}
    for record in records:
        of, partition, offset, _ = headers_of(record)["selectroute-delivery-id"].rsplit("/", 3)
        assert of == source
        places.setdefault((record.partition(), partition), []).append(int(offset))
    assert all(offsets == sorted(offsets) for offsets in places.values())


@pytest.mark.nightly
@ON_EVERY_STORAGE
def test_deliveries_that_a_topic_does_not_take_are_dead_letters_of_their_own(pipe):
    small = pipe.broker.create(pipe.name + "-small", 1, max_message_bytes="3000")
    there = pipe.broker.create(pipe.name + "-there", 1)
    pipe.publish(1, small=("weight >= 0", small), gone=("weight = 1", there), other="weight >= 0")
    pipe.broker.produce(pipe.name, [*cars(3), (0, b"large", b"x" * 4000, [("weight", b"1")])])
    job = pipe.job(missing_destinations="fail")
    fan = pipe.start(lambda _: None, job=job)
    fan.wait()
    pipe.publish(2, small=("weight >= 0", small), gone=("weight = 1", "no-such-topic"))
    pipe.broker.produce(pipe.name, cars(3))
    reports: list[Any] = []
    with pytest.raises(JobError, match="no-such-topic"):
        pipe.start(reports.append, job=job)
    rows = pipe.world.rows("dead-letters")
    assert [(row["stage"], row["reason"], row["subscription"]) for row in rows] == [
        ("deliver", "too-large", "small")
    ]
    assert "3,000 bytes" in rows[0]["message"]
    assert len(pipe.broker.records(small)) == 3
    assert pipe.delivered()[0, 1, "other"] == 1 and pipe.delivered()[0, 1, "gone"] == 1
    assert audit(pipe.world.output).findings == []


def shown(pipe, monkeypatch, capsys, *more, verb="deliveries"):
    """What `stream` with a verb says of the subscription `heavy`: exit code and standard output."""
    command = ["stream", verb, str(pipe.world.output), "--subscription", "heavy", *more]
    monkeypatch.setattr(sys, "argv", ["selectroute", *command])
    with pytest.raises(SystemExit) as exit_:
        main()
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


@ON_EVERY_STORAGE
def test_what_a_subscription_got_and_why_is_read_from_kafka_where_it_still_is(pipe, monkeypatch, capsys):
    pipe.publish(1, heavy="weight > 5")
    bare = (0, None, None, [("weight", b"9"), ("a", b"\xff"), ("a", None)])
    pipe.broker.produce(pipe.name, [*cars(9), bare, (0, None, b"v", [("weight", b"x")])])
    pipe.run()
    servers = ("--kafka-servers", pipe.broker.address)
    code, out, _ = shown(pipe, monkeypatch, capsys)
    assert code == 0
    assert f"no message: record 2 of partition 0 of the Kafka topic {pipe.name}; --kafka-servers reads" in out
    code, out, err = shown(pipe, monkeypatch, capsys, *servers, "-o", "json")
    assert code == 0, err
    found = {(one["partition"], one["offset"]): one for one in json.loads(out)}
    assert found.keys() == {(0, 2), (1, 2), (2, 2), (0, 3)}
    assert (found[1, 2]["message"], found[1, 2]["headers"]) == ("body 7", [["weight", "7"]])
    assert {one["missing"] for one in found.values()} == {None}
    assert found[0, 3]["message"] is None
    assert found[0, 3]["headers"] == [["weight", "9"], ["a", "\ufffd"], ["a", None]]

    def why(partition, offset, *more):
        place = ("--source", pipe.name, "--partition", str(partition), "--offset", str(offset))
        return shown(pipe, monkeypatch, capsys, *place, *more, verb="explain")

    code, out, _ = why(1, 2, *servers)
    first = f"batch 0 read {pipe.name}, partition 1, offset 2, and judged it by revision 1"
    assert (code, out.splitlines()[:2]) == (0, [first, "heavy got it in batch 0"])
    code, out, _ = why(1, 1, *servers)
    assert code == 0 and "heavy did not get it" in out and "weight is int 4" in out
    code, out, _ = why(0, 4, *servers)
    assert code == 0 and "`weight` is of a type that no property has, compared with a number" in out
    code, _, err = why(1, 1)
    assert code == 1 and "say with --kafka-servers where to read it" in err
    code, _, err = why(1, 3, *servers)
    assert code == 3 and "no committed batch has read" in err

    pipe.broker.drop(pipe.name, 1, 3)
    code, _, err = why(1, 1, *servers)
    assert code == 3 and "partition 1, offset 1 is no longer in Kafka" in err
    code, out, _ = shown(pipe, monkeypatch, capsys, *servers)
    assert code == 0
    assert f"no message: record 2 of partition 1 of the Kafka topic {pipe.name} is no longer in Kafka" in out
    assert f"{pipe.name}, partition 2, offset 2\n  weight=8\n  body 8\n" in out
    assert "  no value\n" in out
    code, out, _ = shown(pipe, monkeypatch, capsys, *servers, "--limit", "1", "-o", "ndjson")
    assert len(out.splitlines()) == 1
    record = Location.of(pipe.world.output / "_job.json")
    written = record.read_json()
    record.put_json(written | {"system": "another"})
    code, out, err = shown(pipe, monkeypatch, capsys, *servers)
    assert (code, out) == (4, "") and "the job reads the Kafka cluster another" in err
    record.put_json(written)
    pipe.broker.delete(pipe.name)
    _, out, _ = shown(pipe, monkeypatch, capsys, *servers)
    assert out.count("is no longer in Kafka") == 4


@pytest.mark.parametrize("by_pattern", after_first(pytest.mark.nightly, True, False))
def test_a_topic_that_is_named_while_the_job_runs_and_cannot_be_written_to_costs_its_subscription_alone(
    pipe, by_pattern
):
    pipe.publish(1, all="weight >= 0")
    pipe.broker.produce(pipe.name, cars(6))

    def name_them(report):
        if report.batch == 0:
            to = {"loop": ("weight >= 0", pipe.name), "lost": ("weight >= 0", "no-such-topic")}
            pipe.publish(2, all="weight >= 0", **to)

    read = {"pattern": f"{pipe.name[:-2]}.*"} if by_pattern else {}
    pipe.start(name_them, max_offsets=3, **read).wait()
    rows = pipe.world.rows("dead-letters")
    assert Counter((row["stage"], row["reason"], row["subscription"]) for row in rows) == {
        ("deliver", "input-topic", "loop"): 3,
        ("deliver", "unknown-topic", "lost"): 3,
    }
    said = f"the job reads the topic {pipe.name}: the delivery would return endlessly"
    assert {row["message"] for row in rows if row["subscription"] == "loop"} == {said}
    assert sum(pipe.delivered().values()) == 6
    assert len(pipe.broker.records(pipe.name)) == 6
    assert audit(pipe.world.output).findings == []


@ON_EVERY_STORAGE
def test_messages_of_files_become_records_with_their_properties_as_headers(pipe):
    out = pipe.broker.create(pipe.name + "-out", 3)
    pipe.publish(3, red=("color = 'red'", out), heavy=("weight > 5", out))
    messages = [
        {"headers": {"JMSType": "car"}, "properties": {"color": "red", "weight": 2000}, "body": "A"},
        {"properties": {"color": "blue", "weight": 7.5}, "body": "B"},
        {"properties": {"color": "blue"}},
    ]
    pipe.world.drop_json("a.jsonl", *messages)
    (report,) = pipe.run(input=pipe.world.input, kafka=pipe.cluster)
    assert (report.counts.messages, report.counts.sent, report.counts.unrouted) == (3, 3, 1)
    found = {headers_of(record)["selectroute-delivery-id"]: record for record in pipe.broker.records(out)}
    assert set(found) == {"a.jsonl/0/0/red", "a.jsonl/0/0/heavy", "a.jsonl/0/1/heavy"}
    first = found["a.jsonl/0/0/red"]
    assert first.value() == b"A"
    own = headers_of(first)
    wanted = {"JMSType": "car", "color": "red", "weight": "2000", "selectroute-revision": "3"}
    assert own.items() >= wanted.items()


@ON_EVERY_STORAGE
def test_records_go_to_a_queue_once_with_the_properties_that_are_bound(pipe, sqlite):
    sqlite.create("A")
    pipe.publish(1, heavy=("weight > 7", A), light="weight < 3")
    pipe.broker.produce(pipe.name, cars(10))
    (report,) = pipe.run(queues=sqlite.url)
    assert (report.counts.deliveries, report.counts.queued) == (5, 2)
    got = {one.properties["selectroute_delivery_id"]: one for one in sqlite.get_all("A")}
    assert set(got) == {f"{pipe.name}/{n % 3}/{n // 3}/heavy" for n in (8, 9)}
    eight = got[f"{pipe.name}/2/2/heavy"]
    assert (eight.body, eight.properties["weight"]) == (b"body 8", Int(8))
    assert pipe.run(queues=sqlite.url) == [] and not sqlite.get_all("A")


@ON_EVERY_STORAGE
def test_records_that_were_dead_letters_are_replayed_with_their_bytes_and_no_others_are_read(pipe):
    to = pipe.broker.create(pipe.name + "-to", 2)
    pipe.publish(1, long=("weight >= 0", to))
    long = [(n, b"key", b"x" * 500, [("weight", b"7"), ("other", b"\xff")]) for n in range(2)]
    pipe.broker.produce(pipe.name, [*cars(30), *long, *cars(30), (2, None, b"y", [("weight", b"heavy")])])
    warnings = []
    (report,) = pipe.run(max_message_bytes=400, on_warning=warnings.append)
    assert report.counts.reasons == {"too-large": 2}
    (warning,) = (one for one in warnings if "unlike" in one)
    assert warning.startswith(
        "header 'weight', which is bound to 'weight' as an int: 1 record has another value"
    )
    assert "the one subscription that reads it" in warning
    make_request(pipe.world.output, ReplayFilterSpec())
    (again,) = pipe.run()
    assert (again.kind, again.batch, again.inputs, again.topics) == ("replay", -1, 2, {pipe.name: 2})
    counts = again.counts
    assert (counts.messages, counts.routed, counts.dead_lettered, counts.sent) == (2, 2, 0, 2)
    got = [record for record in pipe.broker.records(to) if record.value() == b"x" * 500]
    assert {headers_of_bytes(record)["selectroute-delivery-id"] for record in got} == {
        f"{pipe.name}/{partition}/10/long".encode() for partition in range(2)
    }
    assert all(record.key() == b"key" and headers_of_bytes(record)["other"] == b"\xff" for record in got)
    assert all(
        headers_of_bytes(record)["selectroute-batch"].startswith(f"{pipe.query}/-1/".encode())
        for record in got
    )
    assert audit(pipe.world.output).findings == []
    assert pipe.run() == []


@pytest.mark.nightly
@ON_EVERY_STORAGE
def test_dead_letters_that_kafka_no_longer_has_are_named_and_the_others_replayed(pipe):
    pipe.publish(1, all="weight >= 0")
    long = [(n, b"key", b"x" * 500, [("weight", b"7")]) for n in range(2)]
    pipe.broker.produce(pipe.name, long)
    pipe.run(max_message_bytes=400)
    pipe.broker.drop(pipe.name, 0, 1)
    make_request(pipe.world.output, ReplayFilterSpec())
    (again,) = pipe.run()
    assert again.missing == (
        f"of batch 0, no longer kept by Kafka since it was routed: {pipe.name}/0 offsets 0 to 0",
    )
    assert (again.counts.messages, again.counts.routed) == (1, 1)
    make_request(pipe.world.output, ReplayFilterSpec())
    assert pipe.run() == []


def headers_of_bytes(record):
    return dict(record.headers())
