"""Middleware of every request: authentication, rate and size limits, and for each response a log line,
metrics and a request id.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selectroute.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError
from selectroute.service.context import Service
from selectroute.service.http.callers import ANYBODY, Caller, Rates, sent_by_browsers
from selectroute.service.http.headers import Headers, header_text, request_headers
from selectroute.service.http.problems import IBM, INTERNAL, ProblemError, logged_problem
from selectroute.service.http.protocol import WHOLE
from selectroute.service.logs import log, logs_requests

IMPORT: Final = "/v1/subscriptions:import"
MESSAGING: Final = IBM + "rest/{version}/messaging/qmgr/{qmgr}/"

FREE: Final = frozenset({"/", "/docs", "/healthz", "/readyz", "/openapi.json"})
"""Paths without authentication: they reveal nothing about subscriptions."""

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that are counted by name; a client can invent any number of others."""

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods without effect on state."""

KNOWN_SECONDS: Final = 0.05
"""Duration of a body's upload from which the caller's token is checked again after its end."""

REFUSED_PER_SECOND: Final = 20.0
REFUSED_BURST: Final = 100
"""Responses 401 that one address gets at once. Each further one is delayed by `HELD_BACK_SECONDS`: a flood of
requests without a token would otherwise slow down all other requests.
"""

HELD_BACK_SECONDS: Final = 1.0

_ONCE: Final = ("Authorization", "Content-Type", "Idempotency-Key")
"""Headers that are ambiguous if repeated."""


class Gate:
    """Middleware of all calls."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._refused = Rates(REFUSED_PER_SECOND, REFUSED_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: admit or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # answered as GET; the server omits the body
            scope = {**scope, "method": "GET"}
        exchange = _Exchange(scope, send, method)
        headers = request_headers(scope)
        try:
            caller = await self._admit(scope, headers)
            scope["state"]["caller"] = exchange.caller = caller
            with self._service.bodies.of(caller.subject) as grow:
                limited = self._limited(scope, headers, receive, grow)
                await self._app(scope, limited, exchange.send)
        except SelectRouteError as error:
            problem = logged_problem(error, exchange.id)
            if problem.status == HTTPStatus.UNAUTHORIZED and self._refused.wait_seconds(_address(scope)):
                await anyio.sleep(HELD_BACK_SECONDS)
            await exchange.refuse(problem, receive)
        except ClientDisconnect:
            pass  # no client is left to answer
        except Exception:
            log().exception("request failed", request=exchange.id)
            await exchange.refuse(ProblemError("internal", INTERNAL), receive)
        finally:
            exchange.done(self._service)

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        """Return the caller of a request. Raises a problem if the caller is unknown or exceeds the rate."""
        service, raw = self._service, scope["headers"]
        if "\n" in scope["path"]:  # the router ignores a line feed at the end
            raise ProblemError("invalid-request", "a path must not have a line feed", place="path")
        if scope["path"] in FREE:
            return ANYBODY
        if len(headers) < len(raw):  # a header is repeated
            names = [name for name, _ in raw]
            for name in _ONCE:
                if names.count(name.lower().encode()) > 1:
                    raise ProblemError("invalid-request", f"send only one {name} header", place=name)
        authorization = header_text(headers, b"authorization")
        if authorization is None and service.callers.is_known_open():
            caller = ANYBODY
        else:
            caller = await run_in_threadpool(service.callers.caller, authorization)
        if caller is ANYBODY and not is_loopback(_host(header_text(headers, b"host") or "")):
            # Protects from DNS rebinding: a page of a site whose name was made to point here.
            raise ProblemError(
                "misdirected", "without tokens this service answers only to localhost, 127.0.0.1 and [::1]"
            )
        if (caller is ANYBODY or sent_by_browsers(authorization)) and scope["method"] not in SAFE:
            _check_origin(headers)
        wait = service.rates.wait_seconds(caller.subject)
        if wait:
            detail = f"at most {service.limits.requests_per_second:g} requests a second, on average"
            raise ProblemError("too-many-requests", detail, headers={"Retry-After": str(wait)})
        return caller

    def _limited(
        self, scope: Scope, headers: Headers, receive: Receive, grow: Callable[[int], None]
    ) -> Receive:
        """Return a `receive` that raises at the size or time limit of a body, or if the caller's token is no
        longer valid at its end. Raises at once if Content-Length exceeds the limit.
        """
        limits = self._service.limits
        path = scope["path"]
        kind, limit = "too-large", limits.import_bytes if path == IMPORT else limits.body_bytes
        if path.startswith(IBM):
            kind, limit = "message-too-large", limits.message_bytes

        def too_large() -> ProblemError:
            return ProblemError(kind, f"the body has more than {limit:,} bytes")

        length = header_text(headers, b"content-length") or ""
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            raise too_large()
        received, more = 0, True
        started = time.monotonic()

        async def timely() -> Message:
            left = started + limits.body_seconds + received / limits.body_rate - time.monotonic()
            with anyio.move_on_after(max(left, 0)):
                return await receive()
            seconds, rate = f"{limits.body_seconds:g} seconds", f"{limits.body_rate:,} bytes a second"
            detail = f"the body took too long: send it within {seconds}, or at {rate}"
            raise ProblemError("timed-out", detail)

        async def limited() -> Message:
            nonlocal received, more
            if not more:  # from now on this waits for a disconnect
                return await receive()
            message = await (receive() if scope.get(WHOLE) else timely())
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > limit:
                raise too_large()
            if path != IMPORT:  # an import is not held in memory
                grow(received)
            if not more and path not in FREE and time.monotonic() - started > KNOWN_SECONDS:
                # A slow body may outlive its token.
                authorization = header_text(headers, b"authorization")
                await run_in_threadpool(self._service.callers.caller, authorization)
            return message

        return limited


class _Exchange:
    """Request in progress: sends the response and records its metrics."""

    def __init__(self, scope: Scope, send: Send, method: str) -> None:
        # Unique, and no secret: `uuid4` asks the operating system, and gives up the GIL to do so.
        self.id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self.caller: Caller | None = None
        self._scope = scope
        self._send = send
        self._method = method
        self._status: int | None = None
        self._started = time.perf_counter()
        scope.setdefault("state", {})["request_id"] = self.id

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers: list[tuple[bytes, bytes]] = [*message["headers"], (b"x-request-id", self.id.encode())]
            headers.append((b"x-content-type-options", b"nosniff"))
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, problem: ProblemError, receive: Receive) -> None:
        """Answer with a problem; abort the connection if a response has begun."""
        if self._status is not None:
            raise ConnectionAbortedError("the response cannot be completed")
        if problem.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
            problem.headers["Connection"] = "close"  # the rest of the body is not read
        await problem.response(self.id, self._scope["path"])(self._scope, receive, self.send)

    def done(self, service: Service) -> None:
        """Record the response, under the route's pattern: a path is the caller's choice."""
        route = getattr(self._scope.get("route"), "path", "none")
        method = self._method if route != "none" else "any"
        if method not in METHODS:
            method = "any"
        seconds = time.perf_counter() - self._started
        service.metrics.note_request(method, route, self._status, seconds)
        if not logs_requests():
            return
        log().info(
            "request",
            request=self.id,
            method=method,
            route=route,
            status=self._status,
            milliseconds=round(seconds * 1000, 3),
            caller=None if self.caller is None else self.caller.subject,
        )


def _address(scope: Scope) -> str:
    """Return the address of the client."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def _check_origin(headers: Headers) -> None:
    """Raise a problem, 403, for a cross-site change (CSRF): without tokens, a page of any site could send one
    from a browser on this machine; with HTTP Basic, from a browser that knows the password.
    """
    origin = headers.get(b"origin")
    is_own = origin is None or origin.partition(b"://")[2].lower() == headers.get(b"host", b"").lower()
    if not is_own or headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        raise ProblemError("forbidden", "a cross-site request needs a bearer token")


def _host(header: str) -> str:
    """Return the host of a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]
