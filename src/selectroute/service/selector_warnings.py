"""What is probably a mistake in selectors that were registered, as ``/v1/selectors:check`` tells it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from selectroute.clauses.analysis import analyse
from selectroute.index.subscription import EXTENDED
from selectroute.registry.model import Subscription
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import Limits
from selectroute.selector.selector import Selector

CHECKED_SECONDS: Final = 1.0
"""How long the selectors of one batch are looked at; an answer does not wait for ten thousand of them."""


def warnings_of(one: Subscription, limits: Limits) -> list[dict[str, Any]]:
    """Return what is probably a mistake in the selector of a subscription."""
    if one.seltype == EXTENDED or not one.selector:
        return []
    try:
        found: list[dict[str, Any]] = analyse(Selector(one.selector, one.dialect, limits=limits)).to_dict()[
            "warnings"
        ]
    except SelectRouteError:  # it is registered already, by other limits perhaps
        return []
    return found


def with_warnings(changed: Iterable[tuple[Subscription, bool]], limits: Limits) -> list[dict[str, Any]]:
    """Return subscriptions as answers of a batch. Those whose selector it gave have their warnings, which are
    None from when the time is over.
    """
    until = time.monotonic() + CHECKED_SECONDS
    found = []
    for one, is_given in changed:
        warnings: list[dict[str, Any]] | None = []
        if is_given:
            warnings = warnings_of(one, limits) if time.monotonic() < until else None
        found.append({**one.to_json(), "effective_from": [], "warnings": warnings})
    return found
