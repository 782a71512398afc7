"""Warnings about registered selectors, as ``/v1/selectors:check`` gives them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from selectroute.clauses.analysis import analyse_registered
from selectroute.registry.model import Subscription
from selectroute.selector.limits import Limits

CHECKED_SECONDS: Final = 1.0
"""How long the selectors of one batch are looked at; an answer does not wait for ten thousand of them."""


def warnings_of(one: Subscription, limits: Limits) -> list[dict[str, Any]]:
    """Return the warnings about a subscription's selector: what is probably a mistake."""
    found = analyse_registered(one.selector, one.dialect, one.seltype, limits)
    if found is None:
        return []
    warnings: list[dict[str, Any]] = found.to_dict()["warnings"]
    return warnings


def with_warnings(changed: Iterable[tuple[Subscription, bool]], limits: Limits) -> list[dict[str, Any]]:
    """Return subscriptions as answers of a batch, those whose selector it gave with their warnings; None in
    place of these once the time is over.
    """
    until = time.monotonic() + CHECKED_SECONDS
    found = []
    for one, is_given in changed:
        warnings: list[dict[str, Any]] | None = []
        if is_given:
            warnings = warnings_of(one, limits) if time.monotonic() < until else None
        found.append({**one.to_json(), "effective_from": [], "warnings": warnings})
    return found
