"""What a job shows to Prometheus, from its batches and from what Spark says."""

import time
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from selectroute.spark import start_fanout
from selectroute.spark.batch.router import BatchReport
from selectroute.spark.stream.metrics import MetricsError, StreamMetrics
from selectroute.spark.tables.schemas import Counts


def shown(metrics):
    """Every sample by its name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.serve(0)}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name.removeprefix("selectroute_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def report(batch=0, **more):
    counts = Counts(10, 6, 3, 1, 20, refused=2, queued=5, sent=4, reasons={"not-json": 1})
    return BatchReport(batch, 7, 1, counts, {"pin": 0.25, "match": 0.5}, **more)


def test_a_batch_is_counted_once(tmp_path):
    metrics = StreamMetrics()
    metrics.observe(report())
    metrics.observe(report(skipped=True))
    found = shown(metrics)
    for name, value in {
        ("messages_total", ""): 10,
        ("routed_total",): 6,
        ("unrouted_total",): 3,
        ("dead_letters_total", "not-json"): 1,
        ("deliveries_total",): 20,
        ("refused_total",): 2,
        ("queued_total",): 5,
        ("sent_total",): 4,
        ("batches_total", "stream"): 1,
        ("registry_revision",): 7,
        ("batch_seconds_sum",): 0.75,
        ("batch_seconds_count",): 1,
        ("match_seconds_sum",): 0.5,
    }.items():
        assert found[name] == value, name


def test_messages_are_counted_by_their_topic_of_kafka():
    metrics = StreamMetrics()
    metrics.observe(report(topics={"cars": 7, "boats": 3}))
    found = shown(metrics)
    assert (found["messages_total", "cars"], found["messages_total", "boats"]) == (7, 3)
    assert ("messages_total", "") not in found


def test_a_backfill_counts_its_deliveries_and_no_message_again():
    metrics = StreamMetrics()
    metrics.observe(report(-1, kind="backfill"))
    found = shown(metrics)
    assert (found["deliveries_total",], found["batches_total", "backfill"]) == (20, 1)
    assert ("messages_total", "") not in found
    assert found["registry_revision",] == 0


def test_triggers_and_waiting_for_messages_are_heard_of_and_batches_alone_are_not(monkeypatch):
    metrics, now = StreamMetrics(), iter(range(1, 9))
    monkeypatch.setattr("selectroute.spark.stream.metrics.time", SimpleNamespace(time=lambda: next(now)))
    heard = ("query_heard_timestamp_seconds",)
    for number, event in enumerate([metrics.started, lambda: metrics.progressed({}), metrics.heard], 1):
        event()
        assert shown(metrics)[heard] == number
    metrics.observe(report())
    assert shown(metrics)[heard] == 3


def test_what_spark_says_of_a_trigger_is_shown():
    metrics = StreamMetrics()
    metrics.started()
    metrics.progressed(
        {
            "inputRowsPerSecond": 5.5,
            "processedRowsPerSecond": float("nan"),
            "durationMs": {"addBatch": 1500, "triggerExecution": 1750},
            "sources": [
                {
                    "endOffset": {"b": {"0": 1}, "a": {"0": 3}},
                    "latestOffset": {"b": {"0": 2, "1": 12}, "a": {"0": 3}},
                },
                {"endOffset": {"logOffset": 3}, "latestOffset": None},
            ],
        }
    )
    found = shown(metrics)
    assert found["query_rows_per_second", "input"] == 5.5
    assert found["query_phase_seconds", "addBatch"] == 1.5
    assert found["source_behind_messages", "a,b"] == 12
    assert found["query_running",] == 1
    metrics.terminated()
    assert shown(metrics)["query_running",] == 0


def test_destinations_that_refuse_are_asked_of_the_job():
    metrics, fan = StreamMetrics(), SimpleNamespace(waiting={"queue": 2, "kafka": 0})
    metrics.watch(fan)
    assert shown(metrics)["destinations_waiting", "queue"] == 2
    fan.waiting = {"queue": 0, "kafka": 1}
    assert (
        shown(metrics)["destinations_waiting", "queue"],
        shown(metrics)["destinations_waiting", "kafka"],
    ) == (0, 1)


def test_an_address_that_is_taken_is_one_sentence():
    port = StreamMetrics().serve(0)
    with pytest.raises(MetricsError, match=f"can't listen on 127.0.0.1:{port}"):
        StreamMetrics().serve(port)


@pytest.mark.spark
def test_a_query_reports_to_its_listener(spark, world):
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", {"properties": {"color": "red"}}, {})
    metrics = StreamMetrics()
    listener = metrics.listener()
    spark.streams.addListener(listener)
    try:
        fan = start_fanout(spark, world.job(), available_now=True, on_batch=metrics.observe)
        fan.wait()
        until = time.monotonic() + 60
        # A listener hears of the end a moment after those who wait for it.
        while shown(metrics)[("query_running",)]:
            assert time.monotonic() < until
            time.sleep(0.05)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        found = shown(metrics)
    finally:
        spark.streams.removeListener(listener)
    assert found["messages_total", ""] == 2
    assert found["query_phase_seconds", "addBatch"] > 0
    assert found["query_running",] == 0
