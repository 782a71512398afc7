"""Call of the API, a row of the table in ``service.calls``: its route, its role, its problems, and its
function, whose annotations say what it takes and answers.

A parameter of a function is the `Service`, the `Caller` or the `Request` by its type; the body by its name,
``body``; of the path if the path has its name; a header with `Header`; several of path and query at once if
it is a model; and any other is of the query. Bounds, descriptions and other names are pydantic's, in
``Annotated[..., Field(...)]``. A function returns data, which becomes JSON, or a response:
``Annotated[Response, ...]`` says of which data.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import is_dataclass
from functools import cached_property
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path

from selectroute.registry.role import Role
from selectroute.selector.errors import did_you_mean, shown
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.headers import Header, check_json, header_text, request_headers
from selectroute.service.http.problems import (
    MQRC_SUB_NAME_ERROR,
    NO_SUBSCRIPTION,
    ProblemError,
    RequestFault,
    as_json,
    escaped,
    members_of,
)

SMALL_BODY: Final = 1 << 14
"""Bytes of a body up to which the event loop parses it itself, in at most two milliseconds."""

NO_PATH: Final = "there is no such path"

MOST_FAULTS: Final = 100
"""Faults of a body that are reported at most."""

JSON: Final = "application/json"


class BodyType(NamedTuple):
    """Mark of a body of another media type than JSON's."""

    name: str


class JsonAnswer(JSONResponse):
    """Response in JSON."""

    media_type = JSON

    def render(self, content: Any) -> bytes:
        """Return plain data or a dataclass as bytes. Items of a list, which may have megabytes, are encoded
        one by one, because the encoder holds the GIL until it is done.
        """
        if is_dataclass(content) and not hasattr(content, "to_json"):
            content = members_of(content)
        if not isinstance(content, dict) or not any(_has_items(value) for value in content.values()):
            return as_json(content)
        members = (as_json(name) + b":" + _by_items(value) for name, value in content.items())
        return b"{" + b",".join(members) + b"}"


def _has_items(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1


def _by_items(value: Any) -> bytes:
    return b"[" + b",".join(map(as_json, value)) + b"]" if _has_items(value) else as_json(value)


class Call:
    """Call of the API.

    Args:
        method: its method; a GET is also answered to HEAD.
        path: its path; ``{name}`` is one step of it, ``{name:path}`` one or more.
        role: the role that a caller needs, at least.
        function: answers the call; a coroutine, or a function that is run in a thread.
        summary: for the OpenAPI document, which has no call without one.
        problems: its rows of `PROBLEMS` in addition to the rows of every call and body, each perhaps with
            a title of its own.
        status: the status code of success.
        responses: further responses in OpenAPI's form, or only their descriptions, by status codes.
        example: of its body, or one for each of the media types in ``content``.
        content: the media types of a body that the function reads itself, and their schemas.
        headers: names and descriptions of headers that the function reads itself.
    """

    def __init__(
        self,
        method: str,
        path: str,
        role: Role,
        function: Callable[..., Any],
        summary: str = "",
        *problems: str | tuple[str, str],
        status: int = HTTPStatus.OK,
        responses: Mapping[int, Any] = MappingProxyType({}),
        example: Any = None,
        content: Mapping[str, Any] = MappingProxyType({}),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.method, self.path, self.role, self.function, self.summary = method, path, role, function, summary
        self.problems, self.status, self.responses = problems, status, responses
        self.example, self.content, self.headers = example, content, headers
        self.pattern, self.shown_path, _ = compile_path(path)
        # A coroutine takes a thread only when needed, not while it waits.
        self._takes_thread = not inspect.iscoroutinefunction(function)
        self._writes = role is not Role.reader and method != "GET" and self._takes_thread

    @cached_property
    def takes(self) -> Parameters:
        """Parameters of the function, read when they are first needed."""
        return Parameters(self.function, re.findall(r"{(\w+)", self.path))

    async def answer(self, request: Request, steps: Mapping[str, str], service: Service) -> Response:
        """Answer a request, whose path has these ``steps``. The role is checked before the body is read: a
        caller without it need not send the body. Raises a problem.
        """
        caller: Caller = request.scope["state"]["caller"]
        if not caller.role.includes(self.role):
            detail = f"this needs the role {self.role.name}, the token has the role {caller.role.name}"
            raise ProblemError("forbidden", detail)
        arguments, faults = self.takes.of(request, steps)
        if self.takes.body is not None:
            body = await request.body()
            if body:
                check_json(request_headers(request.scope))
            if len(body) <= SMALL_BODY:
                arguments["body"], more = self.takes.body.of(body)
            else:  # other requests do not wait for it, and few are parsed at a time
                async with service.parsing:
                    arguments["body"], more = await run_in_threadpool(self.takes.body.of, body)
            faults += more
        if faults:
            raise invalid(faults, self.method)
        for name, what in self.takes.injected.items():
            arguments[name] = service if what is Service else caller if what is Caller else request
        if not self._takes_thread:
            return self._response(await self.function(**arguments))
        async with service.writing if self._writes else nullcontext():
            return await run_in_threadpool(lambda: self._response(self.function(**arguments)))

    def _response(self, answer: Any) -> Response:
        return answer if isinstance(answer, Response) else JsonAnswer(answer, self.status)


class Parameters:
    """Parameters of a function. Path, query and headers are validated together, as one model.

    Args:
        function: the function.
        steps: names of the steps of its path.
    """

    def __init__(self, function: Callable[..., Any], steps: Sequence[str]) -> None:
        self.injected: dict[str, type] = {}
        """Parameters of these types: `Service`, `Caller`, `Request`."""
        self.body: Body | None = None
        self._models: dict[str, type[BaseModel]] = {}
        own: dict[str, Any] = {}
        for name, (hint, default) in _signature(function).items():
            if hint in (Service, Caller, Request):
                self.injected[name] = hint
            elif name == "body":
                self.body = Body(hint, default)
            elif isinstance(hint, type) and issubclass(hint, BaseModel):
                fields = hint.model_fields.items()
                own |= {member: (field.annotation, field) for member, field in fields}
                self._models[name] = hint
            else:
                own[name] = hint, default
        self.model = create_model(f"{function.__module__}.{function.__qualname__}", **own)
        self.places: dict[str, str] = {}
        """Where each parameter is: path, header or query, by the name that a client sends."""
        self._lists = set()
        for name, field in self.model.model_fields.items():
            is_header = any(isinstance(mark, Header) for mark in field.metadata)
            sent = field.alias or name
            self.places[sent] = "path" if name in steps else "header" if is_header else "query"
            if _is_list(field.annotation):
                self._lists.add(sent)
        self._headers = {name: name.lower().encode() for name, at in self.places.items() if at == "header"}

    def of(self, request: Request, steps: Mapping[str, str]) -> tuple[dict[str, Any], list[Any]]:
        """Return the arguments that a request has, without the body, and pydantic's errors. Raises a problem
        for a parameter that is unknown.
        """
        sent: dict[str, Any] = {**steps}
        if request.scope["query_string"]:
            for name in request.query_params:
                self._check_known(name)
                several = name in self._lists
                sent[name] = request.query_params.getlist(name) if several else request.query_params[name]
        headers = request_headers(request.scope)
        for name, key in self._headers.items():
            if key in headers:
                sent[name] = header_text(headers, key)
        try:
            values = self.model.model_validate(sent).__dict__
        except ValidationError as error:
            return {}, [
                {**fault, "loc": (self.places[str(fault["loc"][0])], *fault["loc"])}
                for fault in error.errors()
            ]
        for name, model in self._models.items():  # its fields are validated
            values[name] = model.model_construct(**{key: values.pop(key) for key in model.model_fields})
        return values, []

    def _check_known(self, name: str) -> None:
        """Raise a problem, 400, for an unknown parameter of the query: a filter that is ignored because of a
        typo would list, or get, any message.
        """
        if self.places.get(name) == "query":
            return
        known = [parameter for parameter, at in self.places.items() if at == "query"]
        advice = did_you_mean(name, known, "the parameters are") if known else "this path takes none"
        raise ProblemError("invalid-request", f"no parameter {shown(name)}: {advice}", place=shown(name))


class Body:
    """Body of a call: strict JSON (RFC 8259), without NaN and duplicate members, only UTF-8.

    Args:
        hint: its type.
        default: of a body that may be left out.
    """

    def __init__(self, hint: Any, default: Any) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(hint)
        self.is_required = default is ...
        self._default = default
        marks = getattr(hint, "__metadata__", ())
        self.media_type = next((mark.name for mark in marks if isinstance(mark, BodyType)), JSON)

    def of(self, data: bytes) -> tuple[Any, list[Any]]:
        """Return the body, and pydantic's errors. Raises a problem, 400, if it is not JSON."""
        if not data:
            return self._default, [{"loc": ("body",), "msg": "Field required"}] if self.is_required else []
        try:
            return self.adapter.validate_python(_parsed(data)), []
        except ValidationError as error:
            faults = error.errors(include_url=False)[:MOST_FAULTS]
            return None, [{**fault, "loc": ("body", *fault["loc"])} for fault in faults]


def _signature(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the types and defaults of a function's parameters; the default is ``...`` if there is none."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: (hints[name], ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list or any(map(_is_list, get_args(hint)))


def _parsed(body: bytes) -> Any:
    try:
        return parse_json(body)
    except JsonError as error:
        offset, line, column = error.place or (None, None, None)
        fault = RequestFault(pointer="", reason=error.reason, offset=offset, line=line, column=column)
        raise ProblemError("invalid-request", f"the body is {error}", faults=[fault]) from None


def invalid(errors: Sequence[Any], method: str) -> ProblemError:
    """Return the problem of a request with pydantic's errors: for an invalid id not found, except for a PUT,
    which would create it: its answer says what is invalid.
    """
    faults = [_fault(error) for error in errors[:MOST_FAULTS]]
    of_path = {error["loc"][1] for error in errors if error["loc"][0] == "path"}
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
        return ProblemError(kind, reason, faults=[RequestFault(pointer=f"/{name}", reason=reason, mqrc=mqrc)])
    kind = "invalid-body" if any(error["loc"][0] == "body" for error in errors) else "invalid-request"
    first = faults[0]
    return ProblemError(kind, f"{first.pointer or 'the body'}: {first.reason}", faults=faults)


def _fault(error: Any) -> RequestFault:
    where, *steps = error["loc"]
    in_body = "".join("/" + escaped(str(step)[:100]) for step in steps)
    return RequestFault(pointer=in_body if where == "body" else str(steps[0]), reason=error["msg"])
