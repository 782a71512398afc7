"""Screens of subscriptions: the list, one with its history, the editor, changes, and who gets a message."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, get_args
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from selectroute.registry.model import Order
from selectroute.selector.sentences import counted
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.service.console.page import (
    SIGNED_OUT,
    Api,
    ApiError,
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
from selectroute.service.subscriptions.subscriptions import PATH

SEARCH: Final = ("text", "field")
FILTERS: Final = ("topic", "status", "dialect", "name", "label")
DONE: Final = ("paused", "resumed", "removed")
"""Results of an action on many subscriptions of the list."""

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
    """Return the last deliveries of subscriptions, by id."""
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
    return dict(await api.get(path, {**params, "limit": limit, "cursor": cursor}))


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
    """Show the current version beside the one to be saved. Saving again replaces the current version."""
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


# ---- changes of one


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


# ---- many at once: the first step shows how many; the second changes all or none, if they are the same still

MOST_CHANGED: Final = 5_000
"""Subscriptions that are changed at once."""

_READ_AT_ONCE: Final = 1_000
_BULK_SHOWN: Final = 10
_MOST_VALUES: Final = 1_000

_ACTIONS: Final = {"pause": "active", "resume": "paused", "remove": ""}
"""Actions, with the status of the subscriptions that they change; none for any."""

_DONE_BY_ACTION: Final = dict(zip(_ACTIONS, DONE, strict=True))


async def asked_to_change(request: Request) -> Response:
    """Show how many subscriptions an action would change, and ask whether to do it."""
    return await _ask_to_change(request, _action(request.query_params.get("action", "")), request.url.query)


async def _ask_to_change(
    request: Request, action: str, query: str, error: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    targets = await _targets(api_of(request), action, query)
    data = {
        "action": action,
        "done": _DONE_BY_ACTION[action],
        "query": query,
        "count": len(targets),
        "too_many": len(targets) > MOST_CHANGED,
        "most": MOST_CHANGED,
        "items": targets[:_BULK_SHOWN],
        "digest": _digest(targets),
        "error": error,
        "back": _back(query),
    }
    return await page(request, "bulk.html", data, status)


async def change_many(request: Request) -> Response:
    """Change the subscriptions that the first step showed."""
    fields = await form(request)
    action, query = _action(fields.get("action", "")), fields.get("query", "")
    api = api_of(request)
    targets = await _targets(api, action, query)
    if len(targets) > MOST_CHANGED or not targets or _digest(targets) != fields.get("digest"):
        changed = "They have changed since you saw them: look at them again."
        return await _ask_to_change(request, action, query, changed, HTTPStatus.CONFLICT)
    changes = [{"op": action, "id": target["id"], "expected": target["revision"]} for target in targets]
    try:
        await api.post(f"{PATH}:batch", {"operations": changes})
    except ApiError as error:
        if error.kind not in ("stale-revision", "subscription-not-found", "forbidden"):
            raise
        return await _ask_to_change(request, action, query, str(error), HTTPStatus(error.status))
    done = _DONE_BY_ACTION[action]
    return redirect("/subscriptions", **dict(_values(_back(query))), done=done, count=len(targets))


def _action(text: str) -> str:
    if text not in _ACTIONS:
        raise PageError(HTTPStatus.UNPROCESSABLE_ENTITY, "the action must be pause, resume or remove")
    return text


async def _targets(api: Api, action: str, query: str) -> list[dict[str, Any]]:
    """Return the subscriptions that a query finds and that the action changes, at most one more than
    `MOST_CHANGED`.
    """
    values = _values(query)
    chosen, fields = [value for name, value in values if name == "id"], dict(values)
    if chosen:
        items = [await api.get(path_of(id)) for id in dict.fromkeys(chosen)]
        return _changeable(items, action)
    targets: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(targets) <= MOST_CHANGED:
        answer = await list_page(api, fields, _READ_AT_ONCE, cursor)
        targets += _changeable(answer["items"], action)
        if (cursor := answer["next_cursor"]) is None:
            break
    return targets[: MOST_CHANGED + 1]


def _changeable(items: Sequence[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    status = _ACTIONS[action]
    return [item for item in items if status in ("", item["status"])]


def _digest(targets: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of subscriptions and their revisions."""
    versions = [[target["id"], target["revision"]] for target in targets]
    return hashlib.sha256(json.dumps(versions).encode()).hexdigest()


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


# ---- who gets a message

EXAMPLE: Final = """{
  "topic": "cars/eu",
  "headers": {"JMSType": "car"},
  "properties": {"weight": {"type": "int", "value": 3000}}
}"""

_MATCHES_SHOWN: Final = 100
"""Subscriptions that are listed at most, of each kind."""

_RECENT_OFFERED: Final = 10
"""Recent messages that are offered."""

_IN_URL: Final = 6_000
"""Characters that a message may have in the URL, where it stands so that the page can be kept and sent on."""


async def who_gets(request: Request) -> Response:
    """Show who gets the message in the URL; without one, ask for it."""
    query = request.query_params
    return await _answered(request, query.get("message", ""), query.get("explain", ""))


async def who_gets_sent(request: Request) -> Response:
    """Take a message: into the URL, if it is short enough."""
    fields = await form(request)
    message, explain = fields.get("message", ""), fields.get("explain", "")
    if len(quote(message)) <= _IN_URL:
        part = "why" if explain else ""
        return redirect("/who-gets", part=part, message=message, explain=explain)
    return await _answered(request, message, explain)


async def _answered(request: Request, text: str, explain: str) -> Response:
    data: dict[str, Any] = {"text": text or EXAMPLE, "asked": explain, "found": None, "why": None}
    data |= {"error": None, "faults": [], "shown": _MATCHES_SHOWN}
    api = api_of(request)
    data["recent"] = (await api.get("/v1/messages", {"limit": _RECENT_OFFERED}))["items"]
    if not text.strip():
        return await page(request, "who_gets.html", data)
    try:
        message = parse_json(text)
    except JsonError as error:
        data["error"] = f"the message is {error}"
        return await page(request, "who_gets.html", data, HTTPStatus.UNPROCESSABLE_ENTITY)
    try:
        body = {"message": message, "near": True, "limit": _MATCHES_SHOWN}
        data["found"] = await api.post("/v1/messages:match", body)
        if explain:
            question = {"message": message, "subscriptions": [explain]}
            (data["why"],) = (await api.post("/v1/messages:explain", question))["explanations"]
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        data |= {"error": str(error), "faults": error.faults}
        return await page(request, "who_gets.html", data, HTTPStatus(error.status))
    return await page(request, "who_gets.html", data)


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
    ("GET", "/bulk", asked_to_change),
    ("POST", "/bulk", change_many),
    ("GET", "/who-gets", who_gets),
    ("POST", "/who-gets", who_gets_sent),
)
"""Method, path and function of each screen."""
