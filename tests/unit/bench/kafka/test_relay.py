"""The relay that others are compared with delivers what it must, and is what it promises to be."""

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
from tests.support.components import BROKER

pytestmark = BROKER

NAMES = ("relay", "relay-transactional")
COUNT = 300
SIZES = {size.name: size for size in sizes()}
with_jdk = pytest.mark.skipif(not jvm._jdks(), reason="no JDK")


@pytest.fixture(scope="module")
def streamed(kafka, tmp_path_factory):
    with Streamed(SIZES["Z 1k"], tmp_path_factory.mktemp("bench"), kafka) as made:
        yield made


@pytest.fixture(scope="module", params=NAMES)
def relay(request, streamed):
    with closing(kafka_relay.makers(streamed)[request.param](COUNT)) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_without_a_jdk_a_relay_is_skipped_with_the_reason(name, monkeypatch):
    monkeypatch.setattr(jvm, "_jdks", dict)
    with pytest.raises(SkippedError, match="needs a JDK"):
        kafka_relay.makers(None)[name](COUNT)


@with_jdk
def test_its_sources_compile_without_warnings(kafka, tmp_path):
    path = ":".join(str(jar) for pattern in kafka_relay._JARS for jar in kafka.jars.glob(pattern))
    sources = [str(jvm.SOURCES / file) for file in kafka_relay._SOURCES]
    command = [jvm.jdk(17) / "bin" / "javac", "-Werror", "-Xlint:all", "-d", tmp_path, "-cp", path]
    subprocess.run([*command, *sources], check=True)


@with_jdk
def test_a_relay_delivers_what_it_must_each_time(relay, streamed):
    samples = measure("kafka-rates", "Z", 1_000, [relay], SIZES["Z 1k"].check, 1)
    assert [one.messages for one in samples] == [COUNT]
    assert all(one.seconds > 0 and one.processor_seconds > 0 for one in samples)
    assert relay.run().matches == int(streamed.lengths(COUNT).sum()) > COUNT / 2


@with_jdk
def test_replies_are_found_by_their_correlation_ids(kafka, tmp_path):
    class Replies(kafka_relay.RelayEngine):
        to = "replies"

    size = SIZES["R 1k"]
    with Streamed(size, tmp_path, kafka) as streamed, closing(Replies(streamed, COUNT)) as relay:
        assert relay.judge() == size.check


@with_jdk
def test_a_delivery_is_its_message_with_four_headers_more_and_offsets_are_committed(relay, streamed):
    from confluent_kafka import Consumer, TopicPartition

    topic, before = streamed.topic(COUNT), streamed.ends(relay.to)
    relay.start(topic, COUNT, None).wait()
    messages = {(one.partition(), one.offset()): one for one in streamed.records(topic)}
    found = list(streamed.records(relay.to, before))
    marks = sum(streamed.ends(relay.to)) - sum(before) - len(found)
    streamed.clear(relay.to)
    assert (marks > 0) == relay.transactional
    ids = set()
    for one in found:
        *own, subscription, delivery, revision, batch = one.headers()
        source, partition, offset, rule = delivery[1].decode().split("/")
        message = messages[int(partition), int(offset)]
        assert (one.key(), one.value(), own) == (message.key(), message.value(), message.headers())
        assert subscription == ("selectroute-subscription", rule.encode())
        assert (source, revision) == (topic, ("selectroute-revision", b"1"))
        assert [delivery[0], batch[0]] == ["selectroute-delivery-id", "selectroute-batch"]
        ids |= {delivery, batch}
    assert len(ids) == 2 * len(found) > 0
    [group] = {dict(one.headers())["selectroute-batch"].decode().split("/")[0] for one in found}
    consumer = Consumer({"bootstrap.servers": streamed.broker.address, "group.id": group})
    committed = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 30)
    consumer.close()
    assert [one.offset for one in committed] == streamed.ends(topic)


@pytest.mark.nightly
@with_jdk
def test_one_that_was_killed_goes_on_where_it_stopped(streamed):
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


@with_jdk
def test_a_relay_that_cannot_go_on_says_why(streamed):
    headers = [("JMSType", b"t38"), ("color", b"c26"), ("weight", b"heavy")]
    streamed.create("heavy")
    streamed.broker.produce("heavy", [(0, b"k", b"body", headers)])
    with closing(kafka_relay.RelayEngine(streamed, COUNT)) as relay:
        query = relay.start("heavy", 1, None)
        with pytest.raises(kafka_relay.EndedError, match=r'ended with code 1.*"heavy"'):
            query.wait()


@pytest.mark.nightly
@with_jdk
def test_latency_is_until_the_commit_and_needs_no_trigger(streamed, monkeypatch):
    monkeypatch.setattr(kafka_latency, "_WARM_SECONDS", 0.5)
    monkeypatch.setattr(kafka_latency, "_FIRST_SECONDS", 0.5)
    with closing(kafka_relay.TransactionalRelayEngine(streamed, COUNT)) as relay:
        points = {"triggers": (0.0, 0.5), "rates": (200,)}
        [sample] = kafka_latency.measured([relay], streamed, 1.0, 1, **points)
    assert (sample.engine, sample.messages) == ("relay-transactional 200 0", 200)
    assert 0 < sample.p50_us <= sample.p99_us
