"""Short way of a few calls that come by the thousand: their parameters are read without the framework.

Routing and the injection of dependencies take longer than a change itself. A request that is as it should be
is handed to the function of its call directly; any other takes the usual way, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selectroute.registry.authorization.role import Role
from selectroute.service.context import Service, caller_of, service_of
from selectroute.service.http.callers import Caller
from selectroute.service.http.endpoint import ROLE, SMALL_BODY, validated
from selectroute.service.http.headers import check_json, header_text, request_headers
from selectroute.service.http.problems import ProblemError


class ShortWay:
    """Application in front of the router.

    Args:
        app: the router, the usual way.
        service: the service.
        routes: the routes of the calls. Their functions are coroutines without query parameters.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._service = service
        self._calls = [_Call(route) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        found = self._found(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        call, of_path = found
        caller = scope["state"]["caller"]
        body = await Request(scope, receive).body() if call.has_body else None
        given = call.arguments(scope, of_path, body, caller, self._service)
        if given is None:
            await self._app(scope, receive if body is None else _again(body, receive), send)
            return
        scope["route"] = call.route  # its path is the label of the metrics
        response = await call.route.endpoint(**given)
        await response(scope, receive, send)

    def _found(self, scope: Scope) -> tuple[_Call, dict[str, str]] | None:
        """Return the call and the parameters of its path; None if it has to take the usual way."""
        if scope["query_string"]:
            return None
        for call in self._calls:
            if scope["method"] == call.method and (found := call.route.path_regex.match(scope["path"])):
                return (call, found.groupdict()) if call.permits(scope["state"]["caller"]) else None
        return None


class _Call:
    """Call whose parameters are known."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        (self.method,) = route.methods or {""}
        self._role = Role[(route.openapi_extra or {})[ROLE]]
        self._body = route.body_field
        needs = route.dependant
        assert not needs.query_params and not needs.cookie_params, "the usual way reads them"
        self._of_path = needs.path_params
        self._of_header = [
            (one.alias.lower().encode(), one, one.get_default()) for one in needs.header_params
        ]
        self._service = [one.name for one in needs.dependencies if one.call is service_of]
        self._caller = [one.name for one in needs.dependencies if one.call is caller_of]
        assert len(self._service) + len(self._caller) == len(needs.dependencies), "unknown dependencies"

    @property
    def has_body(self) -> bool:
        """Return whether the function takes a body."""
        return self._body is not None

    def permits(self, caller: Caller) -> bool:
        """Return whether the caller has the role. Checked before the body is read: who has not need not send
        it.
        """
        return caller.role.includes(self._role)

    def arguments(
        self, scope: Scope, of_path: dict[str, str], body: bytes | None, caller: Caller, service: Service
    ) -> dict[str, Any] | None:
        """Return the arguments of the function; None if anything is unusual or wrong."""
        given: dict[str, Any] = {name: service for name in self._service if name is not None}
        given |= {name: caller for name in self._caller if name is not None}
        for field in self._of_path:
            given[field.name], faults = field.validate(of_path[field.alias], {}, loc=("path", field.alias))
            if faults:
                return None
        headers = request_headers(scope)
        for name, field, default in self._of_header:
            if (value := header_text(headers, name)) is None:
                given[field.name] = default
                continue
            given[field.name], faults = field.validate(value, {}, loc=("header",))
            if faults:
                return None
        if self._body is not None:
            if not body or len(body) > SMALL_BODY:
                return None
            try:
                check_json(headers)
                given[self._body.name], wrong = validated(body, self._body)
            except ProblemError:
                return None
            if wrong:
                return None
        return given


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with a body that was read already."""
    parts = [body]

    async def received() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return received
