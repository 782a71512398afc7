"""Client of AMQP for tests: it says what a test lets it say, right or wrong, and reads all frames."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from selectroute.amqp.connection import Connection, CredentialsReceived, Event, OpenReceived
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    MessageHeader,
    Modified,
    Open,
    Properties,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SourceTerminus,
    TargetTerminus,
    Transfer,
    read,
    write,
)
from selectroute.amqp.sections import MessageSections, read_message, read_value
from selectroute.amqp.session import AttachReceived
from selectroute.amqp.types import Described, Symbol, decoder, described, map_of, string

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


class SocketClient:
    """Client of a broker over a socket; a call waits for the answer that it needs."""

    def __init__(self, port: int, container: str = "client", *, password: str | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.received: list[tuple[Transfer, bytes]] = []
        self.refused: list[Any] = []
        self._input = b""
        self._handles = itertools.count()
        self._ids = itertools.count()
        self._settled: dict[int, Any] = {}
        self._credit: dict[int, int] = {}
        self._count: dict[int, int] = {}
        init = (
            SaslInit(Symbol("ANONYMOUS"))
            if password is None
            else SaslInit(Symbol("PLAIN"), b"\0u\0" + password.encode())
        )
        self.socket.sendall(SASL + frame(init, kind=1))
        self.outcome = self.wait_for(SaslOutcome).code
        if self.outcome:
            return
        sole = [Symbol("sole-connection-for-container")]
        self.socket.sendall(
            AMQP + frame(Open(container, desired_capabilities=sole)) + frame(Begin(None, 0, 5_000, 5_000))
        )
        self.opened = self.wait_for(Open)
        self.closed = (
            self.wait_for(Close)
            if (self.opened.properties or {}).get("amqp:connection-establishment-failed")
            else None
        )
        if self.closed is None:
            self.wait_for(Begin)

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut the connection."""
        self.socket.close()

    def say(self, performative: Any, payload: bytes = b"") -> None:
        """Send a frame."""
        self.socket.sendall(frame(performative, payload))

    def wait_for(self, kind: type, timeout: float = 20.0) -> Any:
        """Return the next performative of a kind, and keep what comes before it; TimeoutError if late."""
        deadline = time.monotonic() + timeout
        while True:
            for found in self._frames(max(0.01, deadline - time.monotonic())):
                performative = found.performative
                if isinstance(performative, Transfer):
                    self.received.append((performative, found.payload))
                elif isinstance(performative, Disposition):
                    last = performative.first if performative.last is None else performative.last
                    for id in range(performative.first, last + 1):
                        self._settled[id] = performative.state
                elif isinstance(performative, Detach) and performative.error is not None:
                    self.refused.append(performative.error)
                if isinstance(performative, kind):
                    return performative
            if time.monotonic() > deadline:
                raise TimeoutError(kind.__name__)

    def producer(self, address: str | None, kind: str = "queue", **fields: Any) -> int:
        """Attach a producer; return its handle."""
        handle = next(self._handles)
        target = TargetTerminus(address, capabilities=[Symbol(kind)], **fields)
        self.say(Attach(f"producer-{handle}", handle, False, source=SourceTerminus(), target=target))
        self.attached = self.wait_for(Attach)
        return handle

    def consumer(
        self,
        address: str | None,
        kind: str = "queue",
        *more: str,
        selector: str | None = None,
        credit: int = 100,
        name: str | None = None,
        no_local: bool = False,
        settles: bool = False,
        **fields: Any,
    ) -> int:
        """Attach a consumer and give it credit; return its handle."""
        handle = next(self._handles)
        filters: dict[Any, Any] = {}
        if selector is not None:
            filters[Symbol("jms-selector")] = Described(0x0000_468C_0000_0004, selector)
        if no_local:
            filters[Symbol("no-local")] = Described(0x0000_468C_0000_0003, [])
        source = SourceTerminus(
            address,
            filter=filters or None,
            default_outcome=Modified(True),
            capabilities=[Symbol(one) for one in (kind, *more)],
            **fields,
        )
        mode = 1 if settles else None
        self.say(
            Attach(name or f"consumer-{handle}", handle, True, mode, source=source, target=TargetTerminus())
        )
        self.attached = self.wait_for(Attach)
        if self.attached.source is not None:
            self.credit(handle, credit)
        return handle

    def refusal(self) -> Any:
        """Return the error with which the newest link was detached."""
        return self.refused.pop() if self.refused else self.wait_for(Detach).error

    def credit(self, handle: int, credit: int, *, drain: bool | None = None) -> None:
        """Give a consumer credit."""
        self.say(
            Flow(
                self._count.get(-1, 0),
                5_000,
                0,
                5_000,
                handle,
                self._count.get(handle, 0),
                credit,
                None,
                drain,
            )
        )

    def send(self, handle: int, body: str, *, durable: bool = False, state: Any = None, **parts: Any) -> Any:
        """Send a message; return its outcome."""
        id = self.send_later(handle, body, durable=durable, state=state, **parts)
        return self.outcome_of(id)

    def send_later(
        self, handle: int, body: str, *, durable: bool = False, state: Any = None, **parts: Any
    ) -> int:
        """Send a message; return its delivery id."""
        id = next(self._ids)
        self.say(
            Transfer(handle, id, id.to_bytes(4), 0, False, state=state),
            jms_message(body, durable=durable, **parts),
        )
        return id

    def outcome_of(self, id: int) -> Any:
        """Return the outcome of what was sent."""
        while id not in self._settled:
            self.wait_for(Disposition)
        return self._settled[id]

    def receive(self, timeout: float = 20.0) -> tuple[Transfer, MessageSections] | None:
        """Return the next message, of any consumer; None if there is none within a time."""
        if not self.received:
            try:
                self.wait_for(Transfer, timeout)
            except TimeoutError:
                return None
        transfer, payload = self.received.pop(0)
        self._count[transfer.handle] = self._count.get(transfer.handle, 0) + 1
        self._count[-1] = self._count.get(-1, 0) + 1
        return transfer, read_message(payload)

    def texts(self, count: int, *, settle: Any = None) -> list[Any]:
        """Return the texts of the next messages, and settle them, by default as accepted."""
        texts = []
        for _ in range(count):
            got = self.receive()
            assert got is not None
            transfer, message = got
            texts.append(read_value(message))
            if not transfer.settled:
                self.settle(transfer, settle or Accepted())
        return texts

    def waiting(self, seconds: float) -> int:
        """Return the number of messages that have come, after a time."""
        with suppress(TimeoutError):
            self.wait_for(Close, seconds)
        return len(self.received)

    def has_none(self, seconds: float = 0.15) -> bool:
        """Return whether no message comes within a time."""
        return self.receive(seconds) is None

    def settle(self, transfer: Transfer, state: Any) -> None:
        """Settle a delivery."""
        self.say(Disposition(True, transfer.delivery_id or 0, None, True, state))

    def detach(self, handle: int) -> None:
        """Detach a link, and close it."""
        self.say(Detach(handle, True))
        self.wait_for(Detach)

    def coordinator(self) -> int:
        """Attach to the coordinator of transactions; return its handle."""
        handle = next(self._handles)
        self.say(Attach("coordinator", handle, False, source=SourceTerminus(), target=Coordinator()))
        self.wait_for(Attach)
        return handle

    def command(self, handle: int, command: Any) -> Any:
        """Send a command to the coordinator; return its outcome."""
        id = next(self._ids)
        self.say(Transfer(handle, id, id.to_bytes(4), 0, False), described(0x77, write(command)))
        return self.outcome_of(id)

    def _frames(self, seconds: float) -> Iterator[Frame]:
        """Yield whole frames; some bytes are read if there is none."""
        while True:
            data = self._input
            if data.startswith(b"AMQP"):
                self._input = data[8:]
                continue
            size = int.from_bytes(data[:4]) if len(data) >= 8 else 8
            if len(data) >= max(8, size):
                self._input = data[size:]
                (found,) = frames(data[:size])
                if isinstance(found, Frame) and found.performative is not None:
                    yield found
                continue
            self.socket.settimeout(seconds)
            try:
                more = self.socket.recv(1 << 16)
            except TimeoutError:
                return
            if not more:
                raise ConnectionError("the broker has closed the connection")
            self._input += more


def jms_message(
    body: str,
    *,
    durable: bool = False,
    priority: int | None = None,
    ttl: int | None = None,
    due: int | None = None,
    to: str | None = None,
    subject: str | None = None,
    message_id: Any = None,
    correlation_id: Any = None,
    **properties: Any,
) -> bytes:
    """Return a text message as a JMS client sends it."""
    annotations = {Symbol("x-opt-jms-msg-type"): 5} | (
        {} if due is None else {Symbol("x-opt-delivery-time"): due}
    )
    fields = Properties(message_id, None, to, subject, correlation_id=correlation_id)
    return (
        write(MessageHeader(durable, priority, ttl))
        + described(0x72, map_of(annotations))
        + write(fields)
        + described(0x74, map_of(properties))
        + text_message(body)
    )


__all__ = [
    "AMQP",
    "SASL",
    "Accepted",
    "Client",
    "SocketClient",
    "frame",
    "frames",
    "jms_message",
    "text_message",
]
