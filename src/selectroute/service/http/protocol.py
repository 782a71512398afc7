"""HTTP/1.1 as uvicorn speaks it with h11; what is not HTTP is refused with a problem document too, and who
does not send its request gives its place to others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from selectroute.service.http.problems import PROBLEMS, ProblemError
from selectroute.service.limits import ServiceLimits


class Protocol(H11Protocol):
    """A connection. The application never sees a request that cannot be read.

    The head of a request has so many seconds from when the connection was made, or the last answer was sent,
    however many bytes of it come meanwhile.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request. Where there are too many connections, this one is told so."""
        super().connection_made(transport)
        limits = self._limits()
        if len(self.connections) > limits.connections:
            detail = f"{limits.connections:,} connections are open already"
            self._refuse(ProblemError("unavailable", detail))
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what has come; the head of a request ends the wait for it."""
        super().handle_events()
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
            if {name for name, _ in self.headers} >= _FRAMED_TWICE and _CLOSE not in self.headers:
                # Somebody between may have read another length (RFC 9112, 6.3).
                cycle.keep_alive = False
                self.headers.append(_CLOSE)  # then the answer says so, too

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._wait()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what was received, and close; in the midst of an answer only that."""
        self._refuse(ProblemError("invalid-request", "what was sent is not HTTP"))

    def _limits(self) -> ServiceLimits:
        app: Any = self.config.app
        limits: ServiceLimits = app.state.service.limits
        return limits

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(self._limits().header_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            seconds = self._limits().header_seconds
            self._refuse(ProblemError("timed-out", f"no request came within {seconds:g} seconds"))

    def _refuse(self, problem: ProblemError) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        if cycle is None or cycle.response_complete or not cycle.response_started:
            answer = problem.response(str(uuid.uuid4()))
            head = [(b"connection", b"close"), (b"cache-control", b"no-store"), *answer.raw_headers]
            lines = b"".join(b"%s: %s\r\n" % one for one in head)
            status = PROBLEMS[problem.kind].status
            self.transport.write(b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES[status]) + lines)
            self.transport.write(b"\r\n" + bytes(answer.body))
        self.transport.close()


_FRAMED_TWICE = {b"content-length", b"transfer-encoding"}
_CLOSE = (b"connection", b"close")
_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}


class AcceptErrors:
    """Exception handler of an event loop that says once in a while, and not by the thousand, that no
    connection can be accepted.
    """

    def __init__(
        self, say: Callable[[str, int], None], clock: Callable[[], float], every: float = 10
    ) -> None:
        self._say = say
        self._clock = clock
        self._every = every
        self._last: float | None = None
        self._count = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what asyncio reports; all else goes the usual way."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept" not in context.get("message", ""):
            loop.default_exception_handler(context)
            return
        self._count += 1
        now = self._clock()
        if self._last is None or now - self._last >= self._every:
            self._say(error.strerror or str(error), self._count)
            self._last, self._count = now, 0
