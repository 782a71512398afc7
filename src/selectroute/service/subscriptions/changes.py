"""Calls on the change log, and reports of queries on the revisions that they used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from selectroute.registry.model import Backfill, Change, ChangePage, Items
from selectroute.registry.model import Op as ChangeOp
from selectroute.service.context import Service, waited
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import (
    BatchNumberBody,
    ChangesAnswer,
    Cursor,
    HistoryAnswer,
    Id,
    Limit,
    QueryBody,
)
from selectroute.service.http.problems import NO_SUBSCRIPTION, ProblemError

PATH: Final = "/v1/changes"

LOOKED_AT: Final = 200
"""Changes read for one response to a caller who may not see all: each hidden one needs a separate query, and
a page of a thousand would take a second.
"""

# A job must see every change: it would miss resumes, and report wrong revisions.
JOB: Final = "a job needs a writer's token"

Name = Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="A query's name.")]


async def changes(
    request: Request,
    service: Service,
    by: Caller,
    after: Annotated[int, Field(ge=0, lt=2**63, description="The newest revision that is known.")] = 0,
    limit: Limit = 1_000,
    wait: Annotated[float, Field(ge=0, le=30, description="Seconds to wait for a change.")] = 0,
    cursor: Cursor = None,
    op: Annotated[
        list[ChangeOp], Field(max_length=10, description="Only these kinds of changes; all by default.")
    ] = [],  # noqa: B006  # it is copied
) -> Annotated[Response, ChangesAnswer]:
    """Return the changes after a revision; with `wait`, wait for one if there is none.

    While there is a `next_cursor`, there are more: repeat the request with this cursor, or follow the header
    Link. One revision may need several responses; `complete` is the newest complete one. Without a cursor,
    everything up to `revision` was returned: continue with it as `after`. A caller who may not see all of
    them can get fewer changes than `limit`, even none, although there are more, each without its `digest`.
    """
    wait = min(wait, service.limits.wait_seconds)
    limit, ops = min(limit, service.limits.page), [*dict.fromkeys(op)]
    asked = after, limit, cursor, ops
    seen, page = await run_in_threadpool(_visible_changes, service, by, *asked)
    if wait and not seen and cursor is None and page.revision <= after:
        by = await waited(request, service, service.watch, "changes", after, wait)
        seen, page = await run_in_threadpool(_visible_changes, service, by, *asked)
    headers = {}
    if page.next_cursor is not None:
        params = {"after": after, "limit": limit, "op": ops, "cursor": page.next_cursor}
        headers["Link"] = f'<{PATH}?{urlencode(params, doseq=True)}>; rel="next"'
    data = {"revision": page.revision, "complete": page.complete, "next_cursor": page.next_cursor}
    # A page may have megabytes: encoding in a thread does not block the event loop.
    return await run_in_threadpool(JsonAnswer, {"changes": seen, **data}, headers=headers)


def history(
    service: Service,
    by: Caller,
    id: Annotated[Id, Field(description="A subscription's id.")],
    limit: Annotated[int, Field(ge=1, le=LOOKED_AT, description="The most to return.")] = 50,
    cursor: Cursor = None,
) -> Annotated[Response, HistoryAnswer]:
    """Return the changes of one subscription, the newest first, also of one that was removed; `next_cursor`
    asks for those before them. A caller who may not see all of them gets those of the newest 200 that are
    visible, without a cursor.
    """
    if by.sees_all:
        page, next_cursor = service.registry.history(id, limit=limit, cursor=cursor)
    else:  # a cursor would tell of changes that are hidden
        page, next_cursor = service.registry.history(id, limit=LOOKED_AT)[0], None
    seen = [change for change in (_permitted(service, by, change) for change in page) if change is not None]
    if not seen and (cursor is None or not by.sees_all):
        raise ProblemError("subscription-not-found", NO_SUBSCRIPTION)
    return JsonAnswer({"changes": seen[:limit], "next_cursor": next_cursor})


def queries(service: Service, by: Caller) -> Items[Backfill]:
    """Return the known queries, and whether each can replay the messages that a subscription missed. A job
    calls this first, so that a token without the right to report is refused before it begins: this needs a
    token for all topics and destinations.
    """
    by.check_unlimited(JOB)
    return Items([*service.registry.streams.queries()])


def query(service: Service, by: Caller, query: Name, body: QueryBody) -> Response:
    """Announce a query: its source, and whether it can replay. A query delivers for all subscriptions, so
    this needs a token for all topics and destinations.
    """
    by.check_unlimited(JOB)
    service.registry.streams.note_query(query, **body.model_dump())
    return Response(status_code=204)


def batch(service: Service, by: Caller, query: Name, body: BatchNumberBody) -> Response:
    """Report the revision that a batch of a query used. Needs a token for all topics and destinations."""
    by.check_unlimited(JOB)
    service.registry.streams.note_batch(query, body.batch, body.revision)
    return Response(status_code=204)


def _visible_changes(
    service: Service, by: Caller, after: int, limit: int, cursor: str | None, ops: Sequence[ChangeOp]
) -> tuple[list[dict[str, Any]], ChangePage]:
    """Return the changes of a page of the log that the caller may see, and the page."""
    # For a limited caller a replace can become a remove: then the log cannot filter by operation.
    wanted, most = (ops or None, limit) if by.sees_all else (None, min(limit, LOOKED_AT))
    page = service.registry.changes(after, limit=most, cursor=cursor, ops=wanted)
    seen = (_permitted(service, by, change) for change in page)
    return [change for change in seen if change is not None and (not ops or change["op"] in ops)], page


def _permitted(service: Service, by: Caller, change: Change) -> dict[str, Any] | None:
    """Return a change as the caller may see it; None if it is hidden. A subscription that leaves the caller's
    topics is removed.
    """
    data = change.to_json()
    if by.sees_all:
        return data
    del data["digest"]  # it could confirm guesses about hidden changes
    now = change.subscription
    if now is not None and by.sees(now.topic):
        return data
    before = service.registry.as_of(change.revision - 1, [change.id])
    if not any(by.sees(subscription.topic) for subscription in before):
        return None
    data |= {"op": "remove", "subscription": None}
    return {name: value for name, value in data.items() if name not in ("from", "paused_at")}
