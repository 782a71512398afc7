"""The relay and the frameworks that ours is compared with deliver what they must, as often as they must."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing

import pytest

from bench import jvm
from bench.definition import sizes
from bench.engine import SkippedError
from bench.kafka import latency as kafka_latency
from bench.kafka import relay as kafka_relay
from bench.kafka.streamed import PARTITIONS, Streamed
from bench.measure import measure
from bench.peers.topics import frameworks
from tests.support.components import KAFKA, missing

RELAYS = (kafka_relay.RelayEngine, kafka_relay.TransactionalRelayEngine)
FRAMEWORKS = (frameworks.KafkaStreamsEngine, frameworks.FlinkEngine)
ENGINES = (*RELAYS, *FRAMEWORKS)
COUNT = 300
SIZES = {size.name: size for size in sizes()}


def on_a_broker(test):
    """Mark a test that starts peers beside a broker."""
    test = pytest.mark.skipif(not jvm._jdks(), reason="no JDK")(pytest.mark.nightly(test))
    for mark in KAFKA:
        test = mark(test)
    return test


by_kind = pytest.mark.parametrize("kind", ENGINES, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def streamed(kafka, tmp_path_factory):
    with Streamed(SIZES["Z 1k"], tmp_path_factory.mktemp("bench"), kafka) as made:
        yield made


def started(kind, streamed):
    try:
        return closing(kind(streamed, COUNT))
    except SkippedError as error:
        missing(str(error))


@pytest.fixture(scope="module", params=ENGINES, ids=lambda kind: kind.name)
def engine(request, streamed):
    with started(request.param, streamed) as running:
        yield running


@by_kind
def test_without_a_jdk_a_peer_is_skipped_with_the_reason(kind, monkeypatch):
    monkeypatch.setattr(jvm, "_jdks", dict)
    with pytest.raises(SkippedError, match="needs a JDK"):
        kind(None, COUNT)


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_without_its_jars_a_framework_is_skipped_with_the_reason(kind, monkeypatch, tmp_path):
    def refused(module, java, folder):
        raise SkippedError(f"{module} could not be fetched")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "_jdks", lambda: {21: tmp_path})
    monkeypatch.setattr(jvm, "_fetch", refused)
    with pytest.raises(SkippedError, match=f"{kind.modules[0]} could not be fetched"):
        kind(None, COUNT)


@on_a_broker
def test_the_topic_of_rules_has_what_decides_in_each(streamed):
    records = list(streamed.records(streamed.rules))
    values = {record.key(): record.value() for record in records}
    assert len(records) == len(values) == 1_000
    assert values[b"r0"] == b"t38\tc26\t9710"


@on_a_broker
@pytest.mark.parametrize("kind", [kafka_relay.RelayEngine, *FRAMEWORKS])
def test_its_sources_compile_without_warnings(kind, kafka, tmp_path):
    java = jvm.jdk(17)
    lint, sources = "-Xlint:all", kafka_relay._SOURCES
    jars = [jar for pattern in kafka_relay._JARS for jar in kafka.jars.glob(pattern)]
    if kind in FRAMEWORKS:
        # Functions of a job are serializable, and jars name others that are not here.
        lint, sources = "-Xlint:all,-serial,-path,-classfile,-processing", kind.sources
        try:
            jars = [jar for module in kind.modules for jar in jvm.fetched(module, java, True)]
        except SkippedError as error:
            missing(str(error))
    command = [java / "bin" / "javac", "-Werror", lint, "-d", tmp_path, "-cp", ":".join(map(str, jars))]
    subprocess.run([*command, *(str(jvm.SOURCES / file) for file in sources)], check=True)


@on_a_broker
def test_a_peer_delivers_what_it_must_each_time(engine, streamed):
    samples = measure("kafka-rates", "Z", 1_000, [engine], SIZES["Z 1k"].check, 1)
    assert [sample.messages for sample in samples] == [COUNT]
    assert all(sample.seconds > 0 and sample.processor_seconds > 0 for sample in samples)
    assert engine.run().matches == int(streamed.lengths(COUNT).sum()) > COUNT / 2


@on_a_broker
@by_kind
def test_replies_are_found_by_their_correlation_ids(kind, kafka, tmp_path):
    # The topic of the class has those of the other tests.
    replies = type("Replies", (kind,), {"to": f"replies-by-{kind.name}"})
    size = SIZES["R 1k"]
    with Streamed(size, tmp_path, kafka) as streamed, started(replies, streamed) as engine:
        assert engine.judge() == size.check


@on_a_broker
def test_a_delivery_is_its_message_with_four_headers_more(engine, streamed):
    topic, before = streamed.topic(COUNT), streamed.ends(engine.to)
    engine.start(topic, COUNT, None).wait()
    messages = {(record.partition(), record.offset()): record for record in streamed.records(topic)}
    delivered = list(streamed.records(engine.to, before))
    marks = sum(streamed.ends(engine.to)) - sum(before) - len(delivered)
    streamed.clear(engine.to)
    is_relay = isinstance(engine, RELAYS)
    assert (marks > 0) == (not is_relay or engine.transactional)
    ids = set()
    for record in delivered:
        *headers, subscription, delivery, revision, batch = record.headers()
        source, partition, offset, rule = delivery[1].decode().split("/")
        message = messages[int(partition), int(offset)]
        assert (record.key(), record.value(), headers) == (message.key(), message.value(), message.headers())
        assert subscription == ("selectroute-subscription", rule.encode())
        assert (source, revision) == (topic, ("selectroute-revision", b"1"))
        assert [delivery[0], batch[0]] == ["selectroute-delivery-id", "selectroute-batch"]
        ids |= {delivery, batch} if is_relay else {delivery}
    assert len(ids) == (1 + is_relay) * len(delivered) > 0
    if is_relay:
        assert committed(streamed, topic, delivered) == streamed.ends(topic)


def committed(streamed, topic, delivered):
    """The offsets that the group of these deliveries has committed."""
    from confluent_kafka import Consumer, TopicPartition

    [group] = {dict(record.headers())["selectroute-batch"].decode().split("/")[0] for record in delivered}
    consumer = Consumer({"bootstrap.servers": streamed.broker.address, "group.id": group})
    offsets = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 30)
    consumer.close()
    return [place.offset for place in offsets]


@on_a_broker
def test_a_relay_that_was_killed_goes_on_where_it_stopped(streamed):
    topic, due = streamed.topic(COUNT), int(streamed.lengths(COUNT).sum())
    with (
        closing(kafka_relay.TransactionalRelayEngine(streamed, COUNT)) as first,
        closing(kafka_relay.TransactionalRelayEngine(streamed, COUNT)) as second,
    ):
        before = streamed.ends(first.to)
        first.tell(f"relay {topic} {first.to} killed transactional 1 all")
        while sum(streamed.ends(first.to)) == sum(before):
            time.sleep(0.01)
        first._process.kill()
        with pytest.raises(kafka_relay.EndedError, match="ended with code -9"):
            first.answer()
        second.tell(f"relay {topic} {first.to} killed transactional 50 available")
        second.answer()
        assert second.delivered(before) == due
    streamed.clear(first.to)


@on_a_broker
def test_a_peer_that_cannot_go_on_says_why(engine, streamed):
    headers = [("JMSType", b"t38"), ("color", b"c26"), ("weight", b"heavy")]
    if "heavy" not in streamed.broker.topics():
        streamed.create("heavy")
        streamed.broker.produce("heavy", [(0, b"k", b"body", headers)])
    with started(type(engine), streamed) as other:
        query = other.start("heavy", 1, None)
        with pytest.raises(kafka_relay.EndedError, match="ended with code 1") as ended:
            query.wait()
        assert '"heavy"' in (str(ended.value) if isinstance(other, RELAYS) else other._log.read_text())


@on_a_broker
def test_latency_is_until_the_commit_and_needs_no_trigger(engine, streamed, monkeypatch):
    monkeypatch.setattr(kafka_latency, "_WARM_SECONDS", 0.5)
    monkeypatch.setattr(kafka_latency, "_FIRST_SECONDS", 0.5)
    [sample] = kafka_latency.measured([engine], streamed, 1.0, 1, triggers=(0.0, 0.5), rates=(200,))
    assert (sample.engine, sample.messages) == (f"{engine.name} 200 0", 200)
    assert 0 < sample.p50_us <= sample.p99_us
