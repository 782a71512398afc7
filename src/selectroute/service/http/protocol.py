"""HTTP/1.1 of uvicorn with httptools, stricter than both: problem documents for input that is not HTTP, a
limit of heads and a timeout for idle connections, and no upgrades.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits

_OFFER: Final = b"\r\nUpgrade: h2c\r\n"
"""Offer of HTTP/2 as Java's HttpClient and curl make it; a server may ignore it (RFC 9110, 7.8)."""

MOST_HEAD: Final = 16_384
"""Bytes of an incomplete head, without the last read, after which a connection is refused."""

WHOLE: Final = "selectroute.whole"
"""Key in the scope of a request whose body has arrived completely: to receive it takes no time."""


class Protocol(HttpToolsProtocol):
    """Connection. The application never gets a request that cannot be parsed.

    The head of a request must be complete `header_seconds` after the connection or the last response, even if
    bytes arrive.
    """

    _timeout: asyncio.TimerHandle | None = None
    _in_head = False
    _is_between = True
    """True before the first byte of a request."""

    _received = 0
    """Bytes received since the read in which the head of the newest request began."""

    def connection_made(self, transport: Any) -> None:
        """Start the timeout of the first request, or refuse the connection if there are too many."""
        super().connection_made(transport)
        limits = self._limits()
        if len(self.connections) > limits.connections:
            detail = f"{limits.connections:,} connections are open already"
            self._refuse(ProblemError("unavailable", detail))
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data."""
        if self.transport.is_closing():
            return
        self._received += len(data)
        if self._is_between:
            offer = data.find(_OFFER)
            if 0 <= offer < data.find(b"\r\n\r\n"):
                data = data[:offer] + data[offer + len(_OFFER) - 2 :]
        super().data_received(data)
        if self._in_head and self._received > MOST_HEAD:
            self._refuse(ProblemError("invalid-request", f"a head has at most {MOST_HEAD:,} bytes"))

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        self._in_head, self._is_between, self._received = True, False, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Fields after the body (trailers) are not headers, and are ignored."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handle a complete head, which cancels the timeout. Raises ValueError: it is not valid HTTP/1.1."""
        self._in_head = False
        if self.parser.should_upgrade():  # its body would be read as the next request
            raise ValueError("RFC 9110, 7.8")
        named = [value for name, value in self.headers if name == b"host"]
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1") or len(named) > 1 or (version == "1.1" and not named):
            raise ValueError("RFC 9112, 2.3 and 3.2")
        if codings not in ([], [b"chunked"]):
            raise ValueError("RFC 9112, 6.1")
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, _OneWrite(self.transport, self.cycle))
        self._stop_waiting()

    def on_message_complete(self) -> None:
        """Note that a body is complete: a small one is before the application gets the request."""
        super().on_message_complete()
        self._is_between = True
        self.scope[WHOLE] = True  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Start the timeout of the next request."""
        super().on_response_complete()
        if self.cycle.response_complete:  # no other request was received meanwhile
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close; only close if a response has begun. Requests before are answered first."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        if cycle is not None and not (cycle.response_complete or cycle.more_body):
            cycle.keep_alive = False
        else:
            self._refuse(
                ProblemError("invalid-request", "the request is not valid HTTP/1.1, or asks for an upgrade")
            )

    def _limits(self) -> ServiceLimits:
        app: Any = self.config.app
        limits: ServiceLimits = app.state.service.limits
        return limits

    def _wait(self) -> None:
        self._stop_waiting()
        self._timeout = self.loop.call_later(self._limits().header_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            seconds = self._limits().header_seconds
            self._refuse(ProblemError("timed-out", f"no request was received within {seconds:g} seconds"))

    def _refuse(self, problem: ProblemError) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)  # none before the first request
        if cycle is None or cycle.response_complete or not cycle.response_started:
            answer = problem.response(str(uuid.uuid4()))
            head = [(b"connection", b"close"), (b"cache-control", b"no-store"), *answer.raw_headers]
            lines = b"".join(b"%s: %s\r\n" % header for header in head)
            first = b"HTTP/1.1 %d %b\r\n" % (problem.status, _PHRASES[problem.status])
            self.transport.write(first + lines)
            self.transport.write(b"\r\n" + bytes(answer.body))
        self.transport.close()


class _OneWrite:
    """Transport of one response: its head is sent with the first part of its body. uvicorn writes both by
    themselves, each a system call for which a thread gives up the interpreter.
    """

    def __init__(self, transport: asyncio.Transport, cycle: RequestResponseCycle) -> None:
        self._transport = transport
        self._cycle = cycle
        self._head = b""
        self._had_head = False

    def write(self, data: bytes) -> None:
        """Send data, or keep the head of the response. What comes before it (100 Continue) is sent at once,
        and so is the head of a response that has no body.
        """
        if self._cycle.response_started and not self._had_head and self._cycle.scope["method"] != "HEAD":
            self._head, self._had_head = data, True
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def close(self) -> None:
        """Close the connection when everything is sent."""
        self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._transport.is_closing()


_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}


class AcceptErrors:
    """Exception handler of an event loop that limits the reports of failed accepts to one per interval."""

    def __init__(
        self, say: Callable[[str, int], None], clock: Callable[[], float], every: float = 10
    ) -> None:
        self._say = say
        self._clock = clock
        self._every = every
        self._last: float | None = None
        self._count = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count failed accepts; pass any other error to the default handler."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "accept" not in context.get("message", ""):
            loop.default_exception_handler(context)
            return
        self._count += 1
        now = self._clock()
        if self._last is None or now - self._last >= self._every:
            self._say(error.strerror or str(error), self._count)
            self._last, self._count = now, 0
