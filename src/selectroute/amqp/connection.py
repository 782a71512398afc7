"""Connection of an AMQP 1.0 client, without input and output: bytes in, events out, and bytes to send.

The protocol headers, SASL's frames, the frames of sessions, and idle time-outs (AMQP 1.0, parts 2 and 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from selectroute.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
)
from selectroute.amqp.output import (
    AMQP_FRAME,
    FRAME,
    MIN_FRAME,
    SASL_FRAME,
    ConnectionLimits,
    ConnectionOutput,
)
from selectroute.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
    read,
)
from selectroute.amqp.sasl import ANONYMOUS, REFUSED, Credentials, credentials_of
from selectroute.amqp.session import (
    AttachReceived,
    CreditChanged,
    DeliveriesSettled,
    LinkDetached,
    Session,
    TransactionDeclared,
    TransactionDischarged,
    TransferReceived,
    error_of,
)
from selectroute.amqp.types import DECODING_FAILED, Symbol, decoder

_AMQP: Final = b"AMQP\x00\x01\x00\x00"
_SASL: Final = b"AMQP\x03\x01\x00\x00"
_EMPTY: Final = FRAME.pack(8, 2, 0, 0)
_MAX_SASL_FRAME: Final = 8_192
_MIN_IDLE_MS: Final = 1_000
"""Shortest idle time-out of a client that can be kept."""

TICK_SECONDS: Final = 0.5
"""Time between two calls of `Connection.tick`."""

_PERFORMATIVES: Final = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)


class CredentialsReceived(NamedTuple):
    """Credentials of the client; until `Connection.authenticate` answers, nothing more is read."""

    credentials: Credentials


class OpenReceived(NamedTuple):
    """Opening by the client; until `Connection.open` or `refuse` answers, nothing more is read."""

    open: Open


class ConnectionClosed(NamedTuple):
    """End of the connection, with the error of either side."""

    error: Error | None


Event = (
    CredentialsReceived
    | OpenReceived
    | AttachReceived
    | TransferReceived
    | TransactionDeclared
    | TransactionDischarged
    | DeliveriesSettled
    | CreditChanged
    | LinkDetached
    | ConnectionClosed
)
"""What a client wants, in the order in which it said so."""


class _State(Enum):
    HEADER = "a protocol header"
    SASL = "a sasl-init"
    AUTHENTICATING = "nothing, before the authentication has ended"
    AMQP_HEADER = "a protocol header after the authentication"
    OPEN = "an open"
    OPENING = "nothing, before the connection is open"
    OPENED = "any frame"
    CLOSING = "a close"
    CLOSED = "nothing"


_WAITING: Final = (_State.AUTHENTICATING, _State.OPENING)
_HEADERS: Final = (_State.HEADER, _State.AMQP_HEADER)
_ENDED: Final = (_State.CLOSING, _State.CLOSED)


class Connection:
    """Connection of a client, seen from the server.

    ::

        receive(bytes) → events;  calls of this class, of links …;  take_output() → bytes

    A client that breaks the protocol gets a close with the specification's error; `is_closed` says when the
    transport may go. Not safe for threads.

    Args:
        container_id: name of this server.
        mechanisms: of SASL, in the order of preference; a client that does not use SASL is ANONYMOUS.
        capabilities: what links and the connection offer.
        properties: of the connection, by name.
        limits: what is taken from the client.
    """

    def __init__(
        self,
        container_id: str,
        mechanisms: Sequence[str],
        *,
        capabilities: Sequence[str] = (),
        properties: Mapping[str, Any] | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self._output = ConnectionOutput(self.limits, capabilities)
        self._container_id = container_id
        self._mechanisms = tuple(mechanisms)
        self._properties = {Symbol(name): value for name, value in (properties or {}).items()}
        self._state = _State.HEADER
        self._is_sasl = True
        self._sessions: dict[int, Session] = {}
        self._input = bytearray()
        self._needed = 0
        self._client_idle: float | None = None
        self._has_received = self._has_sent = True
        self._received_at = self._sent_at = 0.0

    # ---- bytes

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes of the client; return what it wants. Never raises for what the bytes are."""
        self._has_received = True
        if self._state is _State.CLOSED:
            return self._output.take_events()
        if self._input:
            self._input += data
            if len(self._input) < self._needed:
                return []
            data = bytes(self._input)
            self._input.clear()
        try:
            rest = self._read(data)
            if rest < len(data):
                self._input += data[rest:]
        except AmqpError as error:
            self._fail(error)
        except DECODING_FAILED as error:
            self._fail(AmqpError(DECODE_ERROR, f"a frame cannot be read: {error!s:.200}"))
        return self._output.take_events()

    def take_output(self) -> bytes:
        """Return the bytes to send to the client."""
        for session in self._sessions.values():
            session.flush()
        output = self._output.take_output()
        self._has_sent = self._has_sent or bool(output)
        return output

    @property
    def is_closed(self) -> bool:
        """True once both ends have closed: the transport may go when all is sent."""
        return self._state is _State.CLOSED

    @property
    def sessions(self) -> list[Session]:
        """Sessions that have not ended."""
        return [*self._sessions.values()]

    def tick(self, now: float) -> list[Event]:
        """Keep the time-outs; call it each `TICK_SECONDS`, with a clock that counts seconds."""
        if self._has_received:
            self._received_at, self._has_received = now, False
        elif now - self._received_at > 2 * self.limits.idle_seconds:
            self._fail(AmqpError(RESOURCE_LIMIT_EXCEEDED, "the client was silent beyond the idle time-out"))
            self._state = _State.CLOSED
        if self._has_sent:
            self._sent_at, self._has_sent = now, False
        elif self._client_idle is not None and now - self._sent_at > self._client_idle / 2 - 2 * TICK_SECONDS:
            self._output.write_bytes(_EMPTY)
        return self._output.take_events()

    # ---- answers

    def authenticate(self, *, is_accepted: bool, code: int = REFUSED) -> list[Event]:
        """Answer the credentials of a client; return what it has sent meanwhile.

        `code` is that of a refusal.
        """
        if self._state is not _State.AUTHENTICATING:
            return []
        if self._is_sasl:
            self._output.write(SaslOutcome(0 if is_accepted else code), frame_type=SASL_FRAME)
        if not is_accepted:
            self._end(None)
        elif self._is_sasl:
            self._state = _State.AMQP_HEADER
        else:
            self._output.write_bytes(_AMQP)
            self._state = _State.OPEN
        return self.receive(b"")

    def open(self) -> list[Event]:
        """Open the connection; return what the client has sent meanwhile."""
        if self._state is not _State.OPENING:
            return []
        self._write_open({})
        self._state = _State.OPENED
        return self.receive(b"")

    def refuse(self, error: AmqpError) -> list[Event]:
        """Refuse the opening of the connection; return the events of its end."""
        if self._state is _State.OPENING:
            self._write_open({Symbol("amqp:connection-establishment-failed"): True})
            self._state = _State.OPENED
            self._fail(error)
        return self._output.take_events()

    def close(self, error: AmqpError | None = None) -> list[Event]:
        """Close the connection from this side; return the events of its end."""
        if self._state not in _ENDED:
            self._fail(error)
        return self._output.take_events()

    def lost(self) -> list[Event]:
        """End the connection, whose transport is gone; return the events of its end."""
        self._end(None)
        return self._output.take_events()

    # ---- reading

    def _read(self, data: bytes) -> int:
        """Read headers and frames; return the position of what is not whole, or has to wait."""
        position, end = 0, len(data)
        while end - position >= 8 and self._state is not _State.CLOSED:
            if self._state in _WAITING:
                if end - position > self.limits.frame:
                    raise AmqpError(ILLEGAL_STATE, f"the client should send {self._state.value}")
                self._needed = 0
                return position
            if self._state in _HEADERS:
                self._on_header(data[position : position + 8])
                position += 8
                continue
            size, offset, frame_type, channel = FRAME.unpack_from(data, position)
            most = _MAX_SASL_FRAME if self._state is _State.SASL else self.limits.frame
            if not 8 <= 4 * offset <= size <= most:
                raise AmqpError(FRAMING_ERROR, f"a frame of {size:,} bytes, where at most {most:,} are taken")
            if end - position < size:
                self._needed = size
                return position
            begin, position = position + 4 * offset, position + size
            if frame_type != (SASL_FRAME if self._state is _State.SASL else AMQP_FRAME):
                raise AmqpError(FRAMING_ERROR, f"a frame of type {frame_type}, not {self._state.value}")
            if begin < position:
                self._on_frame(channel, data, begin, position)
        self._needed = 8
        return position

    def _on_header(self, header: bytes) -> None:
        after_sasl = self._state is _State.AMQP_HEADER
        if header == _SASL and not after_sasl:
            self._output.write_bytes(_SASL)
            self._state = _State.SASL
            self._output.write(SaslMechanisms([*self._mechanisms]), frame_type=SASL_FRAME)
        elif header == _AMQP and after_sasl:
            self._output.write_bytes(_AMQP)
            self._state = _State.OPEN
        elif header == _AMQP and ANONYMOUS in self._mechanisms:
            self._is_sasl = False
            self._state = _State.AUTHENTICATING
            self._output.emit(CredentialsReceived(Credentials(None, "")))
        else:
            self._output.write_bytes(_AMQP if after_sasl else _SASL)
            self._end(Error(FRAMING_ERROR, f"a protocol header that is not served: {header!r}"))

    def _on_frame(self, channel: int, data: bytes, begin: int, end: int) -> None:
        value, position = _decode(data, begin)
        if position > end:
            raise AmqpError(DECODE_ERROR, "a performative is longer than its frame")
        if self._state is _State.SASL:
            init = read(value, (SaslInit,))
            self._state = _State.AUTHENTICATING
            self._output.emit(CredentialsReceived(credentials_of(init, self._mechanisms)))
            return
        performative = read(value, _PERFORMATIVES)
        kind = type(performative)
        if self._state is _State.CLOSING:
            if kind is Close:
                self._state = _State.CLOSED
        elif self._state is _State.OPEN:
            if kind is not Open:
                raise AmqpError(ILLEGAL_STATE, f"{kind.__name__} before the connection is open")
            self._on_open(performative)
        elif kind is Transfer:
            self._session(channel).on_transfer(performative, data[position:end])
        elif kind is Begin:
            self._on_begin(channel, performative)
        elif kind is End:
            self._session(channel).lost()
            self._output.write(End(), channel)
            del self._sessions[channel]
        elif kind is Close:
            self._output.write(Close())
            self._end(performative.error)
        elif kind is Open:
            raise AmqpError(ILLEGAL_STATE, "the connection is open")
        else:
            session = self._session(channel)
            if kind is Flow:
                session.on_flow(performative)
            elif kind is Disposition:
                session.on_disposition(performative)
            elif kind is Attach:
                session.on_attach(performative)
            else:
                session.on_detach(performative)

    def _on_open(self, opened: Open) -> None:
        self._state = _State.OPENING
        max_frame = self.limits.frame if opened.max_frame_size is None else opened.max_frame_size
        if max_frame < MIN_FRAME:
            raise AmqpError(INVALID_FIELD, f"max-frame-size is at least {MIN_FRAME}")
        self._output.max_frame = min(max_frame, self.limits.frame)
        if opened.idle_time_out:
            if opened.idle_time_out < _MIN_IDLE_MS:
                raise AmqpError(INVALID_FIELD, f"an idle time-out is at least {_MIN_IDLE_MS:,} ms")
            self._client_idle = opened.idle_time_out / 1_000
        self._output.emit(OpenReceived(opened))

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if begin.remote_channel is not None:
            raise AmqpError(INVALID_FIELD, "a begin that answers none")
        if channel in self._sessions:
            raise AmqpError(NOT_ALLOWED, f"the channel {channel} has a session")
        if channel >= self.limits.sessions:
            raise AmqpError(NOT_ALLOWED, f"channels are below {self.limits.sessions}")
        self._sessions[channel] = Session(self._output, channel, begin)

    def _session(self, channel: int) -> Session:
        session = self._sessions.get(channel)
        if session is None:
            raise AmqpError(NOT_ALLOWED, f"the channel {channel} has no session")
        return session

    # ---- ending

    def _write_open(self, properties: dict[Any, Any]) -> None:
        opened = Open(
            self._container_id,
            None,
            self.limits.frame,
            self.limits.sessions - 1,
            int(self.limits.idle_seconds * 1_000),
            offered_capabilities=self._output.capabilities,
            properties=self._properties | properties,
        )
        self._output.write(opened)

    def _fail(self, error: AmqpError | None) -> None:
        """Close the connection from this side."""
        reason = None if error is None else error_of(error)
        if self._state in (_State.OPEN, _State.OPENING):
            self._write_open({})  # "each peer MUST send an open frame" before its close
            self._state = _State.OPENED
        if self._state is _State.OPENED:
            for session in self._sessions.values():
                session.flush()
            self._output.write(Close(reason))
            self._end(reason)
            self._state = _State.CLOSING
        else:
            self._end(reason)

    def _end(self, error: Error | None) -> None:
        """End all sessions and report the end, once."""
        has_ended = self._state in _ENDED
        self._state = _State.CLOSED
        if has_ended:
            return
        self._output.is_closed = True
        self._input.clear()
        for session in self._sessions.values():
            session.lost()
        self._sessions.clear()
        self._output.emit(ConnectionClosed(error))


_decode: Final = decoder()
