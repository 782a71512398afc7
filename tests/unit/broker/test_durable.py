"""Durable subscriptions: rows of the registry with queues of their own, over sockets."""

from __future__ import annotations

import pytest

import selectroute as sr
from selectroute.amqp.performatives import Accepted, Attach, Detach
from selectroute.index.specification import Destination
from tests.support.amqp import SocketClient
from tests.support.components import after_first


def subscribe(client: SocketClient, topic: str, *more: str, name: str = "audit", **options) -> int:
    """Attach a durable consumer."""
    return client.consumer(topic, "topic", *more, name=name, durable=2, distribution_mode="copy", **options)


def leave(client: SocketClient, handle: int) -> None:
    """Detach a durable consumer, whose subscription stays."""
    client.say(Detach(handle, False))
    client.wait_for(Detach)


def unsubscribe(client: SocketClient, name: str = "audit", capability: str | None = None):
    """End a subscription as Qpid JMS does; return the error, if it is refused."""
    wanted = None if capability is None else [capability]
    client.say(Attach(name, 99, True, source=None, target=None, desired_capabilities=wanted))
    attached = client.wait_for(Attach)
    if attached.source is None:
        return client.refusal()
    client.say(Detach(99, True))
    return client.wait_for(Detach).error


@pytest.fixture
def producer(broker):
    with broker.client("producer") as client:
        link = client.producer("cars.eu", "topic")
        client.publish = lambda body, *, durable=True, **parts: client.send(
            link, body, durable=durable, **parts
        )
        yield client


@pytest.mark.parametrize("durable", after_first(pytest.mark.slow, True, False))
def test_a_subscription_gets_what_was_published_while_its_client_was_away(broker, producer, durable):
    with broker.client("ada") as client:
        handle = subscribe(client, "cars.+", selector="weight > 5")
        assert producer.publish("live", durable=durable, weight=6) == Accepted()
        assert client.texts(1) == ["live"]
        leave(client, handle)
        for body, weight in (("away", 7), ("light", 1)):
            producer.publish(body, durable=durable, weight=weight)
    with broker.client("ada") as client:
        subscribe(client, "cars.+", selector="weight > 5")
        assert client.texts(1) == ["away"]
        assert client.has_none()


def test_a_subscription_is_a_row_of_the_registry(broker, producer):
    with broker.client("ada") as client:
        subscribe(client, "cars.eu", selector="weight > 5")
        (row,) = broker.registry.list().items
        assert (row.topic, row.selector, row.destination.kind) == ("cars/eu", "weight > 5", "queue")
        assert dict(row.labels) == {"jms-client": "ada", "jms-subscription": "audit"}
        assert broker.queues.names() == ["DLQ", row.destination.name, "selectroute.delayed"]
        explained = broker.registry.explain(row.id, sr.Message(properties={"weight": 9}, topic="cars/eu"))
        assert explained["matched"]


def test_a_message_is_matched_once_more_after_its_queues_were_opened_however_many(start, monkeypatch):
    names = [f"audit-{number}" for number in range(6)]
    first = start()
    with first.client("ada") as client:
        for name in names:
            leave(client, subscribe(client, "t", name=name))
    first.stop()
    second, matched = start(), []
    durable = second.server.broker.durable
    match = durable.match
    monkeypatch.setattr(durable, "match", lambda message: matched.append(message) or match(message))
    with second.client("producer") as client:
        assert client.send(client.producer("t", "topic"), "sent", durable=True) == Accepted()
    assert len(matched) == 2
    with second.client("ada") as client:
        for name in names:
            subscribe(client, "t", name=name)
        assert client.texts(len(names)) == ["sent"] * len(names)


def test_a_subscription_survives_a_restart_of_the_broker(start):
    first = start()
    with first.client("ada") as client:
        leave(client, subscribe(client, "t"))
        client.send(client.producer("t", "topic"), "kept", durable=True)
        client.send(client.producer("t", "topic"), "lost", durable=False)
    first.stop()
    with start().client("ada") as client:
        client.send(client.producer("t", "topic"), "new", durable=True)
        subscribe(client, "t")
        assert client.texts(2) == ["kept", "new"]
        assert client.has_none(0.1)


def test_other_terms_replace_a_subscription_and_drop_its_messages(broker, producer):
    with broker.client("ada") as client:
        leave(client, subscribe(client, "cars.eu", selector="weight > 5"))
        producer.publish("old", weight=6)
        subscribe(client, "cars.eu", selector="weight < 5")
        producer.publish("no", weight=6)
        producer.publish("yes", weight=4)
        assert client.texts(1) == ["yes"]
        assert client.has_none()


def test_a_subscription_that_has_ended_is_gone_with_its_queue(broker, producer):
    with broker.client("ada") as client:
        leave(client, subscribe(client, "cars.eu"))
        producer.publish("dropped")
        assert unsubscribe(client) is None
        assert broker.registry.list().items == []
        assert broker.queues.names() == ["DLQ", "selectroute.delayed"]
        assert unsubscribe(client).condition == "amqp:not-found"
        subscribe(client, "cars.eu")
        producer.publish("again")
        assert client.texts(1) == ["again"]


def test_a_subscription_has_one_consumer_and_does_not_end_before_it(broker):
    with broker.client("ada") as client:
        handle = subscribe(client, "t")
        subscribe(client, "t")
        assert client.refusal().condition == "amqp:resource-locked"
        assert unsubscribe(client).condition == "amqp:resource-locked"
        leave(client, handle)
        assert unsubscribe(client) is None


def test_consumers_of_several_clients_share_a_subscription(broker, producer):
    with broker.client("a") as one, broker.client("b") as other:
        for client in (one, other):
            subscribe(client, "cars.eu", "shared", "global", name="team|global")
        for number in range(10):
            producer.publish(str(number))
        got = [client.texts(client.waiting(0.3)) for client in (one, other)]
        assert sorted(got[0] + got[1]) == [str(number) for number in range(10)]
        assert all(got), "both get some"
        one.close()
        producer.publish("rest")
        assert other.texts(1) == ["rest"]


def test_clients_have_subscriptions_of_their_own_by_the_same_name(broker, producer):
    with broker.client("a") as one, broker.client("b") as other:
        subscribe(one, "cars.eu", selector="n = 1")
        subscribe(other, "cars.eu", selector="n = 2")
        producer.publish("1", n=1)
        producer.publish("2", n=2)
        assert (one.texts(1), other.texts(1)) == (["1"], ["2"])


def test_a_subscription_without_local_messages(start):
    first = start()
    with first.client("ada") as client, first.client("other") as other:
        subscribe(client, "t", no_local=True)
        client.send(client.producer("t", "topic"), "own", durable=True)
        other.send(other.producer("t", "topic"), "other", durable=True)
        assert client.texts(1) == ["other"]
    first.stop()
    with start().client("ada") as client:
        client.send(client.producer("t", "topic"), "own", durable=True)
        subscribe(client, "t", no_local=True)
        assert client.has_none()


def test_a_message_to_many_subscriptions_is_stored_once(broker, producer):
    from sqlalchemy import func, select

    from selectroute.queues.sql.tables import message, shared_body

    with broker.client("ada") as client:
        for number in range(5):
            leave(client, subscribe(client, "cars.eu", name=f"s{number}"))
        producer.publish("x" * 500)
        store = broker.queues.open("DLQ").store.database.store
        with store.reading() as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (message, shared_body)
            ]
        assert counts == [5, 1]


def test_subscriptions_of_the_registry_with_a_queue_get_messages(broker, producer):
    broker.queues.create("CARS")
    spec = sr.SubscriptionSpec("color = 'red'", "cars/#", destination=Destination("queue", "CARS"))
    made = broker.registry.register(spec)
    assert broker.publishing.caught_up(made.revision, 20) is not None
    producer.publish("red", color="red")
    producer.publish("blue", color="blue")
    queue = broker.queues.open("CARS")
    assert (queue.get().body, queue.depth) == (b"red", 0)


def test_a_token_makes_subscriptions_within_its_topics(broker):
    _, secret = broker.registry.tokens.add("reader", topics=["cars/#"])
    with broker.client("r", password=secret) as client:
        subscribe(client, "cars.eu")
        assert client.attached.source is not None
        (row,) = broker.registry.list().items
        assert row.topic == "cars/eu"
        subscribe(client, "planes", name="other")
        assert client.refusal().condition == "amqp:unauthorized-access"
