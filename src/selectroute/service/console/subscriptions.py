"""Screens of subscriptions: the list, one with its history, the editor, and what is done to one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, get_args
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from selectroute.registry.model import Order
from selectroute.selector.sentences import counted
from selectroute.service.console.api import Api, ApiError
from selectroute.service.console.page import (
    SIGNED_OUT,
    PageError,
    api_of,
    form,
    is_token,
    page,
    redirect,
    rendered,
)
from selectroute.service.console.streams import names
from selectroute.service.http.middleware import SAFE
from selectroute.service.http.models import Dialect
from selectroute.service.subscriptions.search import SearchField

PATH: Final = "/v1/subscriptions"
SEARCH: Final = ("text", "field")
FILTERS: Final = ("topic", "status", "dialect", "name", "label")
DONE: Final = ("paused", "resumed", "removed")
"""What may have been done to many subscriptions of the list."""

SEARCHED: Final = get_args(SearchField)
_ORDERS: Final = dict(
    zip(get_args(Order), ("their ids", "their names", "their changes, the newest first"), strict=True)
)
_MOST_DIGITS: Final = 9
_ON_A_PAGE: Final = 50
_WAIT_SECONDS: Final = 20
_CHANGES: Final = 50

_FIELDS: Final = ("name", "topic", "selector", "dialect", "extended", "kind", "destination", "labels")
"""Fields of the editor's form. ``labels`` has one ``name=value`` a line."""

DIALECTS: Final = get_args(Dialect)


async def listed(request: Request) -> Response:
    """Show a page of subscriptions: those that the text in its URL finds, or the filters."""
    query = request.query_params
    asked = {name: query.get(name, "") for name in (*SEARCH, *FILTERS, "order")}
    answer = await list_page(api_of(request), asked, _ON_A_PAGE, query.get("cursor"))
    data = {"items": answer["items"], "next_cursor": answer["next_cursor"], "asked": asked, "orders": _ORDERS}
    data["activity"] = await _activity(api_of(request), [item["id"] for item in answer["items"]])
    done, count = query.get("done", ""), query.get("count", "")
    is_done = done in DONE and count.isdecimal() and len(count) <= _MOST_DIGITS
    data["done"] = f"{counted(int(count), 'subscription')} {done}." if is_done else None
    data |= {
        "searches": bool(asked["text"]),
        "fields": SEARCHED,
        "filtered": any(asked[name] for name in FILTERS),
    }
    return await page(request, "subscriptions.html", data | {"dialects": DIALECTS})


async def _activity(api: Api, ids: list[str]) -> dict[str, Any]:
    """Return what is known of the last deliveries of subscriptions, by id."""
    if not ids:
        return {}
    answer = await api.get(f"{PATH}:activity", {"id": ids})
    return {item["id"]: item for item in answer["items"]}


async def list_page(api: Api, asked: Mapping[str, str], limit: int, cursor: str | None) -> dict[str, Any]:
    """Return the API's page of the subscriptions that a text and the filters find: in the order of their ids
    if there is a text.
    """
    searches = bool(asked.get("text"))
    params = {name: asked.get(name) for name in (*FILTERS, *(SEARCH if searches else ("order",)))}
    path = PATH + (":search" if searches else "")
    answer: dict[str, Any] = await api.get(path, {**params, "limit": limit, "cursor": cursor})
    return answer


async def shown(request: Request) -> Response:
    """Show a subscription, from which batch its last change holds, its last delivery and its history."""
    return await _shown(request, request.query_params.get("done"))


async def _shown(request: Request, done: str | None, backfill: Sequence[Mapping[str, Any]] = ()) -> Response:
    api, id = api_of(request), request.path_params["id"]
    params = {"limit": _CHANGES, "cursor": request.query_params.get("cursor")}
    history = await api.get(f"{path_of(id)}/changes", params)
    try:
        now = await api.get(path_of(id))
        activity = await api.get(f"{path_of(id)}/activity")
    except ApiError as error:
        if error.kind != "subscription-not-found":
            raise
        now = activity = None  # removed: its history is left
    # Who reads the names reads the newest reports of all streams.
    names_streams = bool(backfill or (now and now["effective_from"]) or (activity and activity["query"]))
    data = {
        "id": id,
        "now": now,
        "activity": activity,
        "names": await names(api) if names_streams else {},
        "changes": history["changes"],
        "next_cursor": history["next_cursor"],
        "done": done,
        "backfill": backfill,
    }
    return await page(request, "subscription.html", data)


async def held(request: Request) -> Response:
    """Return whether a batch has used the last change of a subscription, as JSON for the console's script,
    which asks again until one has.
    """
    api, id = api_of(request), request.path_params["id"]
    now = await api.get(path_of(id), {"wait": _WAIT_SECONDS})
    known = await names(api) if now["effective_from"] else {}
    sentences = [
        f"in the stream {known.get(batch['query'], batch['query'])} from batch {batch['batch']:,} on"
        for batch in now["effective_from"]
    ]
    return JSONResponse({"sentence": "; ".join(sentences) or None})


# ---- the editor


async def new(request: Request) -> Response:
    """Show the editor, empty."""
    fields = dict.fromkeys(_FIELDS, "") | {"dialect": "jms", "kind": "none"}
    return await _editor(request, None, fields)


async def edited(request: Request) -> Response:
    """Show the editor with a subscription."""
    id = request.path_params["id"]
    now = await api_of(request).get(path_of(id))
    return await _editor(request, id, _fields_of(now), revision=str(now["revision"]))


async def check(request: Request) -> Response:
    """Return what the API says of a selector that is being typed, as JSON for the console's script."""
    values = await form(request)
    body = {"selector": values.get("selector", ""), "dialect": values.get("dialect", "jms")}
    try:
        return JSONResponse(await api_of(request).post("/v1/selectors:check", body))
    except ApiError as error:
        is_known = error.status != HTTPStatus.UNAUTHORIZED
        return JSONResponse({"problem": str(error) if is_known else SIGNED_OUT}, error.status)


async def identifiers(request: Request) -> Response:
    """Return the identifiers in recent messages, as JSON for the console's script."""
    return JSONResponse(await api_of(request).get("/v1/messages/identifiers"))


async def sent(request: Request) -> Response:
    """Save the editor's form, or try it on recent messages. Where another person saved before, show both
    versions.
    """
    values = await form(request)
    fields = {name: values.get(name, "") for name in _FIELDS}
    id: str | None = request.path_params.get("id")
    api, key, revision = api_of(request), values.get("key", ""), values.get("revision", "")
    try:
        spec = _spec(fields, await _base(api, id, revision))
        if values.get("do") == "try":
            asked = {"subscription": spec} | ({} if id is None else {"id": id})
            trial = await api.post(f"{PATH}:dry-run", asked)
            return await _editor(request, id, fields, revision, trial=trial)
        if id is None:
            headers = {"Idempotency-Key": key} if is_token(key) else {}
            made = (await api.call("POST", PATH, body=spec, headers=headers)).data
            return redirect(f"/subscriptions/{made['id']}", done="registered")
        await api.call("PUT", path_of(id), body=spec, headers=_if_match(values))
        return redirect(f"/subscriptions/{quote(id, safe='')}", done="saved")
    except PageError as error:
        return await _editor(request, id, fields, revision, error=str(error))
    except ApiError as error:
        if error.kind == "stale-revision" and id is not None:
            return await _conflict(request, api, id, fields)
        text, faults, status = str(error), error.faults, HTTPStatus(error.status)
        return await _editor(request, id, fields, revision, error=text, faults=faults, status=status)


async def _conflict(request: Request, api: Api, id: str, fields: Mapping[str, str]) -> Response:
    """Show what is there now beside what was to be saved. Saving again replaces what is there now."""
    now = await api.get(path_of(id))
    theirs = _fields_of(now)
    differ = [name for name in _FIELDS if _as_sent(name, theirs[name]) != fields[name]]
    return await _editor(
        request,
        id,
        fields,
        str(now["revision"]),
        theirs={name: theirs[name] for name in differ},
        error="Another person changed this subscription meanwhile: it is at revision "
        f"{now['revision']:,} now. What you wrote is kept below. Save again to replace what is there.",
        status=HTTPStatus.PRECONDITION_FAILED,
    )


async def _editor(
    request: Request,
    id: str | None,
    fields: Mapping[str, str],
    revision: str = "",
    *,
    theirs: Mapping[str, str] | None = None,
    trial: Mapping[str, Any] | None = None,
    error: str | None = None,
    faults: object = (),
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    data = {
        "id": id,
        "key": secrets.token_urlsafe(16),  # sent twice, by a second click, it registers one subscription
        "fields": fields,
        "revision": revision,
        "theirs": theirs,
        "trial": trial,
        "error": error,
        "faults": faults,
        "dialects": DIALECTS,
    }
    try:
        return await page(request, "editor.html", data, status)
    except ApiError as missing:
        if missing.status != HTTPStatus.UNAUTHORIZED or request.method in SAFE:
            raise
        return rendered(request, "editor.html", data | {"error": SIGNED_OUT}, HTTPStatus.UNAUTHORIZED)


def _fields_of(now: Mapping[str, Any]) -> dict[str, str]:
    """Return a subscription as the fields of the form."""
    to = now["destination"]
    return {
        "name": now["name"],
        "topic": now["topic"] or "",
        "selector": now["selector"],
        "dialect": now["dialect"],
        "extended": "yes" if now["seltype"] == "EXTENDED" else "",
        "kind": to["kind"],
        "destination": to.get("name") or "",
        "labels": "\n".join(f"{name}={value}" for name, value in now["labels"].items()),
    }


def _as_sent(name: str, text: str) -> str:
    """Return a text as a browser sends it back from the field of this name."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if name in ("selector", "labels") else text.replace("\n", "")


async def _base(api: Api, id: str | None, revision: str) -> Mapping[str, Any] | None:
    """Return the subscription that the form was made of; None if it is new, or has changed since."""
    if id is None:
        return None
    now: Mapping[str, Any] = await api.get(path_of(id))
    return now if str(now["revision"]) == revision else None


def _spec(fields: Mapping[str, str], base: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the form as a specification. Fields that the person at the browser left alone stay as they are
    in `base`, even if a form cannot say them (a carriage return). Raises `PageError`, as `_of_form`.
    """
    spec = _of_form(fields, {} if base is None else base["labels"])
    if base is not None:
        before = _fields_of(base)
        kept = {name for name in _FIELDS if _as_sent(name, before[name]) == fields[name]}
        spec |= {name: base[name] for name in kept & set(base) - {"destination"}}
        if {"kind", "destination"} <= kept:
            spec["destination"] = base["destination"]
    return spec


def _of_form(fields: Mapping[str, str], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the form as a specification; lines of labels that are known stand as they are. Raises
    `PageError` for a label without a name.
    """
    of_lines = {f"{name}={value}": (name, value) for name, value in known.items()}
    labels: dict[str, str] = {}
    for number, line in enumerate(fields["labels"].split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise PageError(HTTPStatus.UNPROCESSABLE_ENTITY, f"labels, line {number}: write NAME=VALUE")
        name, value = of_lines.get(line, (name.strip(), value.strip()))
        labels[name] = value
    spec: dict[str, Any] = {"selector": fields["selector"], "dialect": fields["dialect"], "labels": labels}
    if fields["topic"]:
        spec["topic"] = fields["topic"]
    if fields["name"]:
        spec["name"] = fields["name"]
    if fields["extended"]:
        spec["seltype"] = "EXTENDED"
    if fields["kind"] != "none":
        spec["destination"] = {"kind": fields["kind"], "name": fields["destination"]}
    return spec


# ---- what is done to one


async def paused(request: Request) -> Response:
    """Pause a subscription."""
    return await _change(request, "POST", ":pause", "paused")


async def resumed(request: Request) -> Response:
    """Resume a subscription: from now on, or with what it missed, as far as streams can replay it."""
    id, fields = request.path_params["id"], await form(request)
    body = {"from": fields.get("from", "latest")}
    answer = await api_of(request).call("POST", f"{path_of(id)}:resume", body=body, headers=_if_match(fields))
    if body["from"] == "latest":
        return redirect(f"/subscriptions/{quote(id, safe='')}", done="resumed")
    return await _shown(request, "resumed-missed", answer.data["backfill"])


async def asked_to_remove(request: Request) -> Response:
    """Ask whether a subscription is to be removed."""
    id = request.path_params["id"]
    return await page(request, "remove.html", {"now": await api_of(request).get(path_of(id))})


async def removed(request: Request) -> Response:
    """Remove a subscription."""
    return await _change(request, "DELETE", "", "removed")


async def _change(request: Request, method: str, action: str, done: str) -> Response:
    """Make a call on a subscription at the revision that the page showed, and show the subscription."""
    id, fields = request.path_params["id"], await form(request)
    await api_of(request).call(method, f"{path_of(id)}{action}", headers=_if_match(fields))
    return redirect(f"/subscriptions/{quote(id, safe='')}", done=done)


def _if_match(values: Mapping[str, str]) -> dict[str, str]:
    return {"If-Match": f'"{values.get("revision", "")}"'}


def path_of(id: str) -> str:
    """Return the path of a subscription in the API."""
    return f"{PATH}/{quote(id, safe='')}"


ROUTES: Final = (
    ("GET", "/subscriptions", listed),
    ("GET", "/subscriptions/new", new),
    ("POST", "/subscriptions/new", sent),
    ("POST", "/selector/check", check),
    ("GET", "/selector/identifiers", identifiers),
    ("GET", "/subscriptions/{id}", shown),
    ("GET", "/subscriptions/{id}/held", held),
    ("GET", "/subscriptions/{id}/edit", edited),
    ("POST", "/subscriptions/{id}/edit", sent),
    ("POST", "/subscriptions/{id}/pause", paused),
    ("POST", "/subscriptions/{id}/resume", resumed),
    ("GET", "/subscriptions/{id}/remove", asked_to_remove),
    ("POST", "/subscriptions/{id}/remove", removed),
)
"""Method, path and function of each screen."""
