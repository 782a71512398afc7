"""Middleware that every request passes: who asks, how often, how large; and what every answer leaves behind:
a line in the log, a count, an id by which both can be found.
"""

from __future__ import annotations

import time
import uuid
from http import HTTPStatus
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selectroute.registry.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError
from selectroute.service.context import Service
from selectroute.service.http.callers import ANYBODY, Caller
from selectroute.service.http.error_mapping import INTERNAL, noted
from selectroute.service.http.problems import ProblemError
from selectroute.service.http.rates import Rates
from selectroute.service.logs import log

IMPORT: Final = "/v1/subscriptions:import"
MESSAGING: Final = "/ibmmq/rest/v3/messaging/"

FREE: Final = frozenset({"/", "/docs", "/healthz", "/readyz", "/openapi.json"})
"""What anybody may ask: it says nothing of subscriptions."""

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Methods that are counted by their names; a client can make up any number of others."""

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

KNOWN_SECONDS: Final = 0.05
"""How long a body may take until the caller's token is looked at again behind its end."""

REFUSED_PER_SECOND: Final = 20.0
REFUSED_BURST: Final = 100
"""Answers 401 that one address gets at once. Each further one comes `HELD_BACK_SECONDS` later: a flood of
requests without a token would otherwise take this process from everybody else.
"""

HELD_BACK_SECONDS: Final = 1.0

_ONCE: Final = ("Authorization", "Content-Type", "Idempotency-Key")
"""Headers that say nothing if they say two things."""


class Gate:
    """Middleware around all calls."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._refused = Rates(REFUSED_PER_SECOND, REFUSED_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # what GET answers; the server itself sends no body to a HEAD
            scope = {**scope, "method": "GET"}
        passing = _Passing(scope, send, method)
        try:
            caller = await self._admit(scope)
            scope["state"]["caller"] = passing.caller = caller
            limited = self._limited(scope, receive)
            await self._app(scope, limited, passing.send)
        except SelectRouteError as error:
            problem = noted(error, passing.id)
            if problem.status == HTTPStatus.UNAUTHORIZED and self._refused.wait_seconds(_address(scope)):
                await anyio.sleep(HELD_BACK_SECONDS)
            await passing.refuse(problem, receive)
        except ClientDisconnect:
            pass  # in the midst of its own request: nobody is left who could be answered
        except Exception:
            log().exception("request failed", request=passing.id)
            await passing.refuse(ProblemError("internal", INTERNAL), receive)
        finally:
            passing.done(self._service)

    async def _admit(self, scope: Scope) -> Caller:
        """Return who sends the request. Raises a problem for a caller who is not let in, or asks too
        often.
        """
        service, headers = self._service, Headers(scope=scope)
        if "\n" in scope["path"]:  # the router would take a path that ends in one for the path without it
            raise ProblemError("invalid-request", "a path has no line feed", place="path")
        if scope["path"] in FREE:
            return ANYBODY
        for name in _ONCE:
            if len(headers.getlist(name)) > 1:
                raise ProblemError("invalid-request", f"one {name} header is enough", place=name)
        caller = await run_in_threadpool(service.callers.caller, headers.get("authorization"))
        if caller is ANYBODY and not is_loopback(_host(headers.get("host", ""))):
            # A page of some site whose name is made to point here would be let in otherwise.
            raise ProblemError(
                "misdirected", "without tokens this service answers only to localhost, 127.0.0.1 and [::1]"
            )
        if caller is ANYBODY and scope["method"] not in SAFE:
            _check_origin(headers)
        wait = service.rates.wait_seconds(caller.subject)
        if wait:
            detail = f"at most {service.limits.requests_per_second:g} requests a second, on average"
            raise ProblemError("too-many-requests", detail, headers={"Retry-After": str(wait)})
        return caller

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """`receive`, which ends at the limit of a body, and where the caller was let in no more when the body
        is whole. Raises at once where the length says that it will end at the limit.
        """
        limits = self._service.limits
        path = scope["path"]
        kind, limit = "too-large", limits.import_bytes if path == IMPORT else limits.body_bytes
        if path.startswith(MESSAGING):
            kind, limit = "message-too-large", limits.message_bytes
        too_large = ProblemError(kind, f"the body has more than {limit:,} bytes")
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > limit):
            raise too_large
        received, more = 0, True
        started = time.monotonic()

        async def limited() -> Message:
            nonlocal received, more
            if not more:  # what is waited for now is that the client hangs up
                return await receive()
            left = started + limits.body_seconds + received / limits.body_rate - time.monotonic()
            with anyio.move_on_after(max(left, 0)):
                message = await receive()
                received += len(message.get("body", b""))
                more = message.get("more_body", False)
                if received > limit:
                    raise too_large
                if not more and path not in FREE and time.monotonic() - started > KNOWN_SECONDS:
                    # A body can be held back for long, and the token be revoked meanwhile.
                    authorization = Headers(scope=scope).get("authorization")
                    await run_in_threadpool(self._service.callers.caller, authorization)
                return message
            seconds, rate = f"{limits.body_seconds:g} seconds", f"{limits.body_rate:,} bytes a second"
            detail = f"a body comes within {seconds}, or at {rate}"
            raise ProblemError("timed-out", detail)

        return limited


class _Passing:
    """Request on its way: what is sent, and what is noted of it."""

    def __init__(self, scope: Scope, send: Send, method: str) -> None:
        self.id = str(uuid.uuid4())
        self.caller: Caller | None = None
        self._scope = scope
        self._send = send
        self._method = method
        self._status: int | None = None
        self._started = time.perf_counter()
        scope.setdefault("state", {})["request_id"] = self.id

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)

    async def refuse(self, problem: ProblemError, receive: Receive) -> None:
        """Answer with a problem; if an answer is under way, it breaks off."""
        if self._status is not None:
            raise ConnectionAbortedError("the answer cannot be completed")
        if problem.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
            problem.headers["Connection"] = "close"  # the rest of the body is not read
        await problem.response(self.id)(self._scope, receive, self.send)

    def done(self, service: Service) -> None:
        """Note the answer. The route's pattern stands for the path, which the caller made."""
        route = getattr(self._scope.get("route"), "path", "none")
        method = self._method if route != "none" else "any"
        if method not in METHODS:
            method = "any"
        seconds = time.perf_counter() - self._started
        service.metrics.requests.labels(method, route, str(self._status)).inc()
        service.metrics.request_seconds.labels(method, route).observe(seconds)
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
    """Return the address that the connection comes from."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def _check_origin(headers: Headers) -> None:
    """Raise a problem, 403, for a change that a page of another site asks for: a browser sends it for anybody
    who looks at that page, who needs no token here.
    """
    origin = headers.get("origin")
    is_own = origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not is_own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise ProblemError("forbidden", "a page of another site changes nothing here without a token")


def _host(header: str) -> str:
    """Return the host of a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]
