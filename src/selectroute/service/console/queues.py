"""Screens of queues: all of them, one with its first messages by ids or selector, and one message whole."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from selectroute.service.console.api import Answer, ApiError
from selectroute.service.console.page import PageError, api_of, form, page, redirect
from selectroute.service.http.middleware import MESSAGING

_LOOKUP: Final = ("messageId", "correlationId", "groupId", "selector")
_ON_A_PAGE: Final = 50
_SAMPLE: Final = 10
"""Messages that are shown before something is done to all that match."""

_MOST_DIGITS: Final = 18
_MOST_TEXT: Final = 20_000
"""Characters of a body that are shown."""

_PUT: Final = {
    "correlationId": "ibm-mq-md-correlationId",
    "priority": "ibm-mq-md-priority",
    "properties": "ibm-mq-usr",
}
"""Fields of the form with which a message is put, as headers of the messaging API."""


async def listed(request: Request) -> Response:
    """Show all queues, with their depths."""
    api = api_of(request)
    names = [one["name"] for one in (await api.call("GET", "/v1/queues")).data["items"]]
    found = [(await api.call("GET", _of(name))).data for name in names]
    return await page(request, "queues.html", {"queues": found})


async def shown(request: Request) -> Response:
    """Show a queue, and the first of its messages that the ids or the selector in the URL find."""
    return await _queue(request)


async def _queue(
    request: Request,
    error: str | None = None,
    put: dict[str, str] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    api, name = api_of(request), request.path_params["name"]
    queue = (await api.call("GET", _of(name))).data
    lookup = _wanted(request.query_params)
    messages: list[dict[str, Any]] = []
    try:
        answer = await api.call(
            "GET", f"{_messaging(request)}/messagelist", params={**lookup, "limit": _ON_A_PAGE}
        )
        messages = answer.data["messages"]
    except ApiError as found:
        if found.status == HTTPStatus.UNAUTHORIZED:
            raise
        error, status = error or str(found), HTTPStatus(found.status)
    data = {
        "queue": queue,
        "messages": messages,
        "lookup": lookup,
        "most": _ON_A_PAGE,
        "error": error,
        "put": put or dict.fromkeys((*_PUT, "body"), ""),
        "done": request.query_params.get("done"),
    }
    return await page(request, "queue.html", data, status)


async def message(request: Request) -> Response:
    """Show one message whole, without taking it from its queue."""
    api, name = api_of(request), request.path_params["name"]
    token = request.query_params.get("msgToken", "")
    path = _messaging(request)
    found = await api.call("GET", f"{path}/message", params={"msgToken": token})
    if not found.body and "ibm-mq-md-msgtoken" not in found.headers:
        raise PageError(HTTPStatus.NOT_FOUND, "The message is no longer on the queue.")
    listed = (await api.call("GET", f"{path}/messagelist", params={"msgToken": token})).data["messages"]
    data = {"name": name, "fields": _fields(found), "properties": listed[0]["properties"] if listed else {}}
    return await page(request, "message.html", data | {"token": token, **_text(found.body)})


async def put(request: Request) -> Response:
    """Put a message on a queue."""
    api, name, given = api_of(request), request.path_params["name"], await form(request)
    fields = {field: given.get(field, "") for field in (*_PUT, "body")}
    headers = {header: fields[field] for field, header in _PUT.items() if fields[field].strip()}
    try:
        if any(not value.isascii() or not value.isprintable() for value in headers.values()):
            raise PageError(
                HTTPStatus.UNPROCESSABLE_ENTITY, "ids, priority and properties are one line of ASCII each"
            )
        await api.call(
            "POST",
            f"{_messaging(request)}/message",
            content=fields["body"].encode(),
            headers={**headers, "Content-Type": "text/plain; charset=utf-8"},
        )
    except (ApiError, PageError) as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return await _queue(request, str(error), fields, HTTPStatus(error.status))
    return redirect(f"/queues/{quote(name, safe='')}", done="put")


async def got(request: Request) -> Response:
    """Take one message from its queue, and show it: it is nowhere else afterwards."""
    api, name, given = api_of(request), request.path_params["name"], await form(request)
    path = _messaging(request)
    found = await api.call("DELETE", f"{path}/message", params={"msgToken": given.get("msgToken", "")})
    if "ibm-mq-md-msgtoken" not in found.headers:
        raise PageError(HTTPStatus.NOT_FOUND, "The message is no longer on the queue.")
    data = {"name": name, "fields": _fields(found), "properties": {}, "token": None}
    return await page(request, "message.html", data | _text(found.body))


# ---- many messages


async def asked_to_purge(request: Request) -> Response:
    """Ask whether the messages that the lookup in the URL finds are to be removed, with their number."""
    return await _bulk(request, "purge", _wanted(request.query_params))


async def asked_to_move(request: Request) -> Response:
    """Ask whether the messages that the lookup in the URL finds are to be moved, with their number."""
    given = request.query_params
    return await _bulk(request, "move", _wanted(given), given.get("to", ""))


async def purged(request: Request) -> Response:
    """Remove messages, if as many match as the page before has shown."""
    return await _done(request, "purge", await form(request))


async def moved(request: Request) -> Response:
    """Move messages, if as many match as the page before has shown."""
    return await _done(request, "move", await form(request))


async def _bulk(
    request: Request,
    action: str,
    lookup: dict[str, str],
    to: str = "",
    error: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """Show how many messages an action is about, and the first of them."""
    api, name = api_of(request), request.path_params["name"]
    counted = (await api.call("GET", f"{_of(name)}:count", params=lookup)).data
    path = f"{_messaging(request)}/messagelist"
    sample = (await api.call("GET", path, params={**lookup, "limit": _SAMPLE})).data["messages"]
    names = [one["name"] for one in (await api.call("GET", "/v1/queues")).data["items"]]
    data = {"name": name, "action": action, "lookup": lookup, "to": to, "counted": counted, "sample": sample}
    data |= {"others": [one for one in names if one != name], "error": error, "result": None}
    return await page(request, "queue_bulk.html", data, status)


async def _done(request: Request, action: str, given: dict[str, str]) -> Response:
    """Purge or move, and show what came of it; where another number matches now, ask again."""
    api, name = api_of(request), request.path_params["name"]
    lookup, to = _wanted(given), given.get("to", "")
    await api.call("GET", "/v1/caller")  # who is not signed in is asked for a token before anything else
    body: dict[str, Any] = {field: value for field, value in lookup.items() if value}
    if action == "move":
        body["to"] = to
    if given.get("position"):
        body["position"] = given["position"]
    else:
        body["expected"] = _number(given.get("expected", ""))
    try:
        result = (await api.call("POST", f"{_of(name)}:{action}", body=body)).data
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return await _bulk(request, action, lookup, to, str(error), HTTPStatus(error.status))
    before = _number(given.get("done", "0"))
    data = {"name": name, "action": action, "lookup": lookup, "to": to, "result": result, "error": None}
    return await page(request, "queue_bulk.html", data | {"done": before + result["done"]})


def _wanted(given: Mapping[str, str]) -> dict[str, str]:
    return {field: given.get(field, "") for field in _LOOKUP}


def _number(text: str) -> int:
    """Return a number of a form. Raises `PageError` for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise PageError(HTTPStatus.BAD_REQUEST, "the form has no number: open the page anew")
    return int(text)


def _messaging(request: Request) -> str:
    """Return the path of a queue's messages. The name of the queue manager is the service's own."""
    name = request.path_params["name"]
    manager = request.app.state.queue_manager
    return f"{MESSAGING}qmgr/{quote(manager, safe='')}/queue/{quote(name, safe='')}"


def _of(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def _fields(found: Answer) -> dict[str, str]:
    """Return the fields of a message's descriptor by their names in the messaging API."""
    prefix = "ibm-mq-md-"
    return {name[len(prefix) :]: value for name, value in found.headers.items() if name.startswith(prefix)}


def _text(body: bytes) -> dict[str, Any]:
    """Return a body as text, or as hexadecimal digits if it is none."""
    try:
        text, is_text = body.decode(), True
    except UnicodeDecodeError:
        text, is_text = body.hex(" "), False
    return {
        "body": text[:_MOST_TEXT],
        "is_text": is_text,
        "bytes": len(body),
        "is_cut": len(text) > _MOST_TEXT,
    }


ROUTES: Final = (
    ("GET", "/queues", listed),
    ("GET", "/queue-message/{name:path}", message),
    ("POST", "/queue-get/{name:path}", got),
    ("POST", "/queue-put/{name:path}", put),
    ("GET", "/queue-purge/{name:path}", asked_to_purge),
    ("POST", "/queue-purge/{name:path}", purged),
    ("GET", "/queue-move/{name:path}", asked_to_move),
    ("POST", "/queue-move/{name:path}", moved),
    ("GET", "/queues/{name:path}", shown),
)
"""Method, path and function of each screen."""
