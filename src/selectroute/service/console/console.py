"""Console as an ASGI application around the service: all of its paths are below ``/console/``.

Who signs in gives a token, which becomes a cookie that no script can read. A change is taken only from a page
of this console: the browser says so itself (Sec-Fetch-Site), an older one by the Origin. No page may be shown
inside another, runs a script that is not the console's own file, or asks another host for anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from selectroute.service.app import Application
from selectroute.service.console import dead_letters, queues, streams, subscriptions
from selectroute.service.console.page import (
    ROOT,
    STATIC,
    ApiError,
    PageError,
    api_of,
    cookie_of,
    form,
    is_token,
    redirect,
    rendered,
)
from selectroute.service.http.middleware import SAFE
from selectroute.service.logs import log

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response of the console."""

_TITLES: Final = {
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.METHOD_NOT_ALLOWED: "The page does not take this",
}


class WithConsole:
    """Application of a service with its console; a browser that asks for ``/`` is sent there.

    Args:
        app: the service's application, whose ``state`` is shared.
        queue_manager: the name of the service's queue manager.
    """

    def __init__(self, app: Application, queue_manager: str) -> None:
        self.state = app.state
        self._app = app
        self._pages = Starlette(
            routes=[Mount(ROOT, routes=_routes())],
            exception_handlers={
                ApiError: _on_api_error,
                PageError: _on_page_error,
                HTTPException: _on_http_error,
                Exception: _on_any_error,
            },
        )
        self._pages.state.api = app
        self._pages.state.queue_manager = queue_manager
        self._pages.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: by a page of the console, or by the service."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(f"{ROOT}/"):
            await self._pages(scope, receive, _with_headers(send))
        elif scope["type"] == "http" and (path == ROOT or (path == "/" and _is_browser(scope))):
            response = RedirectResponse(f"{ROOT}/", HTTPStatus.SEE_OTHER, {"Vary": "Accept"})
            await response(scope, receive, _with_headers(send))
        else:
            await self._app(scope, receive, send)


def _routes() -> list[BaseRoute]:
    screens = (*streams.ROUTES, *subscriptions.ROUTES, *queues.ROUTES, *dead_letters.ROUTES)
    return [
        Route("/", _front),
        Route("/sign-in", sign_in),
        Route("/sign-in", _checked(sign_in_done), methods=["POST"]),
        Route("/sign-out", _checked(sign_out), methods=["POST"]),
        *(
            Route(path, _checked(screen) if method not in SAFE else screen, methods=[method])
            for method, path, screen in screens
        ),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]


def _is_browser(scope: Scope) -> bool:
    return scope["method"] in SAFE and "text/html" in Headers(scope=scope).get("accept", "")


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sent


def _checked(screen: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a screen that changes something, with a check that a page of this console asks for it."""

    async def checked(request: Request) -> Response:
        check_origin(request.headers)
        return await screen(request)

    return checked


def check_origin(headers: Headers) -> None:
    """Check that a page of this console sent a request (against CSRF). Raises `PageError`, 403."""
    site = headers.get("sec-fetch-site")
    origin = urlsplit(headers.get("origin", ""))
    is_own = bool(origin.netloc) and origin.netloc.lower() == headers.get("host", "").lower()
    if (site != "same-origin" if site is not None else not is_own) or ("origin" in headers and not is_own):
        raise PageError(
            HTTPStatus.FORBIDDEN, "the request does not come from a page of this console: open the page anew"
        )


# ---- sign-in


async def _front(request: Request) -> Response:
    """Go to the first screen."""
    return redirect("/overview")


async def sign_in(request: Request) -> Response:
    """Ask for a token."""
    return rendered(request, "sign_in.html", {"next": _next(request.query_params.get("next")), "error": None})


async def sign_in_done(request: Request) -> Response:
    """Take the token, if the service knows it."""
    fields = await form(request)
    token, after = fields.get("token", "").strip(), _next(fields.get("next"))
    api = api_of(request)
    try:
        if not is_token(token):
            raise PageError(HTTPStatus.UNAUTHORIZED, "a token has letters, digits and signs of ASCII")
        await replace(api, token=token).call("GET", "/v1/caller")
    except (ApiError, PageError) as error:
        status = HTTPStatus(error.status)
        return rendered(request, "sign_in.html", {"next": after, "error": str(error)}, status)
    response = RedirectResponse(after, HTTPStatus.SEE_OTHER)
    # A proxy that speaks TLS to the browser says so. A client that lies harms only its own cookie.
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    response.set_cookie(
        cookie_of(request), token, path=ROOT, secure=scheme.lower() == "https", httponly=True, samesite="lax"
    )
    return response


async def sign_out(request: Request) -> Response:
    """Forget the token."""
    response = redirect("/sign-in")
    response.delete_cookie(cookie_of(request), path=ROOT, httponly=True, samesite="lax")
    return response


def _next(path: str | None) -> str:
    """Return where to go after the sign-in: only to a page of this console."""
    if path is None or not path.startswith(f"{ROOT}/") or "\\" in path:
        return f"{ROOT}/"
    return path if path.isascii() and path.isprintable() else f"{ROOT}/"


# ---- errors


async def _on_api_error(request: Request, error: Exception) -> Response:
    """Show a problem of the API as a page; ask for a token where one is missing or no longer valid."""
    assert isinstance(error, ApiError)
    if error.status == HTTPStatus.UNAUTHORIZED:
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return redirect("/sign-in", next=wanted if request.method in SAFE else None)
    title = str(error.problem.get("title") or "The service refused this")
    return _error(request, HTTPStatus(error.status), title, str(error), error.faults)


async def _on_page_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PageError)
    return _error(request, error.status, "The console refused this", str(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    sentence = (
        f"There is no page {quote(request.url.path)}." if status == HTTPStatus.NOT_FOUND else status.phrase
    )
    return _error(request, status, _TITLES.get(status, status.phrase), sentence)


async def _on_any_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ClientDisconnect):
        log().error("page failed", path=request.url.path, exc_info=error)
    sentence = "The service's log says why."
    return _error(request, HTTPStatus.INTERNAL_SERVER_ERROR, "The console failed", sentence)


def _error(request: Request, status: HTTPStatus, title: str, sentence: str, faults: object = ()) -> Response:
    data = {"status": int(status), "title": title, "sentence": sentence, "faults": faults}
    return rendered(request, "error.html", data, status)
