"""A subscription as it is now: may the caller see it, and is it the one that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from selectroute.registry.errors import NotFoundError, StaleRevisionError
from selectroute.registry.model import Subscription
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.error_mapping import NO_SUBSCRIPTION
from selectroute.service.http.preconditions import Revisions, revisions
from selectroute.service.http.problems import ProblemError

ATTEMPTS: Final = 10
"""How often a change without If-Match is tried while others change the same subscription."""

_T = TypeVar("_T")


def visible(service: Service, by: Caller, id: str) -> Subscription:
    """Return a subscription that exists for the caller. Raises a problem, 404, that is the same for one that
    does not and for one that the caller may not see.
    """
    now = found(service, by, id)
    if now is None:
        raise ProblemError("subscription-not-found", NO_SUBSCRIPTION)
    return now


def found(service: Service, by: Caller, id: str) -> Subscription | None:
    """Return a subscription that exists for the caller, None if there is none."""
    try:
        now: Subscription = service.registry.get(id)
    except NotFoundError:
        return None
    return now if by.sees(now.topic) else None


def at_its_revision(
    service: Service,
    by: Caller,
    id: str,
    if_match: str | None,
    change: Callable[[Subscription], _T],
    *,
    needed: bool = False,
) -> _T:
    """Change what the caller may see, at the very revision at which this was checked.

    Where If-Match does not name that revision, a change of somebody else's between the two is no reason to
    refuse: then it is looked at again.
    """
    wanted = revisions(if_match, "If-Match")
    for _ in range(ATTEMPTS):
        now = visible(service, by, id)
        check(now, wanted, needed=needed)
        try:
            return change(now)
        except StaleRevisionError:
            if wanted is not None and not wanted.any:
                raise
        except NotFoundError:
            pass
    raise busy()


def check(now: Subscription, wanted: Revisions | None, *, needed: bool) -> None:
    """Raise a problem, 412 or 428, if this is not the subscription that If-Match demands."""
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


def busy() -> ProblemError:
    """Return the problem, 503, of somebody who was overtaken again and again."""
    return ProblemError("unavailable", "others change this subscription all the time; try again")
