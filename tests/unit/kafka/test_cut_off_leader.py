"""A leader of three brokers is cut off from the others, and not from the job: it goes on to answer."""

import pytest

pytest.importorskip("kafka.net.manager", reason="kafka-python is not installed (the extra `kafka`)")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed (the extra `kafka`)")

from selectroute.kafka.cluster import LATEST, Wire
from selectroute.kafka.reading import read
from selectroute.kafka.record import Range
from selectroute.kafka.tokens import CommitToken, open_topic, scan, tokens_of, write_token
from selectroute.kafka.transactions import Transactions
from selectroute.spark import JavaError
from selectroute.testing.broker import BrokerError
from selectroute.testing.jars import JarError
from tests.support.components import missing
from tests.support.servers.kafka_cluster import cluster
from tests.unit.kafka.test_broker import begin_to_send

pytestmark = pytest.mark.nightly


@pytest.fixture
def brokers(tmp_path):
    try:
        with cluster(tmp_path) as one:
            yield one
    except (BrokerError, JarError, JavaError) as error:
        missing(f"Kafka cannot be had here: {error}")


def wire_to(servers, seconds=90.0):
    return Wire(servers, {}, seconds, request_seconds=4)


def leader_of(servers, place):
    with wire_to(servers) as wire:
        return next(iter(wire.leaders([place])))


def others(brokers, node):
    return ",".join(address for n, address in brokers.addresses.items() if n != node)


def deposed(brokers, place):
    """Cut the leader of a partition off, until the others have another one; return it."""
    old = leader_of(brokers.servers, place)
    brokers.cut_off(old)
    brokers.until(lambda: leader_of(others(brokers, old), place) != old)
    return old


def sent_once(wire, tokens, topic):
    """Send a delivery unless its token is there, as a task does; return whether it was sent."""
    transactions = Transactions(wire, "job-0", 30)
    transactions.begin()
    found, _ = tokens_of(wire, tokens, "stream", 1, 0)
    if not found:
        begin_to_send(transactions, topic, b"delivery")
        write_token(transactions, tokens, CommitToken("stream", 1, 0, 0, "plan", 1))
        transactions.commit()
    return not found


def offsets(wire, start, end, **known):
    parts = read(wire, [Range("in", 0, start, end, **known)])
    return [offset for part in parts for offset in part.records["offset"].to_pylist()]


def test_a_deposed_leader_hides_no_commit_token_and_loses_no_record(brokers):
    with wire_to(brokers.servers) as old_worker:
        for topic in ("in", "out"):
            old_worker.create(topic, 1, {})
        tokens = open_topic(old_worker, "tokens", must_exist=False)
        place = ("tokens", tokens.partition(0))
        producer = Transactions(old_worker, "input", 30)
        producer.begin()
        begin_to_send(producer, "in", *[b"x"] * 10)
        producer.commit()
        Transactions(old_worker, "job-0", 30).begin()
        old_worker.offsets([("in", 0), place], LATEST)  # it knows the leaders, and is connected to them

        old = deposed(brokers, place)
        assert old_worker._leaders[place] == old
        with wire_to(others(brokers, old)) as wire:
            assert sent_once(wire, tokens, "out")
        assert not sent_once(old_worker, tokens, "out")
        for _ in range(3):
            with wire_to(brokers.servers) as wire:
                assert not sent_once(wire, tokens, "out")
                assert len(scan(wire, tokens)[1]) == 1
        brokers.join(old)

        old = deposed(brokers, ("in", 0))
        with wire_to(others(brokers, old)) as wire:
            begin = wire.offsets([("in", 0)], LATEST)["in", 0]
            producer = Transactions(wire, "input", 30)
            producer.begin()
            begin_to_send(producer, "in", *[b"y"] * 10)
            producer.commit()
            known = {"id": wire.ids["in"], "epoch": wire.epochs["in", 0]}
        for more in ({}, known):
            for start in (begin, begin + 5):
                expected = list(range(start, begin + 10))
                assert offsets(old_worker, start, begin + 10, **more) == expected
                with wire_to(brokers.servers) as wire:
                    assert offsets(wire, start, begin + 10, **more) == expected
        brokers.join(old)
    records = brokers.brokers[1].records("out")
    assert [one.value() for one in records] == [b"delivery"]
