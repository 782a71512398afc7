"""Transactions of a broker whose database fails, or considers it dead."""

from __future__ import annotations

import time

import pytest

from selectroute.amqp.performatives import Accepted, Close
from selectroute.broker import groups
from selectroute.queues.errors import MQRC_BACKED_OUT, failed
from selectroute.queues.sql.queue import SqlQueues
from selectroute.store.errors import ReadOnlyError


@pytest.fixture
def fails(monkeypatch):
    """A list of errors, each of which the next transaction raises."""
    errors = []
    transact = groups.transact

    def failing(works, takes):
        if errors:
            raise errors.pop(0)
        transact(works, takes)

    monkeypatch.setattr(groups, "transact", failing)
    monkeypatch.setattr(groups, "RETRY_SECONDS", 0.05)
    return errors


def test_a_send_is_refused_while_the_database_fails_and_then_taken(broker, fails):
    with broker.client() as client:
        link = client.producer("q")
        fails.append(ReadOnlyError("the disk is full"))
        refused = client.send(link, "a", durable=True)
        assert (refused.error.condition, "disk is full" in refused.error.description) == (
            "amqp:internal-error",
            True,
        )
        assert client.send(link, "b", durable=True) == Accepted()
        client.consumer("q")
        assert client.texts(1) == ["b"]
        assert client.has_none(0.1)


def test_a_settlement_is_written_again_after_the_database_has_failed(broker, fails):
    with broker.client() as client:
        client.send(client.producer("q"), "a", durable=True)
        handle = client.consumer("q")
        transfer, _ = client.receive()
        fails += [ReadOnlyError("the disk is full")] * 3
        client.settle(transfer, Accepted())
        deadline = time.monotonic() + 20
        while fails and time.monotonic() < deadline:
            time.sleep(0.02)
        client.detach(handle)
    broker.stop()
    with SqlQueues(broker.url) as queues:
        assert queues.open("q").depth == 0


def test_a_consumer_gets_its_messages_once_the_database_has_recovered(broker, fails):
    with broker.client() as client:
        client.send(client.producer("q"), "a", durable=True)
        fails += [ReadOnlyError("the disk is full")] * 3
        client.consumer("q")
        assert client.texts(1) == ["a"]
        assert fails == []


def test_clients_are_closed_if_the_broker_was_taken_for_dead(broker, fails):
    with broker.client("a") as client, broker.client("b") as other:
        fails.append(failed(MQRC_BACKED_OUT, "this process was cut off"))
        link = client.producer("q")
        client.send_later(link, "a", durable=True)
        for each in (client, other):
            assert each.wait_for(Close).error.condition == "amqp:connection:forced"
    with broker.client("a") as client:
        assert client.send(client.producer("q"), "b", durable=True) == Accepted()
