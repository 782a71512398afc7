"""A broker and its clients, over sockets: topics, queues, outcomes, transactions, delays, and who may."""

from __future__ import annotations

import time

import pytest

from selectroute.amqp.performatives import (
    Accepted,
    Declare,
    Discharge,
    Flow,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from selectroute.amqp.sections import read_value
from selectroute.broker.broker import MOST_DELIVERIES
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueues
from tests.support.components import after_first

DURABLE = pytest.mark.parametrize("durable", after_first(pytest.mark.slow, True, False))
"""Whether messages are persistent."""


# ---- topics


def test_consumers_of_a_topic_get_what_their_selectors_select(broker):
    with broker.client("a") as producer, broker.client("b") as consumer:
        heavy = consumer.consumer("cars.eu", "topic", selector="weight > 2500 AND JMSType = 'car'")
        wild = consumer.consumer("cars.+", "topic", selector="color = 'red'")
        link = producer.producer("cars.eu", "topic")
        for body, parts in (
            ("one", {"weight": 3_000, "color": "red"}),
            ("two", {"weight": 1, "color": "red"}),
        ):
            assert producer.send(link, body, subject="car", **parts) == Accepted()
        got = [consumer.receive() for _ in range(3)]
        assert sorted((one[0].handle, read_value(one[1])) for one in got) == [
            (heavy, "one"),
            (wild, "one"),
            (wild, "two"),
        ]
        assert consumer.has_none()


def test_the_bare_message_arrives_byte_for_byte(broker):
    with broker.client() as client:
        client.consumer("t", "topic")
        client.send(
            client.producer("t", "topic"), "body", message_id="ID:1", color="red", deep={"a": [1, None]}
        )
        sent = client.receive()[1]
        assert (sent.properties.message_id, sent.application_properties["deep"]) == ("ID:1", {"a": [1, None]})


def test_consumers_that_share_a_subscription_divide_its_messages(broker):
    with broker.client("a") as one, broker.client("b") as other:
        for client in (one, other):
            client.consumer("t", "topic", "shared", "global", name="team|global")
        link = one.producer("t", "topic")
        for number in range(10):
            one.send(link, str(number))
        got = [client.texts(client.waiting(0.3)) for client in (one, other)]
        assert sorted(got[0] + got[1]) == [str(number) for number in range(10)]
        assert all(got), "both get some"
        other.consumer("u", "topic", "shared", "global", name="team|global")
        assert other.refusal().condition == "amqp:resource-locked"


def test_a_consumer_without_local_messages(broker):
    with broker.client("a") as one, broker.client("b") as other:
        one.consumer("t", "topic", no_local=True)
        one.send(one.producer("t", "topic"), "own")
        other.send(other.producer("t", "topic"), "other")
        assert one.texts(1) == ["other"]


@pytest.mark.parametrize(
    ("address", "kind", "selector", "condition", "sentence"),
    [
        ("q", "queue", "weight >", "amqp:invalid-field", "weight >"),
        ("t", "topic", "weight >", "amqp:invalid-field", "weight >"),
        ("a/b#", "topic", None, "amqp:invalid-field", "whole levels"),
        ("q?dialect=nothing", "queue", "a = 1", "amqp:invalid-field", "nothing"),
        ("q?size=1", "queue", None, "amqp:invalid-field", "option"),
    ],
)
def test_what_a_consumer_cannot_have_is_refused_with_our_sentence(
    broker, address, kind, selector, condition, sentence
):
    with broker.client() as client:
        client.consumer(address, kind, selector=selector)
        refusal = client.refusal()
        assert refusal.condition == condition
        assert sentence in refusal.description


def test_a_dialect_of_selectors_by_the_address(broker):
    with broker.client() as client:
        client.consumer("t?dialect=ibm-mq", "topic", selector="Root.MQMD.Priority = 7")
        link = client.producer("t", "topic")
        client.send(link, "no", priority=4)
        client.send(link, "yes", priority=7)
        assert client.texts(1) == ["yes"]


# ---- queues


@DURABLE
def test_messages_of_a_queue_wait_for_a_consumer_in_order_of_priority(broker, durable):
    with broker.client() as client:
        link = client.producer("orders of Zoë")
        for body, priority in (("low", 1), ("high", 9), ("middle", 5)):
            assert client.send(link, body, durable=durable, priority=priority) == Accepted()
        client.consumer("orders of Zoë")
        assert client.texts(3) == ["high", "middle", "low"]
        assert client.has_none()


@DURABLE
def test_a_consumer_that_waits_gets_what_its_selector_selects(broker, durable):
    with broker.client() as client:
        red = client.consumer("q", selector="color = 'red'")
        assert client.has_none(0.1)
        link = client.producer("q")
        for number in range(6):
            client.send(link, str(number), durable=durable, color="red" if number % 2 else "blue")
        assert client.texts(3) == ["1", "3", "5"]
        client.detach(red)
        client.consumer("q")
        assert client.texts(3) == ["0", "2", "4"]


@DURABLE
def test_what_is_not_settled_comes_again_when_its_consumer_has_gone(broker, durable):
    with broker.client("a") as producer:
        link = producer.producer("q")
        for body in "abc":
            producer.send(link, body, durable=durable)
        with broker.client("b") as consumer:
            consumer.consumer("q")
            first, _, _ = [consumer.receive() for _ in range(3)]
            consumer.settle(first[0], Accepted())
            consumer.has_none(0.2)
        producer.consumer("q")
        again = [producer.receive()[1] for _ in range(2)]
        assert [(read_value(one), one.header.delivery_count) for one in again] == [("b", 1), ("c", 1)]


@DURABLE
@pytest.mark.parametrize(
    ("outcome", "counts"),
    [(Released(), [0, 0, 0]), (Modified(), [0, 0, 0]), (Modified(True), [0, 1, 2])],
    ids=["released", "modified", "failed"],
)
def test_a_message_that_is_returned_comes_again(broker, durable, outcome, counts):
    with broker.client() as client:
        client.send(client.producer("q"), "a", durable=durable)
        client.consumer("q")
        seen = []
        for _ in counts:
            transfer, message = client.receive()
            seen.append(message.header.delivery_count)
            client.settle(transfer, outcome)
        assert seen == counts


@DURABLE
def test_a_message_that_fails_too_often_is_a_dead_letter(broker, durable):
    with broker.client() as client:
        client.send(client.producer("q"), "poison", durable=durable, color="red")
        consumer = client.consumer("q")
        for _ in range(MOST_DELIVERIES):
            client.settle(client.receive()[0], Modified(True))
        assert client.has_none()
        client.detach(consumer)
        client.consumer("DLQ", selector="color = 'red'")
        assert client.texts(1) == ["poison"]


@DURABLE
@pytest.mark.parametrize("outcome", [Rejected(), Modified(True, True)], ids=["rejected", "undeliverable"])
def test_a_rejected_message_is_a_dead_letter(broker, durable, outcome):
    with broker.client() as client:
        client.send(client.producer("q"), "bad", durable=durable)
        client.consumer("q")
        client.settle(client.receive()[0], outcome)
        assert client.has_none(0.1)
        client.consumer("DLQ")
        assert client.texts(1) == ["bad"]


@DURABLE
def test_a_browser_gets_copies_of_all_and_then_its_drain_is_answered(broker, durable):
    with broker.client() as client:
        link = client.producer("q")
        for number in range(5):
            client.send(link, str(number), durable=durable, n=number)
        browser = client.consumer("q", selector="n > 1", distribution_mode="copy", settles=True, credit=2)
        assert client.texts(2) == ["2", "3"]
        client.credit(browser, 9, drain=True)
        assert client.texts(1) == ["4"]
        client.detach(browser)
        client.consumer("q")
        assert client.texts(5) == list("01234")


def test_a_drained_consumer_without_messages_is_answered(broker):
    with broker.client() as client:
        handle = client.consumer("q", credit=0)
        client.credit(handle, 5, drain=True)
        flow = client.wait_for(Flow)
        assert (flow.link_credit, flow.drain) == (0, True)
        client.send(client.producer("q"), "a", durable=True)
        assert client.has_none()  # it has no credit any more


@DURABLE
def test_a_message_that_has_expired_is_not_delivered(broker, durable):
    with broker.client() as client:
        link = client.producer("q")
        client.send(link, "gone", durable=durable, ttl=1)
        client.send(link, "stays", durable=durable, ttl=60_000)
        time.sleep(0.05)
        client.consumer("q")
        message = client.receive()[1]
        assert (read_value(message), 0 < message.header.ttl <= 60_000) == ("stays", True)


@DURABLE
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_delayed_message_comes_when_it_is_due(broker, durable, kind):
    with broker.client() as client:
        client.consumer("d", kind)
        due = int(time.time() * 1000) + 400
        client.send(client.producer("d", kind), "later", durable=durable, due=due, message_id="ID:x")
        message = client.receive()[1]
        assert time.time() * 1000 >= due
        assert (read_value(message), message.properties.message_id) == ("later", "ID:x")


def test_messages_survive_a_restart_if_they_are_persistent(start):
    first = start()
    due = int(time.time() * 1000) + 1_500
    with first.client() as client:
        link = client.producer("q")
        client.send(link, "kept", durable=True, message_id="ID:kept", color="red")
        client.send(link, "lost")
        client.send(link, "delayed", durable=True, due=due)
        client.consumer("q")
        assert client.texts(1, settle=Released()) in (["kept"], ["lost"])
    first.stop()
    with start().client() as client:
        client.consumer("q", selector="JMSMessageID = 'ID:kept' OR color IS NULL")
        assert client.texts(1) == ["kept"]
        assert client.texts(1) == ["delayed"]
        assert time.time() * 1000 >= due
        assert client.has_none(0.1)


def test_messages_of_other_users_of_the_queue_go_both_ways(broker):
    with broker.client() as client:
        client.send(client.producer("Q"), "from JMS", durable=True, color="red", message_id="ID:j-1")
        queue = broker.queues.open("Q")
        got = queue.get(selector="color = 'red' AND JMSMessageID = 'ID:j-1'")
        assert got.body == b"from JMS"
        queue.put(b"to JMS", properties={"color": "blue", "JMSType": "note", "JMSCorrelationID": "c"})
        queue.put(b"\xff\x00")
        client.consumer("Q")
        first, second = client.receive()[1], client.receive()[1]
        assert read_value(first) == "to JMS"
        assert (first.properties.subject, first.properties.correlation_id) == ("note", "c")
        assert first.application_properties["color"] == "blue"
        assert second.rest.endswith(b"\xff\x00")


def test_a_waiting_consumer_gets_what_another_process_puts(broker):
    with broker.client() as client, SqlQueues(broker.url) as others:
        client.consumer("Q", selector="color = 'red'")
        assert client.has_none(0.2)
        queue = others.open("Q")
        queue.put(b"blue", properties={"color": "blue"})
        queue.put(b"red", properties={"color": "red"})
        assert client.texts(1) == ["red"]
        unit = queue.unit()
        queue.put(b"later", properties={"color": "red"}, syncpoint=unit)
        assert client.has_none(0.2)
        unit.commit()
        assert client.texts(1) == ["later"]


def test_a_full_queue_refuses(broker):
    broker.queues.create("FULL", QueueSettings(max_depth=1))
    with broker.client() as client:
        link = client.producer("FULL")
        assert client.send(link, "a", durable=True) == Accepted()
        refused = client.send(link, "b", durable=True)
        assert refused.error.condition == "amqp:resource-limit-exceeded"
        assert "maximum depth" in refused.error.description
        client.consumer("FULL")
        assert client.texts(1) == ["a"]
        assert client.send(link, "c", durable=True) == Accepted()


# ---- anonymous producers, temporary destinations


def test_a_producer_without_a_destination(broker):
    with broker.client() as client:
        link = client.producer(None)
        client.consumer("q")
        assert client.send(link, "a", to="q") == Accepted()
        assert client.texts(1) == ["a"]
        client.consumer("t", "topic")
        assert client.send(link, "b", to="topic://t") == Accepted()
        assert client.texts(1) == ["b"]
        assert client.send(link, "c").error.condition == "amqp:invalid-field"


def test_a_temporary_queue_lives_as_long_as_its_link(broker):
    with broker.client("a") as owner, broker.client("b") as other:
        handle = owner.producer(None, "temporary-queue", dynamic=True)
        name = owner.attached.target.address
        owner.consumer(name, "temporary-queue")
        assert other.send(other.producer(name), "reply") == Accepted()
        assert owner.texts(1) == ["reply"]
        owner.detach(handle)
        gone = other.send(other.producer(None), "late", to=name)
        assert gone.error.condition == "amqp:not-found"
        assert name not in broker.queues.names()


# ---- transactions


@DURABLE
def test_a_transaction_is_done_whole_when_it_is_committed(broker, durable):
    with broker.client("a") as client, broker.client("b") as other:
        client.send(client.producer("in"), "job", durable=durable)
        coordinator = client.coordinator()
        txn = client.command(coordinator, Declare()).txn_id
        client.consumer("in")
        other.consumer("out")
        other.consumer("events", "topic")
        transfer, _ = client.receive()
        state = TransactionalState(txn)
        out, events = client.producer("out"), client.producer("events", "topic")
        assert client.send(out, "result", durable=durable, state=state).outcome == Accepted()
        client.send(events, "event", state=state)
        client.settle(transfer, TransactionalState(txn, Accepted()))
        assert other.has_none(0.2)
        assert client.command(coordinator, Discharge(txn)) == Accepted()
        assert sorted(other.texts(2)) == ["event", "result"]
        assert client.has_none(0.1)
        assert client.command(coordinator, Discharge(txn)).error.condition == "amqp:transaction:unknown-id"


@DURABLE
@pytest.mark.parametrize("how", ["rollback", "detach", "cut"])
def test_a_transaction_that_is_rolled_back_sends_nothing_and_what_it_got_comes_again(broker, durable, how):
    with broker.client("b") as other:
        other.send(other.producer("in"), "job", durable=durable)
        with broker.client("a") as client:
            coordinator = client.coordinator()
            txn = client.command(coordinator, Declare()).txn_id
            handle = client.consumer("in")
            transfer, _ = client.receive()
            client.send(client.producer("out"), "result", durable=durable, state=TransactionalState(txn))
            client.settle(transfer, TransactionalState(txn, Accepted()))
            client.detach(handle)
            if how == "rollback":
                assert client.command(coordinator, Discharge(txn, True)) == Accepted()
            elif how == "detach":
                client.detach(coordinator)
        other.consumer("out")
        other.consumer("in")
        _, message = other.receive()
        assert (read_value(message), message.header.delivery_count) == ("job", 1)
        assert other.has_none(0.2)


def test_a_transaction_with_a_full_queue_does_nothing(broker):
    broker.queues.create("FULL", QueueSettings(max_depth=0))
    with broker.client() as client:
        client.send(client.producer("in"), "job", durable=True)
        coordinator = client.coordinator()
        txn = client.command(coordinator, Declare()).txn_id
        consumer = client.consumer("in")
        transfer, _ = client.receive()
        for name in ("out", "FULL"):
            client.send(client.producer(name), "result", durable=True, state=TransactionalState(txn))
        client.settle(transfer, TransactionalState(txn, Accepted()))
        refused = client.command(coordinator, Discharge(txn))
        assert refused.error.condition == "amqp:resource-limit-exceeded"
        assert client.texts(1) == ["job"]
        client.detach(consumer)
        client.consumer("out")
        assert client.has_none(0.2)


# ---- who may


def test_a_container_is_connected_once(broker):
    with broker.client("solo"), broker.client("solo") as second:
        assert second.closed.error.condition == "amqp:invalid-field"
        assert second.closed.error.info == {"invalid-field": "container-id"}
    with broker.client("solo") as third:
        assert third.closed is None


def test_a_token_says_what_its_client_may(broker):
    _, secret = broker.registry.tokens.add("writer", topics=["cars/#"], queues=["CARS.*"])
    _, reading = broker.registry.tokens.add("reader", topics=["cars/#"], queues=["CARS.*"])
    assert broker.client(password="wrong").outcome == 1
    with broker.client("w", password=secret) as writer, broker.client("r", password=reading) as reader:
        reader.consumer("cars.eu", "topic")
        assert writer.send(writer.producer("cars.eu", "topic"), "a") == Accepted()
        assert reader.texts(1) == ["a"]
        assert writer.send(writer.producer("CARS.IN"), "b") == Accepted()
        anonymous = writer.producer(None)
        assert writer.send(anonymous, "c", to="topic://planes").error.condition == "amqp:unauthorized-access"
        for client, attach in (
            (writer, lambda: writer.producer("PLANES")),
            (writer, lambda: writer.consumer("planes", "topic")),
            (reader, lambda: reader.producer("cars.eu", "topic")),
            (reader, lambda: reader.consumer("CARS.IN")),
        ):
            attach()
            assert client.refusal().condition == "amqp:unauthorized-access"


# ---- bounds


def test_a_consumer_that_settles_nothing_gets_a_bounded_number_of_bytes(broker):
    with broker.client("a") as producer, broker.client("b") as consumer:
        consumer.consumer("q", credit=1_000)
        link = producer.producer("q")
        for _ in range(30):
            assert producer.send(link, "x" * 1_000_000) == Accepted()
        count = consumer.waiting(1.0)
        assert 16 <= count <= 18
        assert len(set(consumer.texts(30))) == 1


def test_a_topic_s_consumer_that_reads_nothing_loses_the_oldest(broker):
    with broker.client() as client:
        handle = client.consumer("t", "topic", credit=0)
        link = client.producer("t", "topic")
        for number in range(70):
            client.send(link, f"{number} " + "x" * 1_000_000)
        client.credit(handle, 1_000)
        first = client.texts(1)[0]
        assert int(first.partition(" ")[0]) in (3, 4, 5, 6)


def test_what_is_not_durable_yet_holds_back_its_senders(broker):
    with broker.client() as client:
        link = client.producer("q")
        ids = [client.send_later(link, "x" * 1_000_000, durable=True) for _ in range(100)]
        assert [client.outcome_of(id) for id in ids] == [Accepted()] * 100
        assert broker.server.broker.pending_bytes == 0
        assert broker.server.paused == set()
