"""Parts of every screen of the console: its template, calls of the API with the caller's token, and forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import anyio
import httpx
import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from selectroute.selector.errors import SelectRouteError
from selectroute.selector.sentences import counted
from selectroute.service.http.call import SMALL_BODY
from selectroute.service.http.callers import OpenBodies
from selectroute.service.http.problems import ProblemError


class ApiError(SelectRouteError):
    """Problem document (RFC 9457) with which the API refused a call.

    Args:
        status: the status code.
        problem: the document.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"the API answered {status}"))
        self.status = status
        self.problem = problem

    @property
    def kind(self) -> str:
        """Last part of the problem's type, such as ``stale-revision``."""
        return str(self.problem.get("type", "")).rpartition(":")[2]

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Faults of the request, each with its ``pointer`` and ``reason``."""
        return [*(self.problem.get("errors") or ())]


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """Answer of the API: its data, None if it has no JSON, and its headers and body."""

    data: Any
    headers: httpx.Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Api:
    """API of a service, as one caller may use it.

    Args:
        app: the service's application.
        host: the Host header that the browser sent.
        client: the browser's address and port.
        token: the caller's secret; None without one.
    """

    app: ASGIApp
    host: str
    client: tuple[str, int]
    token: str | None = field(default=None, repr=False)

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the data of a GET. Raises `ApiError`."""
        return (await self.call("GET", path, params=params)).data

    async def post(self, path: str, body: Any = None) -> Any:
        """Return the data of a POST. Raises `ApiError`."""
        return (await self.call("POST", path, body=body)).data

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiAnswer:
        """Return the answer to a call. ``body`` is sent as JSON, ``content`` as it is.

        Raises:
            ApiError: the API refused the call.
        """
        sent = {"Host": self.host, **(headers or {})}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            content = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        query = {name: value for name, value in (params or {}).items() if value not in (None, "")}
        request = httpx.Request(method, f"http://service{path}", params=query, content=content, headers=sent)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False, client=self.client)
        response = await transport.handle_async_request(request)
        data = await response.aread()
        is_json = response.headers.get("content-type", "").partition(";")[0].endswith("json")
        parsed = json.loads(data) if is_json and data else None
        if isinstance(parsed, dict) and response.status_code >= 400 and "error" in parsed:
            parsed = parsed["error"][0]["problem"]  # in IBM's form
        if response.status_code >= 400:
            raise ApiError(response.status_code, parsed if isinstance(parsed, dict) else {})
        return ApiAnswer(parsed, response.headers, data)


ROOT: Final = "/console"

COOKIE: Final = "selectroute-token"
"""Name of the cookie with the token, of a service on the default port: see `cookie_of`."""

SIGNED_OUT: Final = (
    "You are no longer signed in: the token was revoked, or the browser forgot it. What you wrote stays here "
    "until you leave the page. Sign in in another window, then send it again."
)

MOST_BYTES: Final = 1 << 20
_FORMS: Final = "forms of the console"
"""Caller of all forms, for the limit of open bodies."""

_MOST_FIELDS: Final = 1_000
_BODY_SECONDS: Final = 60.0

_FOLDER: Final = Path(__file__).parent
STATIC: Final = _FOLDER / "static"

_TEMPLATES: Final = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class PageError(SelectRouteError):
    """Request that the console refuses: its status code, and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def cookie_of(request: Request) -> str:
    """Return the name of the cookie with the token of the person at the browser, until the browser is closed.

    The cookie is the token itself, not a session: a service that starts again under a page needs no second
    sign-in, there is nothing to fixate, and a token that is revoked ends at once what the browser may do. A
    browser sends cookies to all ports of a host (RFC 6265, section 8.5): by the port in the name, consoles on
    one host do not replace each other's. Another server on the host gets the cookie all the same.
    """
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isascii() and port.isdigit() else COOKIE


def api_of(request: Request) -> Api:
    """Return the API as the caller of a request may use it."""
    client, token = request.client, request.cookies.get(cookie_of(request), "")
    return Api(
        request.app.state.api,
        request.headers.get("host", ""),
        ("", 0) if client is None else (client.host, client.port),
        token if is_token(token) else None,
    )


def is_token(text: str) -> bool:
    """Return whether a text can stand in a header as a token."""
    return bool(text) and text.isascii() and text.isprintable()


async def page(
    request: Request, template: str, data: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> HTMLResponse:
    """Return a screen, which shows who is signed in. Raises `ApiError`, for a caller who is not."""
    caller = await api_of(request).get("/v1/caller")
    return rendered(request, template, {**data, "caller": caller}, status)


def rendered(
    request: Request, template: str, data: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK
) -> HTMLResponse:
    """Return a template as a response."""
    context = {"caller": None, "root": ROOT, "path": request.url.path, **data}
    return HTMLResponse(_TEMPLATES.get_template(template).render(context), status)


def redirect(path: str, *, part: str = "", **params: Any) -> Response:
    """Return the response after a change: the browser reads this page of the console, from this part on."""
    query = urlencode({name: value for name, value in params.items() if value not in (None, "")})
    where = f"{ROOT}{path}{'?' if query else ''}{query}{'#' if part else ''}{part}"
    return RedirectResponse(where, HTTPStatus.SEE_OTHER)


async def form(request: Request, most: int = MOST_BYTES) -> dict[str, str]:
    """Return the fields of a form of at most ``most`` bytes, each once, with line ends as ``\\n``.

    Raises:
        PageError: the body is not a form, is too large, comes too slowly, or there are too many.
    """
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise PageError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the console takes forms only")
    bodies: OpenBodies = request.app.state.api.state.service.bodies
    body = bytearray()
    with bodies.of(_FORMS) as grow:
        with anyio.move_on_after(_BODY_SECONDS) as time:
            async for part in request.stream():
                body += part
                if len(body) > most:
                    raise PageError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a form has at most {most:,} bytes")
                try:
                    grow(len(body))
                except ProblemError as error:
                    raise PageError(HTTPStatus(error.status), error.detail) from error
        if time.cancelled_caught:
            raise PageError(HTTPStatus.REQUEST_TIMEOUT, f"the form took more than {_BODY_SECONDS:g} seconds")
        return _fields(body) if len(body) <= SMALL_BODY else await run_in_threadpool(_fields, body)


def _fields(body: bytearray) -> dict[str, str]:
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise PageError(HTTPStatus.BAD_REQUEST, "the form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def _moment(text: str) -> str:
    """Return a time of the API as a person reads it: ``2026-11-25 14:03:07``, UTC."""
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S")


def rate(value: float) -> str:
    """Return a number a second as a person reads it: ``1,234``, ``1.2``, ``0.0012``."""
    if value < 0.001:
        return "under 0.001"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _value(value: Any) -> str:
    """Return a value of an explanation as text."""
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else json.dumps(value)


_TEMPLATES.filters |= {
    "moment": _moment,
    "number": "{:,}".format,
    "rate": rate,
    "value": _value,
    "counted": counted,
    "compact": partial(json.dumps, ensure_ascii=False),
}
