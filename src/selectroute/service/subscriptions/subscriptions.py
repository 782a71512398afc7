"""Calls on a single subscription: register, read, replace, change, remove, pause, resume."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from selectroute.clauses.analysis import registered_warnings
from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.errors import NotFoundError
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.model import EffectiveFrom, Idempotency, Subscription, plain
from selectroute.registry.specification import Checks
from selectroute.selector.limits import Limits
from selectroute.service.context import Service, waited
from selectroute.service.http.call import BodyType, JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.headers import (
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Prefer,
    Revisions,
    etag,
    is_minimal,
    revisions,
)
from selectroute.service.http.models import (
    Id,
    RegisteredAnswer,
    ResumeBody,
    ResumedAnswer,
    SpecBody,
    SubscriptionAnswer,
    SubscriptionBody,
)
from selectroute.service.http.problems import NO_SUBSCRIPTION, ProblemError


def visible(service: Service, by: Caller, id: str) -> Subscription:
    """Return a subscription that the caller may see. Raises the same problem, 404, for a missing one and for
    a hidden one.
    """
    now = visible_or_none(service, by, id)
    if now is None:
        raise ProblemError("subscription-not-found", NO_SUBSCRIPTION)
    return now


def visible_or_none(service: Service, by: Caller, id: str) -> Subscription | None:
    """Return a subscription that the caller may see, None if missing or hidden."""
    try:
        now: Subscription = service.registry.get(id)
    except NotFoundError:
        return None
    return now if by.sees(now.topic) else None


def expected_revision(
    service: Service, by: Caller, id: str, if_match: str | None, *, needed: bool = False
) -> int | None:
    """Return the revision that a change must find, None for any. Raises a problem as `matching`."""
    wanted = revisions(if_match, "If-Match")
    now = visible(service, by, id)
    check(now, wanted, needed=needed)
    return None if wanted is None or wanted.any else now.revision


def matching(
    revision: PendingRevision, id: str, wanted: Revisions | None, *, needed: bool = False
) -> Subscription:
    """Return a subscription in a transaction that changes it. Raises a problem: 404 if it is missing or
    hidden, 412 or 428 if it does not satisfy If-Match.
    """
    try:
        now = revision.get(id)
    except NotFoundError:
        raise ProblemError("subscription-not-found", NO_SUBSCRIPTION) from None
    check(now, wanted, needed=needed)
    return now


def check(now: Subscription, wanted: Revisions | None, *, needed: bool) -> None:
    """Raise a problem, 412 or 428, if the subscription does not satisfy If-Match."""
    if wanted is None:
        if needed:
            raise ProblemError(
                "precondition-required", "send If-Match with the ETag of the subscription that you read"
            )
    elif now.revision not in wanted:
        expected = max(wanted.numbers, default=None)
        raise ProblemError(
            "stale-revision",
            f"the subscription is at revision {now.revision}: read it again",
            expected=expected,
            found=now.revision,
        )


def idempotency(by: Caller, key: str | None, body: BaseModel) -> Idempotency | None:
    """Return the identity of a request with an Idempotency-Key; None without one."""
    if key is None:
        return None
    data = body.model_dump(exclude_none=True, by_alias=True)
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return Idempotency(by.subject, key, digest)


PATH: Final = "/v1/subscriptions"

SHORT_SELECTOR: Final = 512
"""Characters of a selector that the event loop reads itself, in at most a millisecond."""

_MULTIPLIES: Final = re.compile(r"\b(?:or|not|in)\b|<>|!=", re.IGNORECASE)
"""Parts of a selector that can multiply out to hundreds of conditions."""

CHECKED_SECONDS: Final = 1.0
"""Longest time of the checks of one batch, which may have ten thousand selectors."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

OfPath = Annotated[Id, Field(description="A subscription's id.")]


async def register(
    service: Service,
    by: Caller,
    body: SpecBody,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Annotated[Response, RegisteredAnswer]:
    """Register a subscription; the service generates its id."""
    spec = SubscriptionSpec.from_json(body.model_dump(exclude_none=True))
    key = idempotency(by, idempotency_key, body)
    checks = await _read(spec.selector, Checks, service.registry.limits, [spec])
    made = await service.changed(lambda revision: revision.register(None, spec, key), by.permission, checks)
    return await _registered(service, made, prefer, is_new=True)


async def get(
    request: Request,
    service: Service,
    by: Caller,
    id: OfPath,
    wait: Annotated[
        float, Field(ge=0, le=30, description="Seconds to wait for a batch that used its last change.")
    ] = 0,
    if_none_match: IfNoneMatch = None,
) -> Annotated[Response, SubscriptionAnswer]:
    """Return a subscription, and the first batch of each query that used its last change; with `wait`, wait
    for one if there is none. For a caller who may not see all subscriptions, numbers replace the names of
    queries.
    """
    known = revisions(if_none_match, "If-None-Match", weak=True)
    wait = min(wait, service.limits.wait_seconds)
    now, effective = await run_in_threadpool(_with_effective_from, service, by, id)
    if wait and not effective:
        by = await waited(request, service, service.batch_waiting, "batches", now.revision, wait)
        now, effective = await run_in_threadpool(_with_effective_from, service, by, id)
    headers = {"ETag": etag(now.revision), "Cache-Control": "private, no-cache"}
    # The ETag is the revision, and does not say from which batches on it holds: with these the answer is
    # whole.
    if known is not None and now.revision in known and not effective:
        return Response(status_code=304, headers=headers)
    data = {**now.to_json(), "effective_from": _numbered(by, effective)}
    return await run_in_threadpool(JsonAnswer, data, headers=headers)


def _with_effective_from(
    service: Service, by: Caller, id: str
) -> tuple[Subscription, Sequence[EffectiveFrom]]:
    """Return a subscription that the caller may see, and the first batch of each query that used it."""
    now = visible(service, by, id)
    return now, service.registry.streams.effective_from(now.revision)


async def put(
    service: Service,
    by: Caller,
    id: OfPath,
    body: SubscriptionBody,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> Annotated[Response, RegisteredAnswer]:
    """Replace a whole subscription, or register one with this id. An id that is taken by a hidden
    subscription is refused (409): ids and names are unique among all subscriptions.
    """
    if body.id is not None and body.id != id:
        raise InvalidSpecError("/id", "the id must equal the one in the path, or be left out")
    spec = SubscriptionSpec.from_json(body.model_dump(exclude_none=True))
    wanted = revisions(if_match, "If-Match")
    unwanted = revisions(if_none_match, "If-None-Match")

    def change(revision: PendingRevision) -> tuple[Subscription, bool]:
        try:
            now = revision.get(id)
        except NotFoundError:
            if wanted is not None:
                raise ProblemError("subscription-not-found", NO_SUBSCRIPTION) from None
            return revision.add(id, spec), True  # refused if the id is taken by a hidden subscription
        if unwanted is not None and now.revision in unwanted:
            raise ProblemError(
                "stale-revision", "If-None-Match names the current revision", found=now.revision
            )
        check(now, wanted, needed=True)
        return revision.replace(id, spec, None), False

    checks = await _read(spec.selector, Checks, service.registry.limits, [spec])
    now, is_new = await service.changed(change, by.permission, checks)
    return await _registered(service, now, prefer, is_new)


def patch(
    service: Service,
    by: Caller,
    id: OfPath,
    body: Annotated[dict[str, Any], BodyType("application/merge-patch+json")],
    if_match: IfMatch = None,
    prefer: Prefer = None,
) -> Annotated[Response, RegisteredAnswer]:
    """Change fields of a subscription (a merge patch, RFC 7396)."""
    expected = expected_revision(service, by, id, if_match, needed=True)
    changed = service.registry.change(id, body, expected=expected, by=by.permission)
    return _changed(changed, prefer, warnings=warnings_of(changed, service.registry.limits))


async def remove(
    service: Service, by: Caller, id: OfPath, if_match: IfMatch = None, prefer: Prefer = None
) -> Annotated[Response, SubscriptionAnswer]:
    """Remove a subscription; the response is its last state."""
    wanted = revisions(if_match, "If-Match")

    def change(revision: PendingRevision) -> Subscription:
        return revision.remove(matching(revision, id, wanted, needed=True).id, None)

    return _changed(await service.changed(change, by.permission), prefer)


async def pause(
    service: Service, by: Caller, id: OfPath, if_match: IfMatch = None, prefer: Prefer = None
) -> Annotated[Response, SubscriptionAnswer]:
    """Pause a subscription: it gets no messages until it is resumed."""
    wanted = revisions(if_match, "If-Match")

    def change(revision: PendingRevision) -> Subscription:
        return revision.pause(matching(revision, id, wanted).id, None)

    return _changed(await service.changed(change, by.permission), prefer)


def resume(
    service: Service,
    by: Caller,
    id: OfPath,
    body: ResumeBody | None = None,
    if_match: IfMatch = None,
    prefer: Prefer = None,
) -> Annotated[Response, ResumedAnswer]:
    """Resume a subscription: it gets future messages, or also those since its pause. For a caller who may not
    see all subscriptions, numbers replace the names of queries, and there are no reasons.
    """
    expected = expected_revision(service, by, id, if_match)
    from_ = "latest" if body is None else body.from_
    resumed = service.registry.resume(id, from_=from_, expected=expected, by=by.permission)
    backfill = _numbered(by, resumed.backfill)
    return _changed(resumed.subscription, prefer, backfill=backfill)


def _numbered(by: Caller, queries: Sequence[Any]) -> list[dict[str, Any]]:
    """Return reports of queries. For a caller who may not see all subscriptions, names become numbers and
    reasons are left out: they would reveal other callers' streams.
    """
    rows = [*map(plain, queries)]
    if not by.sees_all:
        for number, row in enumerate(rows, start=1):
            row |= {"query": str(number)} | ({"reason": None} if "reason" in row else {})
    return rows


async def _read(selector: str, function: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
    """Call a function that reads a selector, and return its result. A selector that is long or may multiply
    out is read in a thread, so that other requests do not wait.
    """
    if len(selector) <= SHORT_SELECTOR and not _MULTIPLIES.search(selector):
        return function(*args, **named)
    return await run_in_threadpool(function, *args, **named)


async def _registered(service: Service, now: Subscription, prefer: str | None, is_new: bool) -> Response:
    """Return the response with a registered or replaced subscription."""
    if is_minimal(prefer):
        return _changed(now, prefer, is_new)
    warnings = await _read(now.selector, warnings_of, now, service.registry.limits)
    return _changed(now, prefer, is_new, warnings=warnings)


def _changed(now: Subscription, prefer: str | None, is_new: bool = False, **more: Any) -> Response:
    headers = {"ETag": etag(now.revision)} | ({"Location": f"{PATH}/{now.id}"} if is_new else {})
    if is_minimal(prefer):
        headers["Preference-Applied"] = "return=minimal"
        return Response(status_code=201 if is_new else 204, headers=headers)
    return JsonAnswer({**now.to_json(), "effective_from": [], **more}, 201 if is_new else 200, headers)


def warnings_of(subscription: Subscription, limits: Limits) -> list[dict[str, Any]]:
    """Return the warnings about probable mistakes in a subscription's selector."""
    warnings = registered_warnings(subscription.selector, subscription.dialect, subscription.seltype, limits)
    return [warning.to_dict(subscription.selector) for warning in warnings]


def with_warnings(changed: Iterable[tuple[Subscription, bool]], limits: Limits) -> list[dict[str, Any]]:
    """Return subscriptions as responses of a batch. Those with a given selector have its warnings, or None
    after the time limit.
    """
    until = time.monotonic() + CHECKED_SECONDS
    items = []
    for subscription, is_given in changed:
        warnings: list[dict[str, Any]] | None = []
        if is_given:
            warnings = warnings_of(subscription, limits) if time.monotonic() < until else None
        items.append({**subscription.to_json(), "effective_from": [], "warnings": warnings})
    return items
