"""Kleene's three truth values, with which every selector is judged (seed 004, "Null values"), and `VOID`."""

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
        # `if selector.evaluate(message):` would take UNKNOWN for true, or `not` it for false: neither is
        # right.
        raise TypeError("a Truth is no bool: compare it, as in `truth is Truth.TRUE`")

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def of(condition: bool) -> Truth:
        """Return TRUE or FALSE for a Python condition."""
        return Truth.TRUE if condition else Truth.FALSE


class Void(Enum):
    """Type of VOID, what an operation amounts to that makes "the complete selector always false".

    It is no fourth truth value: wherever it comes up, also in a branch that would not have decided the
    result, the selector as a whole is FALSE (seeds 000, 001 and 002).
    """

    VOID = "void"

    def __repr__(self) -> str:
        return self.name


VOID: Final = Void.VOID
"""See `Void`."""


def not_(truth: Truth) -> Truth:
    """NOT: swaps TRUE and FALSE, leaves UNKNOWN."""
    return _NEGATION[truth]


def all_of(truths: Iterable[Truth]) -> Truth:
    """AND: FALSE if any is FALSE, otherwise UNKNOWN if any is UNKNOWN, otherwise TRUE."""
    result = Truth.TRUE
    for truth in truths:
        if truth is Truth.FALSE:
            return Truth.FALSE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result


def any_of(truths: Iterable[Truth]) -> Truth:
    """OR: TRUE if any is TRUE, otherwise UNKNOWN if any is UNKNOWN, otherwise FALSE."""
    result = Truth.FALSE
    for truth in truths:
        if truth is Truth.TRUE:
            return Truth.TRUE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result


_NEGATION = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}
