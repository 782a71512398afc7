"""Truth values of Kleene's three-valued logic (seed 004, "Null values"), and `VOID`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NoReturn


class Truth(Enum):
    """TRUE, FALSE or UNKNOWN. A selector matches a message only when it is TRUE."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        # `if selector.evaluate(message):` would count UNKNOWN as true, `not` as false: both are wrong.
        raise TypeError("a Truth is not a bool: compare it, as in `truth is Truth.TRUE`")

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def of(condition: bool) -> Truth:
        """Return TRUE or FALSE for a Python condition."""
        return Truth.TRUE if condition else Truth.FALSE


class Void(Enum):
    """Type of VOID, the result of an operation that makes "the complete selector always false".

    VOID is not a fourth truth value: anywhere in a selector, also in a branch that does not decide the
    result, VOID makes the selector as a whole FALSE (seeds 000, 001 and 002).
    """

    VOID = "void"

    def __repr__(self) -> str:
        return self.name


VOID: Final = Void.VOID
"""See `Void`."""


def not_(truth: Truth) -> Truth:
    """Return NOT of a truth: swap TRUE and FALSE, keep UNKNOWN."""
    return _NEGATION[truth]


def all_of(truths: Iterable[Truth]) -> Truth:
    """Return AND: FALSE if any is FALSE, otherwise UNKNOWN if any is UNKNOWN, otherwise TRUE."""
    result = Truth.TRUE
    for truth in truths:
        if truth is Truth.FALSE:
            return Truth.FALSE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result


def any_of(truths: Iterable[Truth]) -> Truth:
    """Return OR: TRUE if any is TRUE, otherwise UNKNOWN if any is UNKNOWN, otherwise FALSE."""
    result = Truth.FALSE
    for truth in truths:
        if truth is Truth.TRUE:
            return Truth.TRUE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result


_NEGATION = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}
