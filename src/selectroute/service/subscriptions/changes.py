"""Calls on the change log, and reports of queries on the revisions that they used."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from selectroute.registry.changes import Change, ChangePage
from selectroute.registry.changes import Op as ChangeOp
from selectroute.registry.role import Role
from selectroute.service.context import CallerDep, Service, ServiceDep
from selectroute.service.http.callers import Caller
from selectroute.service.http.disconnect import while_connected
from selectroute.service.http.endpoint import Call, JsonAnswer, call
from selectroute.service.http.models import BatchNumberBody, ChangesAnswer, QueriesAnswer, QueryBody
from selectroute.service.http.problems import check_waiting

PATH: Final = "/v1/changes"

LOOKED_AT: Final = 200
"""Changes that one answer looks at for a caller who may not see all: each that is hidden is a query of its
own, and a page of a thousand of them would take a second.
"""

# Without every change a job would miss what was resumed, and tell of what it cannot know.
_JOB: Final = "a job needs a writer's token"

router = APIRouter(route_class=Call, tags=["changes"])
Name = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,128}$", description="A query's name.")]


@call(router, "GET", PATH, Role.reader, "invalid-subscription", response_model=ChangesAnswer)
async def changes(
    request: Request,
    service: ServiceDep,
    by: CallerDep,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for a change.")] = 0,
    cursor: Annotated[str | None, Query(max_length=1_000, pattern="^[A-Za-z0-9_-]+$")] = None,
    op: Annotated[
        list[ChangeOp], Query(max_length=10, description="Only these kinds of changes; all without any.")
    ] = [],  # noqa: B006  # FastAPI copies it, and documents no other default of a list
) -> Response:
    """Return the changes behind a revision; waits for one if there is none.

    While there is a `next_cursor`, more follow: ask again with it, or by the header Link. One revision may
    need several answers; `complete` is the newest one of which nothing is missing. Without a cursor, all up
    to `revision` was given: ask again with it as `after`. A caller who may not see all of them can get fewer
    changes than `limit`, also none, with more to come, and each without its `digest`.
    """
    wait = min(wait, service.limits.wait_seconds)
    asked = _Asked(after, min(limit, service.limits.page), cursor, tuple(dict.fromkeys(op)))
    found = await run_in_threadpool(_behind, service, by, asked)
    if wait and not found.changes and cursor is None and found.page.revision <= after:
        check_waiting(len(service.watch), service.limits.waiting, "changes")
        async with while_connected(request):  # who hung up takes no place
            await service.watch.wait(after, wait)
        # Seconds later the token may be revoked, or see other topics.
        by = await run_in_threadpool(service.callers.caller, request.headers.get("authorization"))
        found = await run_in_threadpool(_behind, service, by, asked)
    page = found.page
    headers = {}
    if page.next_cursor is not None:
        given = {"after": after, "limit": asked.limit, "op": asked.ops, "cursor": page.next_cursor}
        headers["Link"] = f'<{PATH}?{urlencode(given, doseq=True)}>; rel="next"'
    data = {"revision": page.revision, "complete": page.complete, "next_cursor": page.next_cursor}
    # A page may have megabytes: the event loop does not write them while all others wait.
    return await run_in_threadpool(JsonAnswer, {"changes": found.changes, **data}, headers=headers)


@call(router, "GET", "/v1/queries", Role.writer, response_model=QueriesAnswer)
def queries(service: ServiceDep, by: CallerDep) -> Response:
    """Return the queries that are known, and whether each can read again what a subscription missed. A job
    asks this before it begins: a token that it could not report with is refused here.
    """
    by.check_unlimited(_JOB)
    return JsonAnswer({"items": [one.to_json() for one in service.registry.queries()]})


@call(
    router,
    "POST",
    "/v1/queries/{query}",
    Role.writer,
    "invalid-body",
    "unsupported-media-type",
    "too-large",
    "read-only",
    "not-found",
    status_code=204,
)
def query(service: ServiceDep, by: CallerDep, query: Name, body: QueryBody) -> Response:
    """Make a query known: what it reads, and whether it can read that again. It delivers for all
    subscriptions, so a token for some topics cannot speak for it.
    """
    by.check_unlimited(_JOB)
    service.registry.note_query(query, source=body.source, can_replay=body.can_replay, reason=body.reason)
    return Response(status_code=204)


@call(
    router,
    "POST",
    "/v1/queries/{query}/batches",
    Role.writer,
    "invalid-body",
    "unsupported-media-type",
    "too-large",
    "read-only",
    "not-found",
    status_code=204,
)
def batch(service: ServiceDep, by: CallerDep, query: Name, body: BatchNumberBody) -> Response:
    """Say which revision a batch of a query used; with a token for all topics."""
    by.check_unlimited(_JOB)
    service.registry.note_batch(query, body.batch, body.revision)
    return Response(status_code=204)


class _Asked(NamedTuple):
    after: int
    limit: int
    cursor: str | None
    ops: tuple[ChangeOp, ...]


class _Found(NamedTuple):
    changes: list[dict[str, Any]]
    page: ChangePage


def _behind(service: Service, by: Caller, asked: _Asked) -> _Found:
    """Return the changes that the caller may see of a page of the log."""
    after, limit, cursor, ops = asked
    # To a caller who may not see all, a replacement can be a removal: then it is not for the log to choose.
    wanted, most = (ops or None, limit) if by.sees_all else (None, min(limit, LOOKED_AT))
    page = service.registry.changes(after, limit=most, cursor=cursor, ops=wanted)
    if by.sees_all:
        return _Found([one.to_json() for one in page], page)
    seen = (_seen(service, by, one) for one in page)
    return _Found([one for one in seen if one is not None and (not ops or one["op"] in ops)], page)


def _seen(service: Service, by: Caller, change: Change) -> dict[str, Any] | None:
    """Return a change as the caller sees it: a subscription that leaves its topics is removed."""
    now = change.subscription
    if now is not None and by.sees(now.topic):
        return _without_digest(change)
    before = service.registry.as_of(change.revision - 1, [change.id])
    if not any(by.sees(one.topic) for one in before):
        return None
    data = {**_without_digest(change), "op": "remove", "subscription": None}
    return {name: value for name, value in data.items() if name not in ("from", "paused_at")}


def _without_digest(change: Change) -> dict[str, Any]:
    """Return a change without what vouches for all before it: it would confirm a guess of what is hidden."""
    data = change.to_json()
    del data["digest"]
    return data
