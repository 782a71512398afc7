"""Calls of the API: required role, strictly parsed body, possible problems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter
from fastapi import APIRouter, Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from selectroute.registry.authorization.role import Role
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.selector.suggestion import did_you_mean, shown
from selectroute.service.http.callers import Caller
from selectroute.service.http.error_mapping import NO_SUBSCRIPTION, escaped
from selectroute.service.http.headers import check_json, request_headers
from selectroute.service.http.problems import (
    IBM,
    IBM_MEDIA_TYPE,
    MEDIA_TYPE,
    MQRC_SUB_NAME_ERROR,
    PROBLEMS,
    Fault,
    MqErrors,
    Problem,
    ProblemError,
    as_json,
)

Function = TypeVar("Function", bound=Callable[..., Any])

ROLE: Final = "x-role"
"""Member of an operation in the OpenAPI document that names the required role."""

SMALL_BODY: Final = 1 << 14
"""Bytes of a body up to which the event loop parses it itself, in at most two milliseconds."""

NO_PATH: Final = "there is no such path"

MOST_FAULTS: Final = 100
"""Faults of a body that are reported at most."""

_ALWAYS: Final = (
    "invalid-request",
    "unauthorised",
    "misdirected",
    "timed-out",
    "too-many-requests",
    "unavailable",
)


class Call(APIRoute):
    """Route that checks the caller's role before reading the body, and parses JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, wrapped in the checks."""
        handler = super().get_route_handler()
        role = Role[(self.openapi_extra or {})[ROLE]]
        body_field = self.body_field
        parameters = tuple(_parameters(self.dependant))
        # A coroutine takes a thread only when needed, not while it waits.
        takes_thread = not inspect.iscoroutinefunction(self.endpoint)
        writes = role is not Role.reader and self.methods != {"GET"} and takes_thread

        async def checked(request: Request) -> Response:
            caller: Caller = request.state.caller
            if not caller.role.includes(role):
                raise ProblemError(
                    "forbidden", f"this needs the role {role.name}, the token has the role {caller.role.name}"
                )
            for name in request.query_params:
                if name not in parameters:
                    # A filter that is ignored because of a typo would list, or get, any message.
                    advice = (
                        did_you_mean(name, parameters, "the parameters are")
                        if parameters
                        else "this path takes none"
                    )
                    raise ProblemError(
                        "invalid-request", f"no parameter {shown(name)}: {advice}", place=shown(name)
                    )
            if body_field is not None:
                request = StrictRequest(request.scope, request.receive)
                if await request.body():
                    check_json(request_headers(request.scope))
                    await request.validate(body_field, request.app.state.service.parsing)
            try:
                if writes:
                    async with request.app.state.service.writing:
                        return await handler(request)
                return await handler(request)
            except RequestValidationError as error:
                if isinstance(request, StrictRequest) and request.faults:
                    found = [one for one in error.errors() if one["loc"][:1] != ("body",)]
                    raise RequestValidationError([*found, *request.faults]) from error
                raise

        return checked


def _parameters(call: Dependant) -> Iterator[str]:
    """Yield the names of a call's query parameters, including those of its dependencies."""
    yield from (one.alias for one in call.query_params)
    for one in call.dependencies:
        yield from _parameters(one)


class StrictRequest(Request):
    """Request whose body is strict JSON (RFC 8259): no NaN, no duplicate members, only UTF-8.

    `faults` are the errors of the body, in FastAPI's format.
    """

    faults: Sequence[Any] = ()

    async def json(self) -> Any:
        """Return the parsed body, validated if it is a model. Raises a problem, 400, if it is not JSON."""
        if not hasattr(self, "_parsed"):
            self._parsed = _strict(await self.body())
        return self._parsed

    async def validate(self, field: ModelField, limiter: CapacityLimiter) -> None:
        """Parse and validate the body. FastAPI does so in the event loop, where all other requests wait; here
        a large body is parsed in a thread, a few at a time.
        """
        body = await self.body()
        if len(body) <= SMALL_BODY:
            self._validate(body, field)
        else:
            async with limiter:
                await run_in_threadpool(self._validate, body, field)

    def _validate(self, body: bytes, field: ModelField) -> None:
        self._parsed, self.faults = validated(body, field)
        if self.faults:
            # FastAPI refuses a text as a body at once, and validates the other parts of the request.
            self._parsed = ""


def validated(body: bytes, field: ModelField) -> tuple[Any, Sequence[Any]]:
    """Return the parsed body, as its model if it has one, and its errors, in FastAPI's format. Raises a
    problem, 400, if it is not JSON.
    """
    parsed = _strict(body)
    made, faults = field.validate(parsed, {}, loc=("body",))
    return (made if isinstance(made, BaseModel) else parsed), (faults or ())[:MOST_FAULTS]


def _strict(body: bytes) -> Any:
    try:
        return parse_json(body)
    except JsonError as error:
        offset, line, column = error.place or (None, None, None)
        fault = Fault(pointer="", reason=error.reason, offset=offset, line=line, column=column)
        raise ProblemError("invalid-request", f"the body is {error}", faults=[fault]) from None


CURSOR: Final[Mapping[str, str]] = {"invalid-subscription": "The cursor is not one of this registry"}
"""Titles of a call that takes a cursor and no subscription."""


def call(
    router: APIRouter,
    method: str,
    path: str,
    role: Role,
    *problems: str,
    titles: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for `method` and `path`, for callers of this role or
    above, with these rows of `PROBLEMS` in addition to those of every call. `titles` say what a problem means
    for this call, where its own title does not.
    """
    # Without tokens, a cross-site request is refused if it is not a GET.
    always = _ALWAYS if role is Role.reader and method == "GET" else (*_ALWAYS, "forbidden")
    body = _IBM_ERRORS if path.startswith(IBM) else _PROBLEM
    options["responses"] = {**_answers(always + problems, titles, body), **options.get("responses", {})}
    options["openapi_extra"] = {ROLE: role.name, **options.get("openapi_extra", {})}
    options.setdefault("response_class", JsonAnswer)
    return router.api_route(path, methods=[method], **options)


class JsonAnswer(JSONResponse):
    """Response in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return plain data as bytes. Items of a list, which may have megabytes, are encoded one by one,
        because the encoder holds the GIL until it is done.
        """
        if not isinstance(content, dict) or not any(_has_items(value) for value in content.values()):
            return as_json(content)
        members = (as_json(name) + b":" + _by_items(value) for name, value in content.items())
        return b"{" + b",".join(members) + b"}"


def _has_items(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1


def _by_items(value: Any) -> bytes:
    if _has_items(value):
        return b"[" + b",".join(map(as_json, value)) + b"]"
    return as_json(value)


def invalid(error: RequestValidationError, method: str) -> ProblemError:
    """Return the problem of a request that fails validation: for an invalid id not found, except for a PUT,
    which would create it: its answer says what is invalid.
    """
    errors = error.errors()
    faults = [_fault(one) for one in errors[:MOST_FAULTS]]
    of_path = {one["loc"][1] for one in errors if one["loc"][:1] == ("path",)}
    if of_path == {"id"} and method != "PUT":
        return ProblemError("subscription-not-found", NO_SUBSCRIPTION)
    if "version" in of_path:
        return ProblemError("not-found", NO_PATH)
    if of_path == {"token"}:
        return ProblemError("not-found", "there is no token with this id")
    if of_path:
        name = min(of_path)
        kind, mqrc = ("invalid-subscription", MQRC_SUB_NAME_ERROR) if name == "id" else ("invalid-body", None)
        reason = f"{name} must be 1 to 128 letters, digits and . _ -"
        return ProblemError(kind, reason, faults=[Fault(pointer=f"/{name}", reason=reason, mqrc=mqrc)])
    kind = "invalid-body" if any(one["loc"][:1] == ("body",) for one in errors) else "invalid-request"
    first = faults[0]
    return ProblemError(kind, f"{first.pointer or 'the body'}: {first.reason}", faults=faults)


def _fault(error: Any) -> Fault:
    where, *steps = error["loc"]
    if where != "body":
        return Fault(pointer=str(steps[0]) if steps else str(where), reason=error["msg"])
    pointer = "".join("/" + escaped(str(step)[:100]) for step in steps)
    return Fault(pointer=pointer, reason=error["msg"])


def _answers(
    kinds: tuple[str, ...], titles: Mapping[str, str], body: Mapping[str, Any]
) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {}
    for kind in dict.fromkeys(kinds):
        row = PROBLEMS[kind]
        title = titles.get(kind, row.title)
        before = found.get(row.status, {}).get("description")
        description = f"{before}; {title}" if before else title
        found[row.status] = {"description": description, "content": body}
    return found


_PROBLEM: Final = {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
_IBM_ERRORS: Final = {IBM_MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{MqErrors.__name__}"}}}
