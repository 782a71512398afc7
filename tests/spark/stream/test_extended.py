"""Refused deliveries: each a dead letter of its own, every message accounted for, nobody else affected."""

from collections import Counter

import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.spark import start_fanout
from tests.spark.providers import installed, installed_in_workers

RED = {"properties": {"color": "red"}, "topic": "cars"}
HEAVY = {"properties": {"weight": 5}, "topic": "cars"}
REFUSED = ("judge", "selection-not-available")


def publish(world, revision=1):
    index = sr.Index()
    index.add("red", "color = 'red'")
    index.add("mq", "color = 'red'", dialect="ibm-mq")
    index.add("weight", "has weight", dialect="ibm-mq", extended=True)
    index.add("cars", "has color", topic="cars", dialect="ibm-mq", extended=True)
    index.add("fails", "fail color", topic="cars", dialect="ibm-mq", extended=True)
    return sr.publish(index.freeze(revision), world.snapshots)


def drop(world):
    table = pa.table(
        {"color": ["red", None], "weight": pa.array([None, 5], pa.int32()), "@topic": ["cars", "bikes"]}
    )
    return [world.drop_json("a.jsonl", RED, HEAVY, "{"), world.drop_parquet("b.parquet", table)]


def refused(world):
    return Counter(
        (row["source"], row["offset"], row["subscription"])
        for row in world.rows("dead-letters")
        if (row["stage"], row["reason"]) == REFUSED
    )


def delivered(world):
    return Counter({key[:3]: count for key, count in world.deliveries().items()})


def check_accounting(world, counts):
    (line,) = world.accounting()
    assert line["messages"] == line["routed"] + line["unrouted"] + line["dead_lettered"] == counts.messages
    assert line["deliveries"] == counts.deliveries == sum(world.deliveries().values())
    assert line["refused"] == counts.refused == sum(refused(world).values())
    dead = world.rows("dead-letters")
    assert line["dead_lettered"] == counts.dead_lettered == sum(row["subscription"] is None for row in dead)


WITHOUT = {
    "delivered": {
        ("a.jsonl", 0, "red"), ("a.jsonl", 0, "mq"), ("b.parquet", 0, "red"), ("b.parquet", 0, "mq"),
    },
    "refused": {
        (source, row, name)
        for source in ("a.jsonl", "b.parquet")
        for row in (0, 1)
        for name in ("weight", "cars", "fails")
    } - {("b.parquet", 1, "cars"), ("b.parquet", 1, "fails")},
    "unrouted": {("a.jsonl", 1), ("b.parquet", 1)},
}  # fmt: skip
WITH = {
    "delivered": WITHOUT["delivered"] | {
        ("a.jsonl", 0, "cars"), ("b.parquet", 0, "cars"),
        ("a.jsonl", 1, "weight"), ("b.parquet", 1, "weight"),
    },
    "refused": {("a.jsonl", 0, "fails"), ("a.jsonl", 1, "fails"), ("b.parquet", 0, "fails")},
    "unrouted": set(),
}  # fmt: skip


def check(world, counts, wanted):
    assert delivered(world) == Counter(wanted["delivered"])
    assert refused(world) == Counter(wanted["refused"])
    assert {(row["source"], row["offset"]) for row in world.rows("unrouted")} == wanted["unrouted"]
    assert (counts.messages, counts.unrouted, counts.dead_lettered) == (5, len(wanted["unrouted"]), 1)
    assert counts.reasons == {"not-json": 1}
    check_accounting(world, counts)


def test_without_a_provider_each_delivery_is_refused_and_the_others_are_not_affected(world):
    publish(world)
    report = world.router().route(0, drop(world), "q")
    check(world, report.counts, WITHOUT)
    for row in world.rows("dead-letters"):
        if row["subscription"] is not None:
            assert "MQRC_SELECTION_NOT_AVAILABLE (2551)" in row["message"] and "install" in row["message"]
            assert row["revision"] == 1 and row["raw"] is None
    # A message that nobody but the refused wants stops a job that fails on unrouted ones.
    with pytest.raises(sr.SelectRouteError, match="1 unrouted message"):
        world.router(unrouted="fail").route(1, [world.drop_json("c.jsonl", HEAVY)], "q")


def test_with_a_provider_only_what_it_cannot_judge_is_refused(world):
    with installed(world.root / "provider"):
        publish(world)
        report = world.router().route(0, drop(world), "q")
    check(world, report.counts, WITH)


def test_a_provider_gets_the_body_where_it_reads_it(world):
    with installed(world.root / "provider"):
        index = sr.Index()
        index.add("body", "has @body", dialect="ibm-mq", extended=True)
        sr.publish(index.freeze(1), world.snapshots)
        paths = [
            world.drop_parquet("b.parquet", pa.table({"@body": [b"x", None]})),
            world.drop_parquet("c.parquet", pa.table({"@body": ["x", None]})),
        ]
        report = world.router().route(0, paths, "q")
    assert set(delivered(world)) == {("b.parquet", 0, "body"), ("c.parquet", 0, "body")}
    assert report.counts.refused == 0


def test_many_refused_deliveries_are_written_in_slices(world, monkeypatch):
    monkeypatch.setattr("selectroute.spark.task.writer.SLICE", 7)
    monkeypatch.setattr("selectroute.spark.task.writer._ROW_GROUP", 5)
    publish(world)
    report = world.router().route(0, [world.drop_json("a.jsonl", *[RED, "{", HEAVY] * 10)], "q")
    assert report.counts.refused == 60 and len(refused(world)) == 60
    check_accounting(world, report.counts)


def run(spark, world):
    reports = []
    start_fanout(spark, world.job(), available_now=True, on_batch=reports.append).wait()
    (report,) = reports
    return report.counts


@pytest.mark.slow
@pytest.mark.spark
def test_the_stream_refuses_without_a_provider(spark, world):
    publish(world)
    drop(world)
    check(world, run(spark, world), WITHOUT)


@pytest.mark.slow
@pytest.mark.spark
def test_the_stream_asks_the_provider_in_its_workers(spark, world):
    publish(world)
    drop(world)
    with installed_in_workers(spark, world.root / "provider"):
        check(world, run(spark, world), WITH)
