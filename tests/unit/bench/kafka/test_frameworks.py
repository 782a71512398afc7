"""The frameworks that ours is compared with deliver what they must, as often as they must."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest

from bench import jvm
from bench.definition import sizes
from bench.engine import SkippedError
from bench.kafka import latency as kafka_latency
from bench.kafka import relay as kafka_relay
from bench.kafka.streamed import Streamed
from bench.measure import measure
from bench.peers.topics import frameworks
from tests.support.components import BROKER, missing

pytestmark = BROKER

ENGINES = (frameworks.KafkaStreamsEngine, frameworks.FlinkEngine)
COUNT = 300
SIZES = {size.name: size for size in sizes()}
needs_jars = pytest.mark.skipif(not jvm._jdks(), reason="no JDK")


@pytest.fixture(scope="module")
def streamed(kafka, tmp_path_factory):
    with Streamed(SIZES["Z 1k"], tmp_path_factory.mktemp("bench"), kafka) as made:
        yield made


def made(engine, streamed):
    try:
        return closing(engine(streamed, COUNT))
    except SkippedError as error:
        missing(str(error))


@pytest.fixture(scope="module", params=ENGINES, ids=lambda one: one.name)
def engine(request, streamed):
    with made(request.param, streamed) as found:
        yield found


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_jdk_a_framework_is_skipped_with_the_reason(engine, monkeypatch):
    monkeypatch.setattr(jvm, "_jdks", dict)
    with pytest.raises(SkippedError, match="needs a JDK"):
        engine(None, COUNT)


@pytest.mark.parametrize("engine", ENGINES)
def test_without_its_jars_a_framework_is_skipped_with_the_reason(engine, monkeypatch, tmp_path):
    def refused(module, java, folder):
        raise SkippedError(f"{module} could not be fetched")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "_jdks", lambda: {21: tmp_path})
    monkeypatch.setattr(jvm, "_fetch", refused)
    with pytest.raises(SkippedError, match=f"{engine.modules[0]} could not be fetched"):
        engine(None, COUNT)


def test_the_topic_of_rules_has_what_decides_in_each(streamed):
    records = list(streamed.records(streamed.rules))
    found = {one.key(): one.value() for one in records}
    assert len(records) == len(found) == 1_000
    assert found[b"r0"] == b"t38\tc26\t9710"


@pytest.mark.nightly
@needs_jars
@pytest.mark.parametrize("engine", ENGINES)
def test_its_sources_compile_without_warnings(engine, streamed, tmp_path):
    java = jvm.jdk(17)
    try:
        jars = [jar for module in engine.modules for jar in jvm.fetched(module, java, True)]
    except SkippedError as error:
        missing(str(error))
    # Functions of a job are serializable, and jars name others that are not here.
    lint = "-Xlint:all,-serial,-path,-classfile,-processing"
    command = [java / "bin" / "javac", "-Werror", lint, "-d", tmp_path, "-cp", ":".join(map(str, jars))]
    subprocess.run([*command, *(str(jvm.SOURCES / file) for file in engine.sources)], check=True)


@pytest.mark.nightly
@needs_jars
def test_a_framework_delivers_what_it_must_each_time(engine, streamed):
    samples = measure("kafka-rates", "Z", 1_000, [engine], SIZES["Z 1k"].check, 1)
    assert [one.messages for one in samples] == [COUNT]
    assert all(one.seconds > 0 and one.processor_seconds > 0 for one in samples)
    assert engine.run().matches == int(streamed.lengths(COUNT).sum()) > COUNT / 2


@pytest.mark.nightly
@needs_jars
@pytest.mark.parametrize("kind", ENGINES, ids=lambda one: one.name)
def test_replies_are_found_by_their_correlation_ids(kind, kafka, tmp_path):
    # The topic of the class has those of the other tests.
    replies = type("Replies", (kind,), {"to": f"replies-by-{kind.name}"})
    size = SIZES["R 1k"]
    with Streamed(size, tmp_path, kafka) as streamed, made(replies, streamed) as engine:
        assert engine.judge() == size.check


@pytest.mark.nightly
@needs_jars
def test_a_delivery_is_its_message_with_four_headers_more(engine, streamed):
    topic, before = streamed.topic(COUNT), streamed.ends(engine.to)
    engine.start(topic, COUNT, None).wait()
    messages = {(one.partition(), one.offset()): one for one in streamed.records(topic)}
    found = list(streamed.records(engine.to, before))
    assert sum(streamed.ends(engine.to)) - sum(before) > len(found)  # marks of transactions
    streamed.clear(engine.to)
    ids = set()
    for one in found:
        *own, subscription, delivery, revision, batch = one.headers()
        source, partition, offset, rule = delivery[1].decode().split("/")
        message = messages[int(partition), int(offset)]
        assert (one.key(), one.value(), own) == (message.key(), message.value(), message.headers())
        assert subscription == ("selectroute-subscription", rule.encode())
        assert (source, revision) == (topic, ("selectroute-revision", b"1"))
        assert [delivery[0], batch[0]] == ["selectroute-delivery-id", "selectroute-batch"]
        ids.add(delivery)
    assert len(ids) == len(found) > 0


@pytest.mark.nightly
@needs_jars
def test_a_framework_that_cannot_go_on_says_why(engine, streamed):
    headers = [("JMSType", b"t38"), ("color", b"c26"), ("weight", b"heavy")]
    if "heavy" not in streamed.broker.topics():
        streamed.create("heavy")
        streamed.broker.produce("heavy", [(0, b"k", b"body", headers)])
    with made(type(engine), streamed) as other:
        query = other.start("heavy", 1, None)
        with pytest.raises(kafka_relay.EndedError, match="ended with code 1"):
            query.wait()
        assert '"heavy"' in other._log.read_text()


@pytest.mark.nightly
@needs_jars
def test_latency_is_until_the_commit_and_needs_no_trigger(engine, streamed, monkeypatch):
    monkeypatch.setattr(kafka_latency, "_WARM_SECONDS", 0.5)
    monkeypatch.setattr(kafka_latency, "_FIRST_SECONDS", 0.5)
    points = {"triggers": (0.0, 0.5), "rates": (200,)}
    [sample] = kafka_latency.measured([engine], streamed, 1.0, 1, **points)
    assert (sample.engine, sample.messages) == (f"{engine.name} 200 0", 200)
    assert 0 < sample.p50_us <= sample.p99_us
