"""Workload M, mixed: selectors of many shapes over attributes of every type, as of many applications.

Streams are those of `plain`; ``shuffle(n, k)`` is the first k of 0 to n - 1 after step s = 0 to k - 1 of
swapping place s with place s + ranint(n - s).

**Attributes** are ``p0`` to ``p59``; what attribute k holds is said by its last digit:

| digit | type | value of a number n | numbers |
|---|---|---|---|
| 0–4 | string | `WORDS[n % 8]`, a hyphen, n in four digits | 10, 50, 200, 1,000, 5,000 by digit |
| 5 | int | n | 10,000 |
| 6 | long | n · 1,000,003 | 10,000 |
| 7 | double | n / 4 | 10,000 |
| 8 | short (k even tens), float (k odd tens) | n, n / 4 | 50, 1,000 |
| 9 | boolean | n = 1 | 2 |

**Messages** are of 30 kinds, each with 20 of the attributes: ``shuffle(60, 20)`` by draws 20 q to 20 q + 19
of seed 5 for kind q. Message j takes draws 64 j to 64 j + 63 of seed 6: its kind is zipf(30) by the first;
attribute k, if the kind has it, holds a number by draw k + 1: zipf for strings, ranint for the others.

**Tuples** of attributes, 50, are those that applications select by. Tuple i is of kind i mod 30. From that
kind's attributes, rotated left by i so that two tuples of a kind differ, it takes: the first 2, 1, 2, 3 or 2
strings (by i mod 5) as its equalities; for i mod 5 = 4 the first boolean and for i mod 7 = 6 the first short
besides, if it has one; as its ranges the first two of the types int, long, double and float (one twice, if
there is one only); as its other the next string; as its absent the first attribute that the kind does not
have.

**Rules** take 16 draws of seed 7 each. By draw 0, one in fifty (ranint(50) = 0, not rule 0) is the text of an
earlier rule, ranint(i) by draw 1. Otherwise ranint(100) by draw 2 says its form, zipf(50) by draw 3 its
tuple. Numbers in it are ranint of the attribute's: those of the equalities by draws 4 to 8, of the range by
draw 9 with the operator ``> >= < <=`` by ranint(4) of draw 10, of the other by draw 11, further members of IN
by draws 12 to 15. Draws 10 to 12 also choose among variants: see the functions below, which are the rest of
the definition. Values in rules are even and in messages skewed, so that subscribers to a hot value are as
many as to any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.workloads.conditions import (
    And,
    Between,
    Compare,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Sum,
)
from bench.workloads.plain import Draws, Ints, ranint, splitmix64, zipf

ATTRIBUTES: Final = 60
CARRIED: Final = 20
KINDS: Final = 30
TUPLES: Final = 50
WORDS: Final = ("EMEA", "APAC", "north", "south", "gold", "silver", "DE", "retail")
FORMS: Final = (
    ("range", 60),
    ("equality", 10),
    ("in", 8),
    ("or", 5),
    ("prefix", 4),
    ("like", 3),
    ("null", 3),
    ("between", 3),
    ("not", 2),
    ("sum", 1),
    ("scan", 1),
)
"""The forms of rules, with their shares in percent."""

_KIND_SEED, _MESSAGE_SEED, _RULE_SEED = 5, 6, 7
_MESSAGE_DRAWS, _RULE_DRAWS = 64, 16
_STRINGS: Final = (10, 50, 200, 1_000, 5_000)
_OPERATORS: Final = (">", ">=", "<", "<=")
_CHUNK: Final = 100_000
_EQUALITIES: Final = (2, 1, 2, 3, 2)
_TWIN_OF: Final = 50
_FORM_OF: Final = tuple(name for name, share in FORMS for _ in range(share))


@dataclass(frozen=True, slots=True)
class Tuple:
    """What the selectors of one application read."""

    equal: tuple[int, ...]
    ranges: tuple[int, int]
    other: int
    absent: int


def selectors(count: int) -> Iterator[str]:
    """Yield the text of each rule."""
    return (condition.text() for condition in conditions(count))


def conditions(count: int) -> Iterator[Condition]:
    """Yield each rule; a twin is the same object as the rule whose twin it is."""
    made: list[Condition] = []
    for first in range(0, count, _CHUNK):
        number = min(_CHUNK, count - first)
        draws = splitmix64(_RULE_SEED, first * _RULE_DRAWS, number * _RULE_DRAWS).reshape(number, _RULE_DRAWS)
        twin, form, which = ranint(draws[:, 0], _TWIN_OF), ranint(draws[:, 2], 100), zipf(draws[:, 3], TUPLES)
        shares = ((draws >> np.uint64(11)).astype(np.float64) * 2.0**-53).tolist()
        for i, u in enumerate(shares, first):
            if i and not twin[i - first]:
                made.append(made[int(u[1] * i)])
            else:
                made.append(_rule(_FORM_OF[form[i - first]], tuples()[which[i - first]], u))
            yield made[-1]


def messages(count: int, start: int = 0) -> pa.RecordBatch:
    """Return messages ``start`` to ``start + count``, with a column for each attribute."""
    draws = splitmix64(_MESSAGE_SEED, start * _MESSAGE_DRAWS, count * _MESSAGE_DRAWS)
    draws = draws.reshape(count, _MESSAGE_DRAWS)
    carried = np.zeros((KINDS, ATTRIBUTES), np.bool_)
    for kind in range(KINDS):
        carried[kind, kinds()[kind]] = True
    absent = ~carried[zipf(draws[:, 0], KINDS)]
    columns = {f"p{k}": _column(k, draws[:, k + 1], absent[:, k]) for k in range(ATTRIBUTES)}
    return pa.RecordBatch.from_pydict(columns)


@cache
def kinds() -> tuple[tuple[int, ...], ...]:
    """The attributes of each kind of message, in the order in which they were drawn."""
    made = []
    for kind in range(KINDS):
        places = list(range(ATTRIBUTES))
        draws = splitmix64(_KIND_SEED, kind * CARRIED, CARRIED)
        for step in range(CARRIED):
            other = step + int(ranint(draws[step : step + 1], ATTRIBUTES - step)[0])
            places[step], places[other] = places[other], places[step]
        made.append(tuple(places[:CARRIED]))
    return tuple(made)


@cache
def tuples() -> tuple[Tuple, ...]:
    """The attribute tuples, hottest first."""
    return tuple(_tuple(number) for number in range(TUPLES))


def _tuple(number: int) -> Tuple:
    own = kinds()[number % KINDS]
    turned = own[number % CARRIED :] + own[: number % CARRIED]
    strings = [k for k in turned if _type(k) == "string"]
    ranges = [k for k in turned if _type(k) in ("int", "long", "double", "float")]
    size = _EQUALITIES[number % len(_EQUALITIES)]
    equal = strings[:size]
    if number % 5 == 4:
        equal += [k for k in turned if _type(k) == "boolean"][:1]
    if number % 7 == 6:
        equal += [k for k in turned if _type(k) == "short"][:1]
    absent = next(k for k in range(ATTRIBUTES) if k not in own)
    return Tuple(tuple(equal), (ranges[0], ranges[1 % len(ranges)]), strings[size], absent)


def _rule(form: str, of: Tuple, u: Sequence[float]) -> Condition:
    equal = [Compare(f"p{k}", "=", _drawn(k, u[4 + place])) for place, k in enumerate(of.equal)]
    above = Compare(f"p{of.ranges[0]}", _OPERATORS[int(u[10] * 4)], _number(of.ranges[0], u[9]))
    name, word = f"p{of.other}", _string(of.other, u[11])
    rest = equal[1:]
    match form:
        case "range":
            parts: list[Condition] = [*equal, above]
        case "equality":
            parts = [*equal]
        case "in":
            # Two to five members; one that is drawn twice stands once.
            more = [_string(of.equal[0], u[12 + place]) for place in range(1 + int(u[10] * 4))]
            words = dict.fromkeys([_string(of.equal[0], u[4]), *more])
            parts = [In(f"p{of.equal[0]}", tuple(words)), *rest]
        case "or":
            parts = [Or((equal[0], Compare(name, "=", word))), *rest, above]
        case "prefix":
            # Half of them have no equality: the prefix is all there is to find them by.
            like = Like(name, f"{word[:-2]}%")
            parts = [like, above] if u[12] < 0.5 else [equal[0], like]
        case "like":
            parts = [*equal, Like(name, f"%-0_{word[-2]}%")]
        case "null":
            parts = [*equal, IsNull(name, null=False) if u[12] < 0.5 else IsNull(f"p{of.absent}")]
        case "between":
            low, high = (_number(of.ranges[0], min(share, 1 - 2**-53)) for share in (u[9], u[9] + 0.05))
            parts = [*equal, Between(f"p{of.ranges[0]}", low, high)]
        case "not":
            different = Compare(name, "=", word)
            parts = [*equal, Not(different) if u[12] < 0.5 else Not(And((different, above)))]
        case "sum":
            first, second = of.ranges
            total = 3 * max(_number(first, u[9]), _number(second, u[9]))
            parts = [*equal, Sum(f"p{first}", f"p{second}", above.op, total)]
        case _:
            # No equality: two ranges, true of one message in a hundred of those that have both.
            first, second = of.ranges
            top = Compare(f"p{first}", ">", _number(first, 0.9 + u[9] / 10))
            parts = [top, Compare(f"p{second}", "<", _number(second, 0.2 * u[11]))]
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _type(k: int) -> str:
    digit = k % 10
    if digit < 5:
        return "string"
    if digit == 8:
        return "float" if k // 10 % 2 else "short"
    return {5: "int", 6: "long", 7: "double", 9: "boolean"}[digit]


def _numbers(k: int) -> int:
    kind = _type(k)
    if kind == "string":
        return _STRINGS[k % 10]
    return {"short": 50, "float": 1_000, "boolean": 2}.get(kind, 10_000)


def _drawn(k: int, u: float) -> Constant:
    kind = _type(k)
    if kind == "boolean":
        return int(u * 2) == 1
    return _string(k, u) if kind == "string" else _number(k, u)


def _number(k: int, u: float) -> int | float:
    n, kind = int(u * _numbers(k)), _type(k)
    if kind == "long":
        return n * 1_000_003
    return n / 4 if kind in ("double", "float") else n


def _string(k: int, u: float) -> str:
    return _word(int(u * _numbers(k)))


def _word(n: int) -> str:
    return f"{WORDS[n % len(WORDS)]}-{n:04d}"


def _column(k: int, draws: Draws, absent: npt.NDArray[np.bool_]) -> Any:
    kind, count = _type(k), _numbers(k)
    if kind == "string":
        words = pa.array([_word(n) for n in range(count)], pa.string())
        return words.take(pa.array(zipf(draws, count), mask=absent))
    n: Ints = ranint(draws, count)
    if kind == "boolean":
        return pa.array(n == 1, mask=absent)
    if kind == "long":
        return pa.array(n * 1_000_003, pa.int64(), mask=absent)
    if kind in ("double", "float"):
        return pa.array(n / 4, mask=absent).cast(pa.float64() if kind == "double" else pa.float32())
    return pa.array(n, mask=absent).cast(pa.int32() if kind == "int" else pa.int16())
