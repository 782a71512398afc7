"""Conditional and repeated requests: visibility of a subscription, its revision against If-Match, and the
Idempotency-Key.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel

from selectroute.registry.errors import NotFoundError
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.model import Idempotency, Subscription
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.preconditions import Revisions, revisions
from selectroute.service.http.problems import NO_SUBSCRIPTION, ProblemError


def visible(service: Service, by: Caller, id: str) -> Subscription:
    """Return a subscription that the caller may see. Raises the same problem, 404, for a missing one and for
    a hidden one.
    """
    now = found(service, by, id)
    if now is None:
        raise ProblemError("subscription-not-found", NO_SUBSCRIPTION)
    return now


def found(service: Service, by: Caller, id: str) -> Subscription | None:
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
