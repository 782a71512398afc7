"""The change log, and what queries report of the revisions that they used."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from selectroute.registry.changes import Change
from selectroute.service.callers import Caller, Role
from selectroute.service.calls import Call, JsonAnswer, call
from selectroute.service.context import By, Service, The
from selectroute.service.models import BatchNumberBody, ChangesAnswer, QueryBody
from selectroute.service.problems import ProblemError

_AGAIN_SECONDS: Final = 1

router = APIRouter(route_class=Call, tags=["changes"])
Name = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,128}$", description="A query's name.")]


@call(router, "GET", "/v1/changes", Role.reader, response_model=ChangesAnswer)
async def changes(
    service: The,
    by: By,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for a change.")] = 0,
) -> Response:
    """The changes behind a revision, in whole revisions; waits for one if there is none.

    Ask again with the revision of the last change, or with `revision` if there is none: then the caller has
    seen all that he may see of the changes up to it.
    """
    wait = min(wait, service.limits.wait_seconds)
    limit = min(limit, service.limits.page)
    found, revision = await run_in_threadpool(_behind, service, by, after, limit)
    if wait and not found and revision <= after:
        if len(service.watch) >= service.limits.waiting:
            raise ProblemError(
                "too-many-requests",
                f"{service.limits.waiting:,} requests wait for changes already",
                headers={"Retry-After": str(_AGAIN_SECONDS)},
            )
        await service.watch.wait(after, wait)
        found, revision = await run_in_threadpool(_behind, service, by, after, limit)
    return JsonAnswer({"changes": found, "revision": revision})


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
def query(service: The, query: Name, body: QueryBody) -> Response:
    """Make a query known: what it reads, and whether it can read that again."""
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
def batch(service: The, query: Name, body: BatchNumberBody) -> Response:
    """Say which revision a batch of a query used."""
    service.registry.note_batch(query, body.batch, body.revision)
    return Response(status_code=204)


def _behind(service: Service, by: Caller, after: int, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The changes that the caller may see, and up to which revision they are all of these."""
    newest = service.registry.revision  # before the changes: none that came between is passed over
    found = service.registry.changes(after, limit=limit)
    if by.topics is None:
        return [one.to_json() for one in found], newest
    seen = (_seen(service, by, one) for one in found)
    return [one for one in seen if one is not None], found[-1].revision if found else newest


def _seen(service: Service, by: Caller, change: Change) -> dict[str, Any] | None:
    """A change as the caller sees it: to him, a subscription that leaves his topics is removed."""
    now = change.subscription
    if now is not None and by.sees(now.topic):
        return change.to_json()
    before = service.registry.as_of(change.revision - 1, [change.id])
    if not any(by.sees(one.topic) for one in before):
        return None
    data = {**change.to_json(), "op": "remove", "subscription": None}
    return {name: value for name, value in data.items() if name not in ("from", "paused_at")}
