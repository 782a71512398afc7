"""Screen that pauses, resumes or removes many subscriptions: those chosen, or all that are found.

The first step shows how many it will touch. The second step does it, all or none, if these are the same
subscriptions at the same revisions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from selectroute.service.console.api import Api, ApiError
from selectroute.service.console.page import PageError, api_of, form, page, redirect
from selectroute.service.console.subscriptions import DONE, FILTERS, PATH, SEARCH, list_page, path_of

MOST: Final = 5_000
"""Subscriptions that are changed at once."""

_AT_ONCE: Final = 1_000
_SHOWN: Final = 10
_MOST_VALUES: Final = 1_000

_ACTIONS: Final = {"pause": "active", "resume": "paused", "remove": ""}
"""Actions, with the status of the subscriptions that they change; none for any."""

_DONE: Final = dict(zip(_ACTIONS, DONE, strict=True))


async def asked(request: Request) -> Response:
    """Show how many subscriptions an action would change, and ask whether to do it."""
    return await _asked(request, _action(request.query_params.get("action", "")), request.url.query)


async def _asked(
    request: Request, action: str, query: str, error: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    targets = await _found(api_of(request), action, query)
    data = {
        "action": action,
        "done": _DONE[action],
        "query": query,
        "count": len(targets),
        "too_many": len(targets) > MOST,
        "most": MOST,
        "items": targets[:_SHOWN],
        "digest": _digest(targets),
        "error": error,
        "back": _back(query),
    }
    return await page(request, "bulk.html", data, status)


async def done(request: Request) -> Response:
    """Change the subscriptions that the first step showed."""
    fields = await form(request)
    action, query = _action(fields.get("action", "")), fields.get("query", "")
    api = api_of(request)
    targets = await _found(api, action, query)
    if len(targets) > MOST or not targets or _digest(targets) != fields.get("digest"):
        changed = "They have changed since you saw them: look at them again."
        return await _asked(request, action, query, changed, HTTPStatus.CONFLICT)
    body = {
        "operations": [
            {"op": action, "id": target["id"], "expected": target["revision"]} for target in targets
        ]
    }
    try:
        await api.call("POST", f"{PATH}:batch", body=body)
    except ApiError as error:
        if error.kind not in ("stale-revision", "subscription-not-found", "forbidden"):
            raise
        return await _asked(request, action, query, str(error), HTTPStatus(error.status))
    return redirect("/subscriptions", **dict(_values(_back(query))), done=_DONE[action], count=len(targets))


def _action(text: str) -> str:
    if text not in _ACTIONS:
        raise PageError(HTTPStatus.UNPROCESSABLE_ENTITY, "the action must be pause, resume or remove")
    return text


async def _found(api: Api, action: str, query: str) -> list[dict[str, Any]]:
    """Return the subscriptions that a query finds and that the action changes, one above `MOST` at most."""
    values = _values(query)
    chosen, fields = [value for name, value in values if name == "id"], dict(values)
    if chosen:
        items = [await api.get(path_of(id)) for id in dict.fromkeys(chosen)]
        return _changed(items, action)
    targets: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(targets) <= MOST:
        answer = await list_page(api, fields, _AT_ONCE, cursor)
        targets += _changed(answer["items"], action)
        if (cursor := answer["next_cursor"]) is None:
            break
    return targets[: MOST + 1]


def _changed(items: Sequence[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    status = _ACTIONS[action]
    return [item for item in items if status in ("", item["status"])]


def _digest(targets: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of subscriptions and their revisions."""
    return hashlib.sha256(
        json.dumps([[target["id"], target["revision"]] for target in targets]).encode()
    ).hexdigest()


def _values(query: str) -> list[tuple[str, str]]:
    """Return the names and values of a query. Raises `PageError` for too many."""
    try:
        return parse_qsl(query, max_num_fields=_MOST_VALUES)
    except ValueError:
        raise PageError(HTTPStatus.BAD_REQUEST, f"a URL has at most {_MOST_VALUES:,} values") from None


def _back(query: str) -> str:
    """Return the query of the list that the subscriptions were found in."""
    kept = [(name, value) for name, value in _values(query) if name in (*SEARCH, *FILTERS)]
    return urlencode(kept)


ROUTES: Final = (("GET", "/bulk", asked), ("POST", "/bulk", done))
"""Method, path and function of each screen."""
