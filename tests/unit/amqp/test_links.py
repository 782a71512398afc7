"""Links: messages both ways, credit, windows, settlement, transactions, and what breaks them."""

from __future__ import annotations

from typing import Any

import pytest

from selectroute.amqp.errors import NOT_FOUND, AmqpError
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Released,
    SourceTerminus,
    TargetTerminus,
    TransactionalState,
    Transfer,
    write,
)
from selectroute.amqp.session import (
    CreditChanged,
    DeliveriesSettled,
    LinkDetached,
    Receiver,
    Sender,
    TransactionDeclared,
    TransactionDischarged,
    TransferReceived,
)
from selectroute.amqp.types import described
from tests.support.amqp import Client, Frame, frame, text_message

MESSAGE = text_message("hello")


def deliveries(client: Client) -> list[Any]:
    """Return what the client has sent, and forget it."""
    found = [event.delivery for event in client.events if isinstance(event, TransferReceived)]
    client.events.clear()
    return found


def settled(client: Client) -> list[tuple[list[Any], Any]]:
    """Return what the client has settled, and forget it."""
    found = [
        (event.deliveries, event.state) for event in client.events if isinstance(event, DeliveriesSettled)
    ]
    client.events.clear()
    return found


def transfers(client: Client) -> list[Frame]:
    """Return the transfers to the client."""
    return [
        found
        for found in client.frames()
        if isinstance(found, Frame) and isinstance(found.performative, Transfer)
    ]


# ---- attaching


def test_a_producer_gets_its_target_and_credit() -> None:
    client = Client().open()
    attach = Attach(
        "p", 3, False, source=SourceTerminus(), target=TargetTerminus("cars"), initial_delivery_count=7
    )
    answer, flow = client.say(attach)
    assert (answer.name, answer.handle, answer.role) == ("p", 3, True)
    assert answer.target == TargetTerminus("cars")
    assert answer.max_message_size == ConnectionLimits().message
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (3, 7, 10)


def test_a_consumer_gets_its_source() -> None:
    client = Client().open()
    (answer,) = client.say(Attach("c", 0, True, source=SourceTerminus("cars"), target=TargetTerminus()))
    assert (answer.role, answer.source, answer.initial_delivery_count) == (False, SourceTerminus("cars"), 0)


@pytest.mark.parametrize("role", [True, False])
def test_a_refused_attach_is_answered_by_attach_and_detach(role: bool) -> None:
    client = Client().open()
    attach = frame(Attach("x", 0, role, source=SourceTerminus("cars"), target=TargetTerminus("cars")))
    (event,) = client.connection.receive(attach)
    event.link.refuse(AmqpError(NOT_FOUND, "no such queue"))  # type: ignore[union-attr]
    answer, detach = client.answers()
    assert (answer.source if role else answer.target) is None
    assert detach == Detach(0, True, (NOT_FOUND, "no such queue", None))
    assert client.say(Flow(0, 1, 0, 1, 0, 0, 5)) == []
    assert client.say(Detach(0, True)) == []
    assert client.events == []
    client.consumer(handle=0)  # the handle is free again


def test_credit_that_comes_before_the_answer_is_kept() -> None:
    client = Client().open()
    attach = frame(Attach("x", 0, True, source=SourceTerminus("cars"), target=TargetTerminus()))
    (event,) = client.connection.receive(attach + frame(Flow(0, 100, 0, 100, 0, 0, 5)))
    link: Any = event.link  # type: ignore[union-attr]
    assert not link.can_send
    link.attach(SourceTerminus("cars"))
    assert link.can_send


# ---- messages of a producer


def test_a_message_arrives_and_is_accepted() -> None:
    client = Client().open()
    link = client.producer()
    client.say(Transfer(0, 0, b"t", 0, False), MESSAGE)
    (delivery,) = deliveries(client)
    assert (delivery.payload, delivery.is_settled, delivery.txn_id) == (MESSAGE, False, None)
    link.settle(delivery, Accepted())
    assert client.answers() == [Disposition(True, 0, None, True, Accepted())]


def test_a_message_in_parts() -> None:
    client = Client().open()
    client.producer()
    client.say(Transfer(0, 0, b"t", 0, None, True), MESSAGE[:3])
    client.say(Transfer(0, more=True), MESSAGE[3:5])
    assert deliveries(client) == []
    client.say(Transfer(0, settled=True), MESSAGE[5:])
    (delivery,) = deliveries(client)
    assert (delivery.payload, delivery.is_settled) == (MESSAGE, True)


def test_an_aborted_message_is_dropped() -> None:
    client = Client().open()
    client.producer()
    client.say(Transfer(0, 0, b"t", 0, None, True), MESSAGE[:3])
    client.say(Transfer(0, aborted=True))
    client.say(Transfer(0, 1, b"u", 0), MESSAGE)
    assert [delivery.id for delivery in deliveries(client)] == [1]


def test_accepted_deliveries_in_a_row_are_settled_by_one_frame() -> None:
    client = Client().open()
    link = client.producer()
    for id in (2**32 - 2, 2**32 - 1, 0, 1, 5, 6, 9):
        client.say(Transfer(0, id, b"t", 0), MESSAGE)
    for delivery in deliveries(client):
        link.settle(delivery, Accepted())
    assert [(answer.first, answer.last) for answer in client.answers()] == [(2**32 - 2, 1), (5, 6), (9, None)]


def test_a_refused_message_says_why() -> None:
    client = Client().open()
    link = client.producer()
    client.say(Transfer(0, 0, b"t", 0), MESSAGE)
    link.reject(deliveries(client)[0], AmqpError("amqp:resource-limit-exceeded", "the queue is full"))
    (disposition,) = client.answers()
    assert disposition.state == Rejected(("amqp:resource-limit-exceeded", "the queue is full", None))  # type: ignore[arg-type]


def test_a_message_beyond_the_credit_detaches_the_link() -> None:
    client = Client().open()
    link = client.producer()
    for id in range(11):
        answers = client.say(Transfer(0, id, b"t", 0), MESSAGE)
    (detach,) = answers
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    assert client.events[-1] == LinkDetached(link, False)
    assert len(deliveries(client)) == 10
    assert client.say(Transfer(0, 11, b"t", 0), MESSAGE) == []  # was on its way
    assert deliveries(client) == []


def test_a_message_beyond_the_limit_detaches_the_link() -> None:
    client = Client(limits=ConnectionLimits(message=10)).open()
    client.producer()
    assert client.say(Transfer(0, 0, b"t", 0, None, True), b"123456") == []
    (detach,) = client.say(Transfer(0, more=True), b"123456")
    assert detach.error.condition == "amqp:link:message-size-exceeded"


def test_a_message_needs_an_id() -> None:
    client = Client().open()
    client.producer()
    (close,) = client.say(Transfer(0, None, b"t", 0), MESSAGE)
    assert close.error.condition == "amqp:invalid-field"


def test_the_window_of_a_session_opens_again_before_it_is_used_up() -> None:
    client = Client(limits=ConnectionLimits(window=8)).open()
    link = client.producer()
    link.grant(1_000)
    client.answers()
    windows = []
    for id in range(20):
        windows += [answer.incoming_window for answer in client.say(Transfer(0, id, b"t", 0), MESSAGE)]
    assert windows == [8] * 5


# ---- transactions


def test_a_transaction_of_a_client() -> None:
    client = Client().open()
    client.say(Attach("txn", 1, False, source=SourceTerminus(), target=Coordinator()))
    coordinator: Any = client.events.pop().link  # type: ignore[union-attr]
    assert coordinator.is_coordinator
    producer = client.producer(handle=0)
    client.say(Transfer(1, 0, b"0", 0), described(0x77, write(Declare())))
    declared = client.events.pop()
    assert isinstance(declared, TransactionDeclared)
    coordinator.declared(declared.delivery, b"txn-1")
    (answer,) = client.answers()
    assert answer.state == Declared(b"txn-1")
    client.say(Transfer(0, 1, b"1", 0, state=TransactionalState(b"txn-1")), MESSAGE)
    (delivery,) = deliveries(client)
    assert delivery.txn_id == b"txn-1"
    producer.settle(delivery, Accepted())
    (answer,) = client.answers()
    assert answer.state == TransactionalState(b"txn-1", Accepted())
    client.say(Transfer(1, 2, b"2", 0), described(0x77, write(Discharge(b"txn-1", True))))
    discharged = client.events.pop()
    assert isinstance(discharged, TransactionDischarged)
    assert (discharged.txn_id, discharged.is_rollback) == (b"txn-1", True)
    coordinator.settle(discharged.delivery, Accepted())
    (answer,) = client.answers()
    assert answer.state == Accepted()


def test_distributed_transactions_are_refused() -> None:
    client = Client().open()
    client.say(Attach("txn", 1, False, source=SourceTerminus(), target=Coordinator()))
    (answer,) = client.say(Transfer(1, 0, b"0", 0), described(0x77, write(Declare(b"xid"))))
    assert answer.state.error.condition == "amqp:not-implemented"


def test_what_is_no_command_of_a_transaction_closes_the_connection() -> None:
    client = Client().open()
    client.say(Attach("txn", 1, False, source=SourceTerminus(), target=Coordinator()))
    (answer,) = client.say(Transfer(1, 0, b"0", 0), MESSAGE)
    assert answer.error.condition == "amqp:decode-error"


# ---- messages to a consumer


def test_messages_go_to_a_consumer_as_far_as_its_credit() -> None:
    client = Client().open()
    link = client.consumer(credit=2)
    link.send(MESSAGE, "first")
    link.send(MESSAGE, "second")
    assert not link.can_send
    first, second = transfers(client)
    assert (first.performative.delivery_id, second.performative.delivery_id) == (0, 1)
    assert first.performative.settled is False
    assert first.payload == MESSAGE
    assert link.unsettled == {0: "first", 1: "second"}


def test_credit_counts_from_what_the_client_has_seen() -> None:
    client = Client().open()
    link = client.consumer(credit=5)
    for _ in range(3):
        link.send(MESSAGE, None)
    client.say(Flow(1, 100, 0, 100, 0, 1, 5))  # it had seen one of three
    assert link.credit == 3
    client.say(Flow(1, 100, 0, 100, 0, 0, 0))
    assert link.credit == 0


def test_a_consumer_that_wants_settled_messages() -> None:
    client = Client().open()
    link = client.consumer(credit=1, snd_settle_mode=1)
    assert link.settles
    link.send(MESSAGE, "one")
    (transfer,) = transfers(client)
    assert transfer.performative.settled
    assert link.unsettled == {}


def test_a_drained_link_gives_its_credit_back() -> None:
    client = Client().open()
    link = client.consumer()
    client.say(Flow(0, 100, 0, 100, 0, 0, 5, drain=True))
    assert link.is_draining
    link.send(MESSAGE, None)
    client.answers()
    link.drained()
    (flow,) = client.answers()
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (5, 0, True)
    client.say(Flow(1, 100, 0, 100, 0, 5, 2))
    assert (link.credit, link.is_draining) == (2, False)


def test_a_message_larger_than_a_frame_goes_in_parts() -> None:
    client = Client().open(max_frame_size=512)
    link = client.consumer(credit=1)
    payload = text_message("x" * 2_000)
    link.send(payload, None)
    parts = transfers(client)
    assert len(parts) == 5
    assert all(len(part.payload) <= 448 for part in parts)
    assert [part.performative.more for part in parts] == [True] * 4 + [False]
    assert b"".join(part.payload for part in parts) == payload


def test_what_is_beyond_the_client_s_window_waits() -> None:
    client = Client().open(max_frame_size=512)
    link = client.consumer()
    client.say(Flow(0, 3, 0, 100, 0, 0, 9))
    client.events.clear()
    link.send(text_message("x" * 2_000), None)
    assert len(transfers(client)) == 3
    assert not link.can_send
    client.send(frame(Flow(3, 1, 0, 100)))
    assert not link.can_send
    answers = client.send(frame(Flow(4, 10, 0, 100)))
    assert len(answers) == 1
    assert client.events == [CreditChanged(link)]
    assert link.can_send
    client.send(frame(Flow(1, 2, 0, 100)))  # it has not seen the newest transfers
    assert not link.can_send


@pytest.mark.parametrize(
    ("state", "is_settled"),
    [(Accepted(), True), (Released(), True), (Modified(True, True), True), (Rejected(), False), (None, True)],
)
def test_outcomes_of_a_range(state: Any, is_settled: bool) -> None:
    client = Client().open()
    link = client.consumer(credit=9)
    for name in "abcd":
        link.send(MESSAGE, name)
    client.answers()
    answers = client.say(Disposition(True, 1, 2, is_settled, state))
    assert answers == ([] if is_settled else [Disposition(False, 1, 2, True, state)])
    assert settled(client) == [(["b", "c"], state)]
    assert [*link.unsettled.values()] == ["a", "d"]
    client.say(Disposition(True, 1, 2, True, state))
    assert settled(client) == []


def test_a_range_of_all_ids_settles_what_is_there_link_by_link() -> None:
    client = Client().open()
    links = [client.consumer(handle=handle, credit=9) for handle in range(2)]
    for link in links:
        link.send(MESSAGE, link.handle)
    client.say(Disposition(True, 0, 2**32 - 1, True, Accepted()))
    assert settled(client) == [([0], Accepted()), ([1], Accepted())]


def test_a_disposition_without_a_state_settles_nothing() -> None:
    client = Client().open()
    client.consumer(credit=1).send(MESSAGE, "a")
    client.say(Disposition(True, 0))
    client.say(Disposition(False, 0, settled=True))
    assert settled(client) == []


def test_an_outcome_in_a_transaction() -> None:
    client = Client().open()
    client.consumer(credit=1).send(MESSAGE, "a")
    state = TransactionalState(b"txn", Accepted())
    client.say(Disposition(True, 0, state=state))
    assert settled(client) == [(["a"], state)]


# ---- ends


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_detach_is_answered_and_reported(is_closed: bool) -> None:
    client = Client().open()
    link = client.consumer(credit=1)
    link.send(MESSAGE, "a")
    client.answers()
    assert client.say(Detach(0, is_closed)) == [Detach(0, is_closed)]
    assert client.events == [LinkDetached(link, is_closed)]
    assert link.unsettled == {0: "a"}
    assert link.session.senders == {}
    link.detach()
    assert client.answers() == []


def test_an_end_of_a_session_ends_its_links() -> None:
    client = Client().open()
    link = client.producer()
    client.say(Transfer(0, 0, b"t", 0), MESSAGE)
    (delivery,) = deliveries(client)
    assert client.say(End()) == [End()]
    assert client.events == [LinkDetached(link, False)]
    link.settle(delivery, Accepted())
    link.detach()
    assert client.answers() == []
    assert [type(answer) for answer in client.say(Begin(None, 0, 10, 10))] == [Begin]


def test_a_link_that_the_server_ends() -> None:
    client = Client().open()
    link = client.consumer(credit=1)
    link.detach(AmqpError("amqp:resource-deleted", "the queue is gone"))
    assert client.answers() == [Detach(0, True, ("amqp:resource-deleted", "the queue is gone", None))]
    assert not link.can_send
    assert client.say(Detach(0, True)) == []
    assert client.events == []


def test_links_of_two_sessions_are_apart() -> None:
    client = Client().open()
    client.send(frame(Begin(None, 0, 10, 10), channel=1))
    client.producer()
    client.say(Attach("p", 0, False, source=SourceTerminus(), target=TargetTerminus("r")), channel=1)
    other: Any = client.events.pop().link  # type: ignore[union-attr]
    client.say(Transfer(0, 0, b"t", 0), MESSAGE, channel=1)
    (event,) = client.events
    assert event == TransferReceived(other, event.delivery)  # type: ignore[union-attr]
    assert isinstance(other, Receiver)
    assert not isinstance(other, Sender)
    assert client.say(Close()) == [Close()]
