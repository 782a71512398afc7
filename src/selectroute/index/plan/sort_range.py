"""Ranges of a clause, and the choice of the one that sorts its entries."""

from __future__ import annotations

from collections.abc import Sequence

from selectroute.arrays import tables as t
from selectroute.clauses.predicate import Literal, Test
from selectroute.index.build.compile_residual import bits_of
from selectroute.selector.values.truth import VOID
from selectroute.selector.values.values import Float, Long, Number, Value


def chosen_range(literals: Sequence[Literal]) -> tuple[Literal, Literal | None, int] | None:
    """Return the range to sort by, if there is one; an upper end of the same attribute; and both flags.

    An interval narrows down more than one end, so a pair is preferred. O(ranges²), which are few.
    """
    ranges = [literal for literal in literals if _constant(literal) is not None]
    for low in ranges:
        if _is_upper(low):
            continue
        for high in ranges:
            if _is_upper(high) and name_of(low) == name_of(high) and _alike(low, high):
                return low, high, _flags(low) | t.INTERVAL | (t.EXCLUSIVE if _is_exclusive(high) else 0)
    return (ranges[0], None, _flags(ranges[0])) if ranges else None


def bound_of(ranged: Literal) -> int:
    """Return the bound of a range, as in `Tables`."""
    constant = _constant(ranged)
    assert constant is not None
    return bits_of(constant)[1]


def _constant(literal: Literal) -> Value | None:
    """Return the bound of a literal that is a range."""
    predicate = literal.predicate
    if isinstance(predicate, Test) and predicate.op in t.RANGE_OPERATORS:
        return predicate.constant if isinstance(predicate.constant, Number) else None
    return None


def _test(ranged: Literal) -> Test:
    assert isinstance(ranged.predicate, Test)
    return ranged.predicate


def name_of(ranged: Literal) -> str:
    """Return the attribute of a range."""
    return _test(ranged).name


def _is_upper(ranged: Literal) -> bool:
    """Return whether the values that satisfy a range are below its bound."""
    return (_test(ranged).op in ("<", "<=")) is ranged.wanted


def _is_exclusive(ranged: Literal) -> bool:
    """Return whether the bound itself does not satisfy the range."""
    return (_test(ranged).op in ("<", ">")) is ranged.wanted


def _alike(low: Literal, high: Literal) -> bool:
    """Return whether two ranges compare in the same way, and hold for the same values except for the bounds.

    For values of another type, and NaN, a range wanted FALSE holds and one wanted TRUE does not.
    """
    return low.wanted is high.wanted and (_flags(low) ^ _flags(high)) & ~(3 << t.OPERATOR_SHIFT) == 0


def _flags(ranged: Literal) -> int:
    test, constant = _test(ranged), _constant(ranged)
    kind = t.BOUND_LONG if isinstance(constant, Long) else t.BOUND_DOUBLE
    if isinstance(constant, Float):
        kind = t.BOUND_FLOAT
    return (
        t.SORTED
        | t.RANGE_OPERATORS.index(test.op) << t.OPERATOR_SHIFT
        | kind << t.BOUND_SHIFT
        | (t.WANTED if ranged.wanted else 0)
        | (t.STRICT if test.dialect.unlike_types is VOID else 0)
    )
