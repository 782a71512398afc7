"""Output of a connection: frames for the client, and events for the server."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from selectroute.amqp.performatives import write

FRAME: Final = struct.Struct(">IBBH")
"""Header of a frame: its size, the size of this header in words, its type, its channel."""

AMQP_FRAME, SASL_FRAME = 0, 1
MIN_FRAME: Final = 512
"""Bytes of a frame that every end takes."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection: what it takes from its client.

    Attributes:
        frame: bytes of a frame.
        message: bytes of a message.
        sessions: number of sessions at once.
        links: number of links of a session.
        window: number of transfers of a session before the client waits for the next window.
        idle_seconds: after twice as many without a frame of the client the connection is closed.
    """

    frame: int = 1 << 20
    message: int = 16 << 20
    sessions: int = 256
    links: int = 1_024
    window: int = 5_000
    idle_seconds: float = 60.0


class ConnectionOutput:
    """Frames to a client, and events of a connection, until they are taken.

    Attributes:
        limits: what is taken from the client.
        capabilities: what links and the connection offer.
        max_frame: most bytes of a frame that the client takes.
        is_closed: whether this end has closed: then nothing more is written.
    """

    def __init__(self, limits: ConnectionLimits, capabilities: Sequence[str]) -> None:
        self.limits = limits
        self.capabilities = [*capabilities]
        self.max_frame = MIN_FRAME
        self.is_closed = False
        self._output: list[bytes] = []
        self._events: list[Any] = []

    def emit(self, event: Any) -> None:
        """Add an event."""
        self._events.append(event)

    def write(self, performative: Any, channel: int = 0, frame_type: int = AMQP_FRAME) -> None:
        """Write a frame with a performative."""
        self.write_frame(channel, write(performative), frame_type)

    def write_frame(self, channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> None:
        """Write a frame."""
        self.write_bytes(FRAME.pack(8 + len(body), 2, frame_type, channel) + body)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes."""
        if not self.is_closed:
            self._output.append(data)

    def take_output(self) -> bytes:
        """Return the bytes to send, and forget them."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    def take_events(self) -> list[Any]:
        """Return the events, and forget them."""
        events, self._events = self._events, []
        return events
