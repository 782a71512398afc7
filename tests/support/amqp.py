"""Client of AMQP for tests: it says what a test lets it say, right or wrong, and reads all frames."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from selectroute.amqp.connection import Connection, CredentialsReceived, Event, OpenReceived
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SourceTerminus,
    TargetTerminus,
    Transfer,
    read,
    write,
)
from selectroute.amqp.session import AttachReceived
from selectroute.amqp.types import Symbol, decoder, described, string

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
HEADER = struct.Struct(">IBBH")
_ANY = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, SaslMechanisms, SaslOutcome)
_decode = decoder()


class Frame(NamedTuple):
    """Frame of a server: its performative, None if it is empty, and what follows."""

    channel: int
    performative: Any
    payload: bytes


def frame(performative: Any, payload: bytes = b"", channel: int = 0, kind: int = 0) -> bytes:
    """Return the bytes of a frame."""
    body = (b"" if performative is None else write(performative)) + payload
    return HEADER.pack(8 + len(body), 2, kind, channel) + body


def frames(data: bytes) -> list[Frame | bytes]:
    """Return the frames, and protocol headers, of a server's bytes."""
    found: list[Frame | bytes] = []
    while data:
        if data.startswith(b"AMQP"):
            found.append(data[:8])
            data = data[8:]
            continue
        size, offset, _, channel = HEADER.unpack_from(data)
        body, data = data[4 * offset : size], data[size:]
        if not body:
            found.append(Frame(channel, None, b""))
            continue
        value, end = _decode(body, 0)
        found.append(Frame(channel, read(value, _ANY), body[end:]))
    return found


def text_message(text: str) -> bytes:
    """Return a message with a text as its body."""
    return described(0x77, string(text))


class Client:
    """Client of a connection in this process, which answers credentials, opens and attaches itself."""

    def __init__(
        self, connection: Connection | None = None, *, limits: ConnectionLimits | None = None
    ) -> None:
        self.connection = connection or Connection("server", ["PLAIN", "ANONYMOUS"], limits=limits)
        self.events: list[Event] = []

    def send(self, *data: bytes) -> list[Any]:
        """Send bytes; return the performatives and headers of the answer, and keep the events."""
        events = self.connection.receive(b"".join(data))
        while events:
            self.events += events
            events = [more for event in events for more in self._answer(event)]
        return self.answers()

    def answers(self) -> list[Any]:
        """Return the performatives and headers that the server has written."""
        return [found if isinstance(found, bytes) else found.performative for found in self.frames()]

    def frames(self) -> list[Frame | bytes]:
        """Return the frames that the server has written."""
        return frames(self.connection.take_output())

    def say(self, performative: Any, payload: bytes = b"", channel: int = 0) -> list[Any]:
        """Send a frame, as `send`."""
        return self.send(frame(performative, payload, channel))

    def open(self, **fields: Any) -> Client:
        """Authenticate by PLAIN, and open the connection with a session."""
        self.send(SASL, frame(SaslInit(Symbol("PLAIN"), b"\0ada\0secret"), kind=1))
        self.send(AMQP, frame(Open("client", **fields)), frame(Begin(None, 0, 1_000, 1_000)))
        self.events.clear()
        return self

    def producer(self, address: str | None = "q", handle: int = 0) -> Any:
        """Attach a producer; return the server's end of its link."""
        self.say(
            Attach(
                f"producer-{handle}", handle, False, source=SourceTerminus(), target=TargetTerminus(address)
            )
        )
        return self.events.pop().link  # type: ignore[union-attr]

    def consumer(self, address: str = "q", handle: int = 0, credit: int = 0, **fields: Any) -> Any:
        """Attach a consumer, and give credit; return the server's end of its link."""
        self.say(
            Attach(
                f"consumer-{handle}",
                handle,
                True,
                source=SourceTerminus(address),
                target=TargetTerminus(),
                **fields,
            )
        )
        link = self.events.pop().link  # type: ignore[union-attr]
        if credit:
            self.say(Flow(0, 1_000, 0, 1_000, handle, 0, credit))
            self.events.clear()
        return link

    def _answer(self, event: Event) -> list[Event]:
        if isinstance(event, CredentialsReceived):
            return self.connection.authenticate(is_accepted=True)
        if isinstance(event, OpenReceived):
            return self.connection.open()
        if isinstance(event, AttachReceived):
            link: Any = event.link
            if link.request.role:
                link.attach(link.request.source)
            else:
                link.attach(link.request.target, 10)
        return []


__all__ = ["AMQP", "SASL", "Accepted", "Client", "frame", "frames", "text_message"]
