"""Samples of a property's values: a few that represent all values to the conditions on the property.

Conditions on one name (comparisons with literals, IN, LIKE, IS NULL, the bare name) cut the values that it
can have into classes on which each condition has one outcome. `samples` gives at least one value of every
class:

- NULL, TRUE, FALSE; each string and byte string that is mentioned, and one that is not; NaN;
- of each numeric type the smallest value and, for each number mentioned, the first value that is not below
  the number and the first above it, as the evaluator compares. Between two neighbours of these values, every
  comparison has the same result;
- for a LIKE, whose strings cannot be listed, both outcomes on the string that is not mentioned.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from selectroute.clauses.predicate import Lookup, Matches, OneOf, Test
from selectroute.clauses.simple import Simple
from selectroute.selector.dialect import Dialect
from selectroute.selector.fields import DERIVED, PREFIX, SYNONYMS
from selectroute.selector.like import compile_like
from selectroute.selector.message import DELIVERY_MODES, HEADER_TYPES
from selectroute.selector.values.truth import VOID, Truth, Void
from selectroute.selector.values.values import (
    TYPE_NAMES,
    Byte,
    Double,
    Float,
    Int,
    Long,
    Number,
    Short,
    Value,
    compare,
)

MAX_NUMBERS: Final = 64
"""Maximum numbers mentioned for one name; beyond it, nothing is claimed. Each costs 12 searches."""

MAX_PATTERNS: Final = 5
"""Maximum patterns for one name; beyond it, nothing is claimed."""

_Pattern = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """Value that represents its class; ``likes`` are the outcomes of patterns on the string that represents
    all strings not mentioned.
    """

    value: Value | None
    likes: Mapping[_Pattern, bool] | None = None

    def truth(self, predicate: Simple) -> Truth | Void:
        """Return the truth of a predicate on this sample."""
        if self.likes is not None and isinstance(predicate, Matches):
            return Truth.of(self.likes[predicate.pattern, predicate.escape] is not predicate.negated)
        lookup: Lookup = lambda _: self.value  # noqa: E731  # shorter than a def
        return predicate.truth(lookup)


@dataclass(frozen=True, slots=True)
class Domain:
    """Values that a name can have except NULL: those listed, or all of some types."""

    types: frozenset[type]
    values: tuple[Value, ...] | None = None
    described: str | None = None
    """Text for users about the values of a header."""


_ANY: Final = Domain(frozenset(TYPE_NAMES))


def domain(name: str, dialect: Dialect) -> Domain:
    """Return the values that an identifier can have on some message."""
    field = dialect.field_of(name).removeprefix(PREFIX)
    if field in HEADER_TYPES:
        return _of_header(field, converted=name in dialect.fields)
    if field in DERIVED and field not in SYNONYMS:
        source = next(one for one in DERIVED[field] if one.names[0] in HEADER_TYPES)
        given = _of_header(source.names[0], converted=False).values or ()
        values = tuple(value for one in given if (value := source.convert(one)) is not None)
        return Domain(frozenset(map(type, values)), values, _listed(values))
    return _ANY


def _of_header(name: str, converted: bool) -> Domain:
    """Return the values of a header; if `converted` from other names of the field, all of its type."""
    kind = HEADER_TYPES[name]
    only = frozenset({kind})
    if name == "JMSDeliveryMode":
        return Domain(only, DELIVERY_MODES, _listed(DELIVERY_MODES))
    if name == "JMSPriority" and not converted:
        return Domain(only, tuple(map(Int, range(10))), "an int from 0 to 9")
    return Domain(only, None, f"{'an' if kind is Int else 'a'} {TYPE_NAMES[kind]}")


def _listed(values: Sequence[Value]) -> str:
    integers = sorted(value.value for value in values if isinstance(value, Int))
    return f"the int {' or '.join(map(str, integers))}" if integers else " or ".join(map(repr, values))


def samples(predicates: Sequence[Simple], where: Domain) -> tuple[Sample, ...] | None:
    """Return at least one value of every class that the predicates on one name distinguish, NULL included;
    None if there are too many.
    """
    null = Sample(None)
    if where.values is not None:
        return (null, *map(Sample, where.values))
    constants = [one.constant for one in predicates if isinstance(one, Test)]
    numbers = mentioned_numbers(predicates)
    patterns = list(
        dict.fromkeys((one.pattern, one.escape) for one in predicates if isinstance(one, Matches))
    )
    if len(numbers) > MAX_NUMBERS or len(patterns) > MAX_PATTERNS:
        return None
    promotes = all(one.dialect.promotes for one in predicates if isinstance(one, Test))
    found: list[Sample] = [null]
    for kind in TYPE_NAMES:
        if kind not in where.types:
            continue
        if kind is bool:
            found += (Sample(False), Sample(True))
        elif kind is str:
            found += _strings(predicates, patterns)
        elif kind is bytes:
            mentioned = {one for one in constants if isinstance(one, bytes)}
            found += map(Sample, (*sorted(mentioned), bytes(1 + max(map(len, mentioned), default=0))))
        else:
            found += map(Sample, _of_type(kind, numbers, promotes))
    return tuple(found)


def mentioned_numbers(predicates: Iterable[Simple]) -> list[Number]:
    """Return the numbers that the predicates mention."""
    constants = [one.constant for one in predicates if isinstance(one, Test)]
    return list(dict.fromkeys(one for one in constants if isinstance(one, Number)))


def _strings(predicates: Iterable[Simple], patterns: Sequence[_Pattern]) -> Iterator[Sample]:
    mentioned: set[str] = set()
    for predicate in predicates:
        if isinstance(predicate, Test) and isinstance(predicate.constant, str):
            mentioned.add(predicate.constant)
        elif isinstance(predicate, OneOf):
            mentioned.update(predicate.values)
    possible: list[tuple[bool, ...]] = []
    for pattern in patterns:
        operations = compile_like(*pattern)
        if all(isinstance(operation, str) for operation in operations):  # no wildcard: an equality
            mentioned.add("".join(operation for operation in operations if isinstance(operation, str)))
            possible.append((False,))
        else:
            possible.append((True, False) if pattern[0] != "%" else (True,))
    yield from map(Sample, sorted(mentioned))
    other = "x" * (1 + max(map(len, mentioned), default=0))
    for outcomes in product(*possible):
        yield Sample(other, dict(zip(patterns, outcomes, strict=True)))


# ---- numbers


def _of_type(kind: type, numbers: Sequence[Number], promotes: bool) -> Iterator[Value]:
    """Yield the first value of every run of values in which comparisons with the numbers do not change."""
    order = _ORDERED[kind]
    starts = {order.first}
    for number in numbers:
        if compare("=", order.make(order.first), number, VOID, promotes=promotes) is VOID:  # type: ignore[arg-type]
            continue  # these two types do not compare
        for op in (">=", ">"):
            start = _first(order, op, number)
            if start is not None:
                starts.add(start)
    yield from map(order.make, sorted(starts))
    if kind is Float:
        yield Float(float("nan"))
    elif kind is Double:
        yield Double(float("nan"))


def _first(order: _Order, op: str, number: Number) -> int | None:
    """Return the rank of the first value at or above (``>=``), or above, the number; None if there is none.

    The search begins at the number itself, and doubles its steps: comparisons round and promote, so that the
    first value may be some ranks away.
    """

    def reached(rank: int) -> bool:
        return compare(op, order.make(rank), number, VOID) is Truth.TRUE  # type: ignore[arg-type]

    low, high = order.first, order.last
    if not reached(high):
        return None
    guess, step = min(max(order.near(number), low), high), 1
    if reached(guess):
        while guess > low and reached(guess):
            high, guess, step = guess, max(guess - step, low), step * 2
        low = guess if reached(guess) else guess + 1
    else:
        while not reached(guess):
            low, guess, step = guess + 1, min(guess + step, high), step * 2
        high = guess
    while low < high:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True, slots=True)
class _Order:
    """Values of a numeric type by rank: the function from a rank to its value, the first rank and the last,
    and the function from any number to a rank near it.
    """

    make: Callable[[int], Value]
    first: int
    last: int
    near: Callable[[Number], int]


def _whole(number: Number) -> int:
    """Return a whole number near a number."""
    return int(max(min(number.value, 1e19), -1e19))


def _bits(number: Number, floating: str, integer: str) -> int:
    """Invert `_signed`, for any number."""
    value = float(number.value)
    try:
        rank: int = struct.unpack(integer, struct.pack(floating, abs(value)))[0]
    except OverflowError:  # beyond the largest float
        rank = _INFINITY32
    return -rank if value < 0 else rank


def _signed(rank: int, floating: str, integer: str) -> float:
    """Return the float of this rank among all: the bits, read as an integer, have the order of the floats."""
    magnitude: float = struct.unpack(floating, struct.pack(integer, abs(rank)))[0]
    return -magnitude if rank < 0 else magnitude


_INFINITY32, _INFINITY64 = 0x7F800000, 0x7FF0000000000000

_ORDERED: Final[Mapping[type, _Order]] = {
    **{
        kind: _Order(kind, -1 << (kind.BITS - 1), (1 << (kind.BITS - 1)) - 1, _whole)
        for kind in (Byte, Short, Int, Long)
    },
    Float: _Order(
        lambda rank: Float(_signed(rank, "<f", "<i")),
        -_INFINITY32,
        _INFINITY32,
        lambda number: _bits(number, "<f", "<i"),
    ),
    Double: _Order(
        lambda rank: Double(_signed(rank, "<d", "<q")),
        -_INFINITY64,
        _INFINITY64,
        lambda number: _bits(number, "<d", "<q"),
    ),
}
