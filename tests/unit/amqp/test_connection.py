"""Connections: authentication, opening, what is no AMQP, limits and idle time-outs."""

from __future__ import annotations

from typing import Any

import pytest

from selectroute.amqp.connection import Connection, ConnectionClosed, CredentialsReceived, OpenReceived
from selectroute.amqp.errors import INVALID_FIELD, AmqpError
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.performatives import (
    Attach,
    Begin,
    Close,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from selectroute.amqp.sasl import Credentials
from selectroute.amqp.session import LinkDetached
from selectroute.amqp.types import Symbol
from tests.support.amqp import AMQP, HEADER, SASL, Client, Frame, frame

INIT = frame(SaslInit(Symbol("PLAIN"), b"\0ada\0secret"), kind=1)


def closed_with(answers: list[Any]) -> str:
    """Return the condition that a connection was closed with."""
    closes = [answer for answer in answers if isinstance(answer, Close)]
    assert len(closes) == 1
    assert closes[0].error is not None
    return str(closes[0].error.condition)


def test_plain_credentials_then_open() -> None:
    connection = Connection("server", ["PLAIN"], capabilities=["SHARED-SUBS"], properties={"product": "x"})
    client = Client(connection)
    header, mechanisms = client.send(SASL)
    assert (header, mechanisms) == (SASL, SaslMechanisms([Symbol("PLAIN")]))
    assert client.send(INIT) == [SaslOutcome(0)]
    assert client.events == [CredentialsReceived(Credentials("ada", "secret"))]
    header, opened = client.send(AMQP, frame(Open("client", max_frame_size=4_096)))
    assert header == AMQP
    assert opened.container_id == "server"
    assert opened.offered_capabilities == ["SHARED-SUBS"]
    assert opened.properties == {"product": "x"}
    assert connection._output.max_frame == 4_096


def test_a_secret_is_not_shown() -> None:
    assert "secret" not in repr(CredentialsReceived(Credentials("ada", "secret")))


def test_a_client_without_sasl_is_anonymous() -> None:
    client = Client()
    assert client.send(AMQP) == [AMQP]
    assert client.events == [CredentialsReceived(Credentials(None, ""))]


def test_a_client_without_sasl_is_shown_sasl_where_anonymous_is_not_offered() -> None:
    connection = Connection("server", ["PLAIN"])
    client = Client(connection)
    assert client.send(AMQP) == [SASL]
    assert connection.is_closed


def test_refused_credentials() -> None:
    connection = Connection("server", ["PLAIN"])
    assert [type(event) for event in connection.receive(SASL + INIT)] == [CredentialsReceived]
    events = connection.authenticate(is_accepted=False)
    assert events == [ConnectionClosed(None)]
    assert connection.take_output().endswith(frame(SaslOutcome(1), kind=1))
    assert connection.is_closed


@pytest.mark.parametrize(
    "init",
    [SaslInit(Symbol("EXTERNAL")), SaslInit(Symbol("PLAIN"), b"ada"), SaslInit(Symbol("PLAIN"), b"\0\xff\0")],
)
def test_a_wrong_sasl_init_ends_the_connection(init: SaslInit) -> None:
    client = Client()
    client.send(SASL, frame(init, kind=1))
    assert client.connection.is_closed
    assert [type(event) for event in client.events] == [ConnectionClosed]


def test_what_comes_before_an_answer_waits_for_it() -> None:
    connection = Connection("server", ["PLAIN"])
    begin = frame(Begin(None, 0, 10, 10))
    assert len(connection.receive(SASL + INIT + AMQP + frame(Open("c")) + begin)) == 1
    assert connection.receive(frame(None)) == []
    (event,) = connection.authenticate(is_accepted=True)
    assert isinstance(event, OpenReceived)
    connection.take_output()
    assert connection.open() == []
    answers = Client(connection).answers()
    assert [type(answer) for answer in answers] == [Open, Begin]


def test_what_waits_for_an_answer_is_bounded() -> None:
    connection = Connection("server", ["PLAIN"], limits=ConnectionLimits(frame=512))
    connection.receive(SASL + INIT + AMQP)
    (closed,) = connection.receive(bytes(600))
    assert isinstance(closed, ConnectionClosed)


def test_bytes_one_by_one() -> None:
    client = Client()
    answers: list[Any] = []
    for octet in SASL + INIT + AMQP + frame(Open("c")) + frame(Begin(None, 0, 10, 10)) + frame(Close()):
        answers += client.send(bytes([octet]))
    assert [answer if isinstance(answer, bytes) else type(answer) for answer in answers] == [
        SASL,
        SaslMechanisms,
        SaslOutcome,
        AMQP,
        Open,
        Begin,
        Close,
    ]
    assert client.connection.is_closed


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"\x16\x03\x01\x02\x00\x01\x00\x01"],
)
def test_another_protocol_is_shown_ours_and_closed(header: bytes) -> None:
    client = Client()
    assert client.send(header) == [SASL]
    assert client.connection.is_closed
    assert client.send(b"more") == []


def test_a_refused_open_says_so_in_its_properties() -> None:
    connection = Connection("server", ["ANONYMOUS"])
    client = Client(connection)
    client.send(AMQP)
    connection.receive(frame(Open("taken")))
    connection.refuse(AmqpError(INVALID_FIELD, "in use", {Symbol("invalid-field"): Symbol("container-id")}))
    opened, closed = client.answers()
    assert opened.properties == {"amqp:connection-establishment-failed": True}
    assert closed.error == (INVALID_FIELD, "in use", {"invalid-field": "container-id"})
    client.send(frame(Close()))
    assert connection.is_closed


def test_a_close_of_the_client_ends_its_links() -> None:
    client = Client().open()
    link = client.producer()
    assert client.say(Close()) == [Close()]
    assert client.events == [LinkDetached(link, False), ConnectionClosed(None)]
    assert client.connection.lost() == []


def test_a_lost_transport_ends_its_links() -> None:
    client = Client().open()
    link = client.consumer()
    assert client.connection.lost() == [LinkDetached(link, False), ConnectionClosed(None)]
    assert client.connection.lost() == []


def test_after_our_close_the_client_s_frames_are_ignored_until_its_close() -> None:
    client = Client().open()
    client.connection.close(AmqpError("amqp:connection:forced", "the server stops"))
    assert closed_with(client.answers()) == "amqp:connection:forced"
    assert client.say(Begin(None, 0, 10, 10), channel=3) == []
    assert not client.connection.is_closed
    assert client.say(Close()) == []
    assert client.connection.is_closed


BREACHES: dict[str, tuple[bytes, str]] = {
    "a frame that is too large": (HEADER.pack(2_000_000, 2, 0, 0), "amqp:connection:framing-error"),
    "a frame smaller than its header": (HEADER.pack(7, 2, 0, 0), "amqp:connection:framing-error"),
    "a data offset beyond the frame": (HEADER.pack(8, 3, 0, 0), "amqp:connection:framing-error"),
    "a data offset within the header": (HEADER.pack(16, 1, 0, 0) + bytes(8), "amqp:connection:framing-error"),
    "a frame of SASL": (INIT, "amqp:connection:framing-error"),
    "no performative": (HEADER.pack(9, 2, 0, 0) + b"\x40", "amqp:decode-error"),
    "a performative longer than its frame": (
        HEADER.pack(10, 2, 0, 0) + b"\x00\x53" + frame(None),
        "amqp:decode-error",
    ),
    "an unknown performative": (HEADER.pack(12, 2, 0, 0) + b"\x00\x53\x7f\x45", "amqp:decode-error"),
    "an outcome as performative": (HEADER.pack(12, 2, 0, 0) + b"\x00\x53\x24\x45", "amqp:decode-error"),
    "a begin without its fields": (HEADER.pack(12, 2, 0, 0) + b"\x00\x53\x11\x45", "amqp:decode-error"),
    "a second open": (frame(Open("again")), "amqp:illegal-state"),
    "a begin that answers": (frame(Begin(0, 0, 10, 10), channel=1), "amqp:invalid-field"),
    "a channel that is in use": (frame(Begin(None, 0, 10, 10)), "amqp:not-allowed"),
    "a channel beyond the limit": (frame(Begin(None, 0, 10, 10), channel=256), "amqp:not-allowed"),
    "a channel without a session": (frame(End(), channel=9), "amqp:not-allowed"),
    "a handle beyond the limit": (frame(Attach("a", 1_024, True)), "amqp:not-allowed"),
    "a handle that is in use": (frame(Attach("a", 0, True)) * 2, "amqp:session:handle-in-use"),
    "a transfer without a link": (frame(Transfer(7, 0, b"t")), "amqp:session:unattached-handle"),
    "a flow without a link": (frame(Flow(0, 1, 0, 1, 7)), "amqp:session:unattached-handle"),
    "a transfer the wrong way": (
        frame(Attach("a", 0, True)) + frame(Transfer(0, 0, b"t")),
        "amqp:not-allowed",
    ),
}


@pytest.mark.parametrize(("data", "condition"), BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_of_the_protocol_closes_the_connection_with_its_error(data: bytes, condition: str) -> None:
    client = Client().open()
    assert closed_with(client.send(data)) == condition
    assert isinstance(client.events[-1], ConnectionClosed)


def test_a_breach_before_the_open_is_answered_by_open_and_close() -> None:
    client = Client()
    client.send(AMQP)
    answers = client.send(frame(Begin(None, 0, 10, 10)))
    assert [type(answer) for answer in answers] == [Open, Close]


@pytest.mark.parametrize("fields", [{"max_frame_size": 511}, {"idle_time_out": 10}])
def test_an_open_that_cannot_be_kept(fields: dict[str, int]) -> None:
    client = Client()
    client.send(AMQP)
    assert closed_with(client.send(frame(Open("c", **fields)))) == "amqp:invalid-field"  # type: ignore[arg-type]


def test_an_empty_frame_is_sent_in_each_half_of_the_client_s_time_out() -> None:
    client = Client().open(idle_time_out=10_000)
    sent = []
    for half_seconds in range(60):
        client.connection.tick(half_seconds / 2)
        sent += [half_seconds / 2 for found in client.frames() if found == Frame(0, None, b"")]
        if half_seconds % 20 == 0:
            client.send(frame(None))
    assert all(later - earlier <= 5 for earlier, later in zip([0.0, *sent], [*sent, 29.5], strict=True))
    assert len(sent) < 10


def test_a_silent_client_is_closed_after_twice_the_time_out() -> None:
    client = Client(limits=ConnectionLimits(idle_seconds=10)).open()
    assert client.connection.tick(0.0) == []
    assert client.connection.tick(20.0) == []
    (closed,) = client.connection.tick(20.5)
    assert isinstance(closed, ConnectionClosed)
    assert closed_with(client.answers()) == "amqp:resource-limit-exceeded"
    assert client.connection.is_closed
