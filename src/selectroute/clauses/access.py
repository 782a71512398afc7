"""Equalities of a clause, as keys under which the index can file it.

A *key* stands for a class of values. For one attribute, a message has exactly one key (``message_key``) and a
literal that is an equality has one or several (``literal_keys``); the literal can hold only if the message's
key is among them. So a clause filed under several keys of one attribute is found at most once.

Numeric equality is not transitive over Java's types, because the operands are promoted: the float 16777216
equals both longs 16777216 and 16777217. The keys are therefore coarser than the values: two numbers that are
equal after promotion share a key.

- The key of a number is the nearest double.
- A *float* property of magnitude 2^24 or more, where floats no longer hold every integer, has a key of a
  second kind; a constant of that size is filed under both kinds.

Above 2^53 several longs share a double: such a literal is judged again (``Keys.exact`` is false).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from selectroute.clauses.predicate import (
    Clause,
    ClauseLiteral,
    ExpressionTest,
    LevelsTest,
    NotVoid,
    NullTest,
    OneOf,
    PatternTest,
    Test,
)
from selectroute.selector.like import compile_like
from selectroute.selector.syntax.check import NUMBER
from selectroute.selector.values import UNSUPPORTED, Double, Float, Unsupported, Value, to_float32

Key = str | bytes | float | tuple[str, float] | tuple[str]
"""String; byte string; double; ("float", x) for a large float; ("true",), ("false",) and ("null",)."""

NULL: Key = ("null",)
TRUE: Key = ("true",)
FALSE: Key = ("false",)

LARGE_FLOAT = 2.0**24
"""Least magnitude at which a float does not hold every integer (24 bits of significand)."""

LARGE_LONG = 2**53
"""Least magnitude at which a double does not hold every long (53 bits of significand)."""


class Keys(NamedTuple):
    """Keys of one attribute. ``exact``: the literal holds for every message that has one of them."""

    attribute: str
    keys: frozenset[Key]
    exact: bool


def message_key(value: Value | Unsupported | None) -> Key | None:
    """Return the one key of a property's value; ``None`` for NaN and UNSUPPORTED, which equal nothing.
    O(1).
    """
    if isinstance(value, str | bytes):
        return value
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if value is UNSUPPORTED:
        return None
    number = float(value.value)
    if math.isnan(number):
        return None
    if isinstance(value, Float) and abs(number) >= LARGE_FLOAT:
        return ("float", number)
    return number + 0.0  # -0.0 equals 0.0


def literal_keys(literal: ClauseLiteral) -> Keys | None:
    """Return the keys of a literal that is an equality, ``None`` for any other. O(its constants)."""
    predicate = literal.predicate
    if isinstance(predicate, NullTest):
        return Keys(predicate.name, frozenset((NULL,)), True) if literal.wanted else None
    if isinstance(predicate, Test):
        if predicate.op != "=" or not literal.wanted:
            return None
        keys = _constant_keys(predicate.name, predicate.constant)
        if keys is None or predicate.dialect.promotes or predicate.kind != NUMBER:
            return keys
        return keys._replace(exact=False)  # a key has no type, but here types must be equal
    if isinstance(predicate, OneOf) and literal.wanted and not predicate.negated:
        return Keys(predicate.name, frozenset(predicate.values), True)
    return None


def _constant_keys(name: str, constant: Value) -> Keys | None:
    if isinstance(constant, str | bytes):
        return Keys(name, frozenset((constant,)), True)
    if isinstance(constant, bool):
        return Keys(name, frozenset((TRUE if constant else FALSE,)), True)
    number = float(constant.value) + 0.0
    if isinstance(constant, Float):
        # `x = 16777216F` holds for two longs: too coarse to be a key of either kind.
        return Keys(name, frozenset((number,)), True) if abs(number) < LARGE_FLOAT else None
    keys: set[Key] = {number}
    if abs(number) >= LARGE_FLOAT:
        as_float = to_float32(constant.value)
        if not isinstance(constant, Double) or as_float == number:
            keys.add(("float", as_float))
    exact = isinstance(constant, Double) or abs(constant.value) < LARGE_LONG
    return Keys(name, frozenset(keys), exact)


@dataclass(slots=True)
class Equalities:
    """Keys under which a clause can be filed.

    ``keys`` by attribute; several equalities of one attribute are intersected. ``covered`` holds the literals
    that need not be judged again when the clause is found by their attribute. ``satisfiable`` is false if an
    intersection is empty: no message satisfies the clause.
    """

    keys: dict[str, frozenset[Key]]
    covered: dict[str, tuple[ClauseLiteral, ...]]
    satisfiable: bool


def equalities(clause: Clause) -> Equalities:
    """Return the equalities of a clause. O(size of the clause)."""
    keys: dict[str, frozenset[Key]] = {}
    covered: dict[str, tuple[ClauseLiteral, ...]] = {}
    for literal in clause.literals:
        equality = literal_keys(literal)
        if equality is not None:
            name = equality.attribute
            keys[name] = keys[name] & equality.keys if name in keys else equality.keys
            if equality.exact:
                covered[name] = (*covered.get(name, ()), literal)
    return Equalities(keys, covered, all(keys.values()))


def prefixed(literals: Iterable[ClauseLiteral]) -> tuple[str, ...]:
    """Return the attributes of literals that are a LIKE with a prefix. A snapshot files a clause without keys
    by one of these prefixes.
    """
    names = (
        literal.predicate.name
        for literal in literals
        if isinstance(literal.predicate, PatternTest)
        and literal.wanted
        and not literal.predicate.negated
        and isinstance(
            next(iter(compile_like(literal.predicate.pattern, literal.predicate.escape)), None), str
        )
    )
    return tuple(dict.fromkeys(names))


NO_EQUALITY = "it has no equality"
TOO_MANY_KEYS = "its equalities have too many values"


def scan_reason(clause: Clause) -> str:
    """Return why a clause is on the scan list, for ``explain`` and the statistics."""
    if not clause.literals:
        return "it matches every message"
    if equalities(clause).keys:
        return TOO_MANY_KEYS
    conditions = [literal.predicate for literal in clause.literals if hasattr(literal.predicate, "reason")]
    if conditions:
        return f"{NO_EQUALITY}: {conditions[0].reason}"
    kinds = {type(literal.predicate) for literal in clause.literals}
    return f"{NO_EQUALITY}, only {', '.join(name for kind, name in _KIND_NAMES.items() if kind in kinds)}"


_KIND_NAMES: Final[Mapping[type, str]] = {
    ExpressionTest: "other conditions",
    PatternTest: "LIKE",
    NullTest: "IS NOT NULL",
    NotVoid: "the types of other conditions",
    OneOf: "NOT IN",
    Test: "ranges or <>",
    LevelsTest: "a topic filter with several # or many levels",
}
