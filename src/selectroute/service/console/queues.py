"""Screens of queues: all of them, one with its messages by ids or selector, one message, and changes of them.

Before each change a step shows how many messages it affects. A message that is got is shown whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from selectroute.queues.message.message import time_of
from selectroute.queues.settings import MAX_MESSAGE_LENGTH
from selectroute.registry.role import Role
from selectroute.selector.sentences import counted
from selectroute.service.console.page import (
    MOST_BYTES,
    Api,
    ApiAnswer,
    ApiError,
    PageError,
    api_of,
    form,
    page,
    redirect,
    rendered,
)
from selectroute.service.http.middleware import MESSAGING

_LOOKUP: Final = {
    "messageId": "Message id",
    "correlationId": "Correlation id",
    "groupId": "Group id",
    "msgSeqNumber": "Sequence number",
    "offset": "Offset",
    "msgToken": "Token",
    "selector": "Selector",
}
"""Conditions on messages, as the messaging API has them, with their labels."""

_NUMBERS: Final = ("msgSeqNumber", "offset")
_ON_A_PAGE: Final = 50
_SAMPLE: Final = 10
"""Messages that are shown before something is done to all that match."""

_MOST_DIGITS: Final = 18
_MOST_IN_A_ROW: Final = 200
"""Characters of a property in a list."""

_MOST_TEXT: Final = 20_000
"""Characters of a body, and of a property, that a page shows unless it is asked for the whole message."""

_MOST_SHOWN: Final = MAX_MESSAGE_LENGTH
"""Bytes of a body that a page shows at most; a longer one is a download."""

_MOST_PUT: Final = 3 * MAX_MESSAGE_LENGTH + MOST_BYTES
"""Bytes of the form with which a message is put: of one byte of its body, a browser may make three."""

_PUT: Final = {
    "correlationId": "ibm-mq-md-correlationId",
    "priority": "ibm-mq-md-priority",
    "properties": "ibm-mq-usr",
}
"""Fields of the form with which a message is put, as headers of the messaging API."""

_GONE: Final = "The message is no longer on the queue."
_INVISIBLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a page does not show, or changes."""

_UNSAFE: Final = re.compile("[^A-Za-z0-9_-]+")
_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


async def listed(request: Request) -> Response:
    """Show all queues: how many messages each has, since when, and how many gets wait."""
    api = api_of(request)
    names = [queue["name"] for queue in (await api.get("/v1/queues"))["items"]]
    queues = []
    for name in names:
        try:
            queues.append(await _described(api, name))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # not deleted meanwhile
                raise
    return await page(request, "queues.html", {"queues": queues})


async def shown(request: Request) -> Response:
    """Show a queue, and a page of its messages that the ids or the selector in the URL find."""
    api, query = api_of(request), request.query_params
    queue = await _described(api, request.path_params["name"])
    data: dict[str, Any] = {"queue": queue, "messages": [], "following": None, "error": None}
    status = HTTPStatus.OK
    # One message more tells whether there is another page.
    params = {**_wanted(query), "after": query.get("after"), "limit": _ON_A_PAGE + 1}
    try:
        answer = await api.get(f"{_messaging(request)}/messagelist", params)
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        data["error"], status = str(error), HTTPStatus(error.status)
    else:
        messages = data["messages"] = _rows(answer["messages"][:_ON_A_PAGE])
        has_more = len(answer["messages"]) > _ON_A_PAGE
        data["following"] = messages[-1]["msgToken"] if has_more else answer["next"]
    return await page(request, "queue.html", data | _searched(query) | {"done": query.get("done")}, status)


# ---- one message


async def message(request: Request) -> Response:
    """Show one message without taking it from its queue; with ``whole`` in the URL, all of it."""
    is_whole = bool(request.query_params.get("whole"))
    data = await _browsed(request, _MOST_SHOWN if is_whole else _MOST_TEXT)
    return await page(request, "message.html", data | {"step": "browse"})


async def asked_to_get(request: Request) -> Response:
    """Show one message, and ask whether to take it from its queue: it, of how many that match."""
    data = await _browsed(request, _MOST_TEXT)
    path = f"{_of(request.path_params['name'])}:count"
    matching = await api_of(request).get(path, data["lookup"])
    return await page(request, "message.html", data | {"step": "ask", "counted": matching})


async def _browsed(request: Request, most: int) -> dict[str, Any]:
    """Return a message on its queue as its page shows it, with at most ``most`` characters of each text."""
    params = {"msgToken": _token(request.query_params)}
    answer = await api_of(request).call("GET", f"{_messaging(request)}/message", params=params)
    properties = await _properties(request, params)
    if not _is_message(answer) or properties is None:
        raise PageError(HTTPStatus.NOT_FOUND, _GONE)
    data = {"name": request.path_params["name"], "token": params["msgToken"], "most": _MOST_SHOWN}
    return data | _parts(answer, properties, most) | _searched(request.query_params)


async def body(request: Request) -> Response:
    """Return the body of a message as a file, byte by byte. The message stays on its queue."""
    params = {"msgToken": _token(request.query_params)}
    answer = await api_of(request).call("GET", f"{_messaging(request)}/message", params=params)
    if not _is_message(answer):
        raise PageError(HTTPStatus.NOT_FOUND, _GONE)
    return _file(request, answer)


async def got(request: Request) -> Response:
    """Take one message from its queue, and show all of it: it is nowhere else afterwards."""
    api, name, fields = api_of(request), request.path_params["name"], await form(request)
    await api.call("GET", "/v1/caller")  # who is not signed in is asked for a token before anything else
    params = {"msgToken": _token(fields)}
    properties = await _properties(request, params)  # a get leaves out those that fit into no header
    if properties is None:
        raise PageError(HTTPStatus.NOT_FOUND, _GONE)
    answer = await api.call("DELETE", f"{_messaging(request)}/message", params=params)
    if not _is_message(answer):
        raise PageError(HTTPStatus.NOT_FOUND, _GONE)
    if len(answer.body) > _MOST_SHOWN:
        return _file(request, answer)
    data = _parts(answer, properties, None) | _searched(fields)
    return await page(request, "message.html", data | {"name": name, "step": "got"})


def _token(values: Mapping[str, str]) -> str:
    """Return the token of a page's message. Raises `PageError` without one, which would match any message."""
    if not values.get("token"):
        raise PageError(HTTPStatus.NOT_FOUND, "This address names no message: choose one of a queue.")
    return values["token"]


def _is_message(answer: ApiAnswer) -> bool:
    return "ibm-mq-md-msgtoken" in answer.headers


async def _properties(request: Request, params: Mapping[str, str]) -> dict[str, Any] | None:
    """Return all properties of the message with a token; None if it is not on the queue."""
    path = f"{_messaging(request)}/messagelist"
    messages = (await api_of(request).get(path, params))["messages"]
    return messages[0]["properties"] if messages else None


class TextPart(NamedTuple):
    """Text of a message, or its beginning, and how many characters the whole text has."""

    text: str
    characters: int

    @property
    def is_cut(self) -> bool:
        """True if this is only the beginning."""
        return len(self.text) < self.characters


def _part(text: str, most: int | None) -> TextPart:
    return TextPart(text[:most], len(text))


def _parts(answer: ApiAnswer, properties: Mapping[str, Any], most: int | None) -> dict[str, Any]:
    """Return the parts of a message, at most ``most`` characters of each; None for all."""
    try:
        text = answer.body.decode()
    except UnicodeDecodeError:
        text = None
    is_plain = text is not None and not _INVISIBLE.search(text)
    prefix, headers = "ibm-mq-md-", answer.headers.items()
    shown = None if text is None else _part(text, most)
    digits = None if is_plain else _part(answer.body.hex(" "), most)
    rows = [(name, *_typed(value, most)) for name, value in properties.items()]
    each = [shown, digits, *(part for _, _, part in rows)]
    return {
        "text": shown,
        "digits": digits,
        "properties": rows,
        "fields": {key[len(prefix) :]: value for key, value in headers if key.startswith(prefix)},
        "bytes": len(answer.body),
        "is_cut": any(part is not None and part.is_cut for part in each),
    }


def _typed(value: Any, most: int | None) -> tuple[str, TextPart]:
    """Return the type of a property, and its value as text."""
    kinds = {bool: "boolean", str: "string", int: "long", float: "double"}
    kind = kinds[type(value)] if type(value) in kinds else value["type"]
    plain = value["value"] if isinstance(value, dict) else value
    return kind, _part(plain if isinstance(plain, str) else json.dumps(plain), most)


def _file(request: Request, answer: ApiAnswer) -> Response:
    """Return the body of a message as a download, with a name of safe characters."""
    parts = (request.path_params["name"], answer.headers["ibm-mq-md-messageid"].removeprefix("ID:"))
    name = "-".join(_UNSAFE.sub("-", part).strip("-") or "queue" for part in parts)
    headers = {"Content-Disposition": f'attachment; filename="{name}.bin"'}
    return Response(answer.body, headers=headers, media_type="application/octet-stream")


# ---- putting one


async def asked_to_put(request: Request) -> Response:
    """Show the form for a message, with the number of messages on the queue."""
    await api_of(request).call("GET", "/v1/caller")
    return await _put_page(request, {})


async def put(request: Request) -> Response:
    """Put a message on a queue. A refusal shows the form again, with all that was written."""
    api, name = api_of(request), request.path_params["name"]
    stranger, may_put = None, False
    try:
        may_put = (await api.get("/v1/caller"))["role"] != Role.reader.name
        await api.call("GET", _of(name))
    except ApiError as error:
        stranger = error
    values = await form(request, _MOST_PUT if may_put and stranger is None else MOST_BYTES)
    fields = {field: values.get(field, "") for field in (*_PUT, "body")}
    headers = {header: fields[field] for field, header in _PUT.items() if fields[field].strip()}
    try:
        if stranger is not None:
            raise stranger
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
        if error.status == HTTPStatus.UNAUTHORIZED and not any(fields.values()):
            raise
        return await _put_page(request, fields, error)
    return redirect(f"/queues/{quote(name, safe='')}", done="put")


async def _put_page(
    request: Request, fields: Mapping[str, str], error: ApiError | PageError | None = None
) -> Response:
    """Show the form for a message; without the queue's numbers if the caller may not see the queue."""
    name, queue = request.path_params["name"], None
    status = HTTPStatus.OK if error is None else HTTPStatus(error.status)
    try:
        queue = await _described(api_of(request), name)
    except ApiError:
        if error is None:
            raise
    sentence = None if error is None else str(error)
    data = {"name": name, "queue": queue, "error": sentence, "put": dict.fromkeys((*_PUT, "body"), "")}
    data["put"] |= fields
    try:
        return await page(request, "queue_put.html", data, status)
    except ApiError:
        if error is None:
            raise
        return rendered(request, "queue_put.html", data, status)  # the caller is unknown


# ---- many messages


async def asked_to(action: str, request: Request) -> Response:
    """Ask whether the messages that the lookup in the URL finds are to be removed, or moved, with their
    number.
    """
    query = request.query_params
    return await _bulk(request, action, _wanted(query), query.get("to", ""))


async def _bulk(
    request: Request,
    action: str,
    lookup: dict[str, str],
    to: str = "",
    error: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """Show how many messages an action would affect, and the first of them."""
    api, name = api_of(request), request.path_params["name"]
    matching = await api.get(f"{_of(name)}:count", lookup)
    path = f"{_messaging(request)}/messagelist"
    sample = (await api.get(path, {**lookup, "limit": _SAMPLE}))["messages"]
    names = [queue["name"] for queue in (await api.get("/v1/queues"))["items"]]
    data = {"name": name, "action": action, "to": to, "counted": matching, "sample": _rows(sample)}
    data |= {"others": [other for other in names if other != name], "error": error, "result": None}
    return await page(request, "queue_bulk.html", data | _searched(lookup), status)


async def done(action: str, request: Request) -> Response:
    """Purge or move, and show what came of it; where another number matches than the page before has shown,
    ask again.
    """
    api, name, fields = api_of(request), request.path_params["name"], await form(request)
    lookup, to = _wanted(fields), fields.get("to", "")
    await api.call("GET", "/v1/caller")  # who is not signed in is asked for a token before anything else
    asked: dict[str, Any] = {field: value for field, value in lookup.items() if value}
    asked |= {field: _number(asked[field]) for field in _NUMBERS if field in asked}
    if action == "move":
        asked["to"] = to
    if fields.get("position"):
        asked["position"] = fields["position"]
    else:
        asked["expected"] = _number(fields.get("expected", ""))
    try:
        result = await api.post(f"{_of(name)}:{action}", asked)
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return await _bulk(request, action, lookup, to, str(error), HTTPStatus(error.status))
    before = _number(fields.get("done", "0"))
    data = {"name": name, "action": action, "to": to, "result": result, "error": None}
    data["done"] = before + result["done"]
    return await page(request, "queue_bulk.html", data | _searched(lookup))


# ---- parts of several screens


def _wanted(values: Mapping[str, str]) -> dict[str, str]:
    return {field: values.get(field, "") for field in _LOOKUP}


def _searched(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the conditions of a page and the position in its list, both also as parameters of a URL."""
    lookup, after = _wanted(values), values.get("after", "")
    asked = {field: value for field, value in lookup.items() if value}
    state = asked | ({"after": after} if after else {})
    return {"lookup": lookup, "labels": _LOOKUP, "after": after, "asked": asked, "state": state}


async def _described(api: Api, name: str) -> dict[str, Any]:
    """Return a queue as the API describes it, with the age of its oldest message."""
    described: dict[str, Any] = await api.get(_of(name))
    return described | {"age": None if described["oldest"] is None else _age(described["oldest"])}


def _age(moment: str) -> str:
    """Return how long ago a time was, in its largest unit, as a person says it."""
    seconds = max(int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()), 0)
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    return counted(seconds // size, unit)


def _rows(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a list, with the time of the put, and their properties as texts."""
    return [
        item
        | {
            "put": time_of(item["timestamp"]).isoformat(),
            "properties": [
                (name, *_typed(value, _MOST_IN_A_ROW)) for name, value in item["properties"].items()
            ],
        }
        for item in messages
    ]


def _number(text: str) -> int:
    """Return a number of a form. Raises `PageError` for any other text."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise PageError(HTTPStatus.BAD_REQUEST, f"{text[:_MOST_DIGITS]!r} is not a whole number")
    return int(text)


def _messaging(request: Request) -> str:
    """Return the path of a queue's messages. The name of the queue manager is the service's own."""
    name = request.path_params["name"]
    manager = request.app.state.queue_manager
    messaging = MESSAGING.format(version="v3", qmgr=quote(manager, safe=""))
    return f"{messaging}queue/{quote(name, safe='')}"


def _of(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


ROUTES: Final = (
    ("GET", "/queues", listed),
    ("GET", "/queue-message/{name:path}", message),
    ("GET", "/queue-body/{name:path}", body),
    ("GET", "/queue-get/{name:path}", asked_to_get),
    ("POST", "/queue-get/{name:path}", got),
    ("GET", "/queue-put/{name:path}", asked_to_put),
    ("POST", "/queue-put/{name:path}", put),
    ("GET", "/queue-purge/{name:path}", partial(asked_to, "purge")),
    ("POST", "/queue-purge/{name:path}", partial(done, "purge")),
    ("GET", "/queue-move/{name:path}", partial(asked_to, "move")),
    ("POST", "/queue-move/{name:path}", partial(done, "move")),
    ("GET", "/queues/{name:path}", shown),
)
"""Method, path and function of each screen."""
