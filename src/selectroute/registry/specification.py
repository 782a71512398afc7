"""Checks and JSON merge patches of specifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import (
    FIELDS,
    READ_ONLY,
    SubscriptionSpec,
    check,
    check_fields,
    wrong_seltype,
)
from selectroute.registry.errors import TooCostlyError
from selectroute.registry.model import Subscription
from selectroute.selector.dialect import EXTENDED, UnknownDialectError
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.extended import ExtendedSelectionError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.topics.filter import TopicFilter

Counts = npt.NDArray[np.int64]


def checked(spec: SubscriptionSpec, limits: Limits = DEFAULT_LIMITS) -> SubscriptionSpec:
    """Check a specification and return it with the type of its selector. O(size of the selector).

    Raises InvalidSelectorError, InvalidTopicFilterError, `InvalidSpecError`.
    """
    return Checks(limits).checked(spec)


PLAIN_LITERALS: Final = 32
"""Literals that every selector may have free of charge."""

_SHORTEST_LITERAL: Final = 7
"""Characters: ``a=1 OR``. Written literals are free: the size of the request limits them."""


class Budget:
    """Budget of literals that the selectors of one import or batch may expand to beyond the written ones.

    AND and OR multiply out: 170 characters expand to 256 literals, and all of them are built and published
    before the next change. None for no limit.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._spent = 0

    def spend(self, literals: int, length: int) -> None:
        """Charge a subscription with its literals, and its characters of selector and topic filter.

        Raises `TooCostlyError`.
        """
        self._spent += max(0, literals - max(PLAIN_LITERALS, length // _SHORTEST_LITERAL))
        if self._most is not None and self._spent > self._most:
            raise self.error

    def spend_all(self, literals: Counts, lengths: Counts) -> int | None:
        """Charge many subscriptions, as `spend` does; return the first that exceeds the budget, or None."""
        costs = np.maximum(0, literals - np.maximum(PLAIN_LITERALS, lengths // _SHORTEST_LITERAL))
        spent = self._spent + np.cumsum(costs)
        if len(spent):
            self._spent = int(spent[-1])
        if self._most is None or self._spent <= self._most:
            return None
        return int(np.argmax(spent > self._most))

    @property
    def error(self) -> TooCostlyError:
        """Error of a subscription that exceeds the budget."""
        return TooCostlyError(
            f"the selectors expand to more than {self._most:,} conditions beyond the written ones: "
            "write fewer ORs inside ANDs, or send the subscriptions in smaller parts"
        )


class Checks:
    """Cache of checks, filled before a transaction begins, so that other writers do not wait for checks.

    The cache keeps the result or error per selector and topic filter; unknown ones are checked on demand.
    `specs` are checked at once, up to the first invalid one. Raises `TooCostlyError` over the budget.

    Attributes:
        names: the names of the `specs`, as far as they are given.
    """

    def __init__(
        self, limits: Limits, specs: Iterable[SubscriptionSpec] = (), budget: Budget | None = None
    ) -> None:
        self._limits = limits
        self._known: dict[tuple[str | None, ...], tuple[str, int] | SelectRouteError] = {}
        self.names: list[str] = []
        budget = budget or Budget()
        for spec in specs:
            try:
                self.checked(spec)
            except SelectRouteError:
                break  # raised in order: an earlier operation may be refused for another reason
            if spec.name is not None:
                self.names.append(spec.name)
            _, literals = self._type_and_literals(spec)
            budget.spend(literals, len(spec.selector) + len(spec.topic or ""))

    def knows(self, spec: SubscriptionSpec) -> bool:
        """Return whether the check of this specification is cached."""
        return _decisive(spec) in self._known

    def checked(self, spec: SubscriptionSpec) -> SubscriptionSpec:
        """Check a specification and return it with its type, as the function `checked` does."""
        check_fields(spec)
        seltype: Any
        seltype, _ = self._type_and_literals(spec)
        if spec.seltype is not None and spec.seltype != seltype:
            raise InvalidSpecError("/seltype", wrong_seltype(seltype))
        return spec if spec.seltype == seltype else replace(spec, seltype=seltype)

    def _type_and_literals(self, spec: SubscriptionSpec) -> tuple[str, int]:
        key = _decisive(spec)
        if key not in self._known:
            try:
                self._known[key] = _check_selector(spec, self._limits)
            except SelectRouteError as error:
                self._known[key] = error
        outcome = self._known[key]
        if isinstance(outcome, SelectRouteError):
            raise outcome
        return outcome


def _decisive(spec: SubscriptionSpec) -> tuple[str | None, ...]:
    """Return the cache key: all inputs of the check of a selector and its topic filter."""
    return spec.selector, spec.topic, spec.dialect, EXTENDED if spec.seltype == EXTENDED else None


def _check_selector(spec: SubscriptionSpec, limits: Limits) -> tuple[str, int]:
    """Check selector and topic filter, and return the type of the selector and the number of its literals."""
    if spec.topic is not None:
        TopicFilter.parse(spec.topic)
    try:
        return check(spec.selector, spec.topic, spec.dialect, spec.seltype == EXTENDED, limits)
    except UnknownDialectError as error:
        raise InvalidSpecError("/dialect", str(error)) from error
    except ExtendedSelectionError as error:
        raise InvalidSpecError("/seltype", str(error)) from error


def patched(subscription: Subscription, patch: Mapping[str, Any]) -> SubscriptionSpec:
    """Apply a JSON merge patch (RFC 7396) to a subscription's specification; the result is unchecked.

    null resets a field to its default; a null in ``labels`` removes that label. A type that is not patched
    follows from the new selector, unless it is EXTENDED. Raises `InvalidSpecError` for a read-only field.
    """
    if not isinstance(patch, Mapping):
        raise InvalidSpecError("", "a merge patch must be an object")
    data = subscription.spec.to_json()
    now = subscription.to_json()
    for name, value in patch.items():
        if name in READ_ONLY:
            if name in now and now[name] != value:
                raise InvalidSpecError(f"/{name}", f"{name} is read-only")
        elif name not in FIELDS:
            data[name] = value  # from_json raises the error
        elif name in ("labels", "destination") and isinstance(value, Mapping):
            merged = {**(data.get(name) or {}), **value}
            data[name] = {key: part for key, part in merged.items() if part is not None}
        elif value is None:
            data.pop(name, None)
        else:
            data[name] = value
    return SubscriptionSpec.from_json(data)
