"""Jobs from Kafka to Kafka side by side write as many records, of the same sizes, and each is counted."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from bench.definition import sizes
from bench.kafka.paced import CYCLE
from bench.kafka.streamed import PARTITIONS, Streamed, messages
from bench.measure import WrongCountError, measure
from tests.support.components import KAFKA

pytestmark = [*KAFKA, pytest.mark.spark, pytest.mark.nightly]

[SIZE] = [size for size in sizes() if size.name == "Z 1k"]
COUNT = 300


@pytest.fixture(scope="module")
def streamed(kafka, tmp_path_factory):
    with Streamed(SIZE, tmp_path_factory.mktemp("bench"), kafka) as made:
        yield made


@pytest.fixture(scope="module")
def make(spark, streamed):
    from bench.kafka import engines as kafka_engines
    from bench.kafka import relay as kafka_relay

    return {**kafka_engines.makers(spark, streamed), **kafka_relay.makers(streamed)}


@pytest.fixture
def small_batches(monkeypatch):
    from bench.kafka import engines as kafka_engines

    monkeypatch.setattr(kafka_engines, "BATCH", 100)


@pytest.mark.parametrize("name", ["no-op", "fan-out"])
def test_an_engine_delivers_what_it_must_each_time(name, make, streamed, small_batches):
    due = int(streamed.lengths(COUNT).sum())
    samples = measure("kafka-rates", "Z", SIZE.rules, [make[name](COUNT)], SIZE.check, 2)
    assert [one.messages for one in samples] == [COUNT] * 2
    assert all(one.seconds > 0 and one.processor_seconds > 0 for one in samples)
    assert make[name](COUNT).run().matches == due > COUNT / 2


def test_all_write_records_of_the_same_headers_and_sizes(make, streamed):
    sizes_of = {}
    for name in ("no-op", "fan-out", "relay"):
        with closing(make[name](SIZE.checked)) as engine:
            engine.start(streamed.topic(COUNT), COUNT, None).wait()
        records = streamed.broker.records(engine.to)
        assert {tuple(key for key, _ in one.headers()) for one in records} == {
            ("JMSType", "color", "weight", "selectroute-subscription", "selectroute-delivery-id",
             "selectroute-revision", "selectroute-batch")
        }  # fmt: skip
        sizes_of[name] = sum(len(value) for one in records for _, value in one.headers()) / len(records)
        streamed.clear(engine.to)
    # The numbers of deliveries within their tasks have a digit more or less.
    assert sizes_of["no-op"] == pytest.approx(sizes_of["fan-out"], rel=0.05)
    assert sizes_of["relay"] == pytest.approx(sizes_of["fan-out"], rel=0.05)


def test_a_job_that_delivers_too_little_ends_the_run(make):
    wrong = replace(SIZE.check, matches=SIZE.check.matches + 1)
    for name in ("no-op", "fan-out"):
        with pytest.raises(WrongCountError):
            measure("kafka-rates", "Z", SIZE.rules, [make[name](COUNT)], wrong, 1)


def test_records_have_what_decides(streamed):
    [(value, headers)] = messages(SIZE, 1)
    assert headers == [("JMSType", b"t46"), ("color", b"c26"), ("weight", b"5956")]
    assert value.startswith(b"t46|c26|5956.") and len(value) == 107
    streamed.topic(COUNT)
    assert streamed.ends(streamed.topic(COUNT)) == [COUNT // PARTITIONS] * PARTITIONS


def test_latency_is_that_of_every_delivery(make, streamed, monkeypatch):
    from bench.kafka import latency as kafka_latency

    monkeypatch.setattr(kafka_latency, "_WARM_SECONDS", 1)
    monkeypatch.setattr(kafka_latency, "_FIRST_SECONDS", 1)
    points = {"triggers": (0.0,), "rates": (100,)}
    engines = [make[name](CYCLE) for name in ("no-op", "fan-out")]
    samples = list(kafka_latency.measured(engines, streamed, 2.0, 1, **points))
    assert [one.engine for one in samples] == ["no-op 100 0", "fan-out 100 0"]
    assert [one.messages for one in samples] == [200, 200]
    assert all(0 < one.p50_us <= one.p99_us for one in samples)


def test_memory_is_read_again_and_again_while_messages_come(spark, streamed, monkeypatch):
    from bench.kafka import engines as kafka_engines
    from bench.kafka import memory as kafka_memory

    monkeypatch.setattr(kafka_memory, "_EVERY_SECONDS", 2)
    samples = list(kafka_memory.measured(kafka_engines.FanOutEngine(spark, streamed, COUNT), streamed, 4))
    assert [one.engine for one in samples] == [*kafka_memory.PARTS] * 2
    assert all(one.bytes_a_rule > 2**20 for one in samples)
    assert samples[0].messages > 0 and 2 <= samples[0].seconds < samples[-1].seconds
