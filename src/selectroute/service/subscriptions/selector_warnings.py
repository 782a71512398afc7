"""Warnings about registered selectors, as in ``/v1/selectors:check``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from selectroute.clauses.analysis import registered_warnings
from selectroute.registry.model import Subscription
from selectroute.selector.limits import Limits

CHECKED_SECONDS: Final = 1.0
"""Longest time of the checks of one batch, which may have ten thousand selectors."""


def warnings_of(one: Subscription, limits: Limits) -> list[dict[str, Any]]:
    """Return the warnings about probable mistakes in a subscription's selector."""
    warnings = registered_warnings(one.selector, one.dialect, one.seltype, limits)
    return [warning.to_dict(one.selector) for warning in warnings]


def with_warnings(changed: Iterable[tuple[Subscription, bool]], limits: Limits) -> list[dict[str, Any]]:
    """Return subscriptions as responses of a batch. Those with a given selector have its warnings, or None
    after the time limit.
    """
    until = time.monotonic() + CHECKED_SECONDS
    found = []
    for one, is_given in changed:
        warnings: list[dict[str, Any]] | None = []
        if is_given:
            warnings = warnings_of(one, limits) if time.monotonic() < until else None
        found.append({**one.to_json(), "effective_from": [], "warnings": warnings})
    return found
