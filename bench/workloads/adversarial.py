"""Adversarial rows: rules that leave an index little to hold on to. Each is seeded and exact.

Messages are those of `plain` (draws of seed 2) unless said; rule i takes its draws from seed 8, as many
as its row says, and ``top(n, m)`` is n - m + ranint(m): one of the highest m of n.

- **hot**: every selector asks for one value that every message has. JMSType is 'hot' in all messages. Two
  draws: ``JMSType = 'hot' AND weight > top(10000, 1000) AND qty < ranint(100)``.
- **hot-pair**: one in ten rules has one pair of values that every message has, and a region of 1,000; all
  others have other pairs and one region. In all messages JMSType is 't0', color 'c0' and region 'k' and
  ranint(1000) by draw j of seed 11 for message j. Four draws: for i mod 10 = 0 ``JMSType = 't0' AND color =
  'c0' AND region = 'k{ranint(1000)}' AND weight > top(10000, 1000)`` by the last two, else ``JMSType =
  't{ranint(1000)}' AND color = 'c{ranint(100)}' AND region = 'k0' AND weight > top(10000, 1000)`` by the
  first two and the last.
- **ranges-1**: no equality, one side. Two draws: for even i ``weight > top(10000, 100)``, for odd i
  ``qty < ranint(10)``.
- **ranges-2**: no equality, two sides. Two draws: w = ranint(10000), ``weight > w AND weight < w + 1 +
  ranint(20)``.
- **or**: each selector is one OR of 1,000 branches. Three draws a branch: for even branches
  ``JMSType = 't{ranint(1000)}' AND weight > top(10000, 100)``, for odd ones
  ``region = 'r{ranint(20)}' AND qty < ranint(2)``, the third draw being left out.
- **identical**: every selector is ``JMSType = 't0' AND color = 'c0' AND weight > 9000``.
- **tuples**: 1,000 distinct tuples of attributes. Attributes are ``q0`` to ``q45``, strings ``v0`` to
  ``v99``, and every message has them all: draws 64 j + k of seed 9 for attribute k of message j, ranint(100).
  Three draws: the pair number ranint(1000) in the order (0, 1), (0, 2), … (0, 45), (1, 2), …, and two values:
  ``qa = 'v…' AND qb = 'v…'``.
- **like**: general patterns on long strings. ``text`` is 1,000 characters: message j has 'b' at place
  ranint(1000) by draw j of seed 10 and 'a' everywhere else. Two draws: k = 1 + ranint(20) times ``%a``, then
  ``%b%`` and l = 1 + ranint(500) times ``_``, as in ``'%a%a%b%___'``: true where l characters follow the b,
  and where k go before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Final

import numpy as np
import pyarrow as pa

from bench.workloads import plain
from bench.workloads.conditions import And, Compare, Condition, Like, Or
from bench.workloads.plain import COLORS, TYPES, WEIGHTS, Draws, named, ranint, splitmix64

BRANCHES: Final = 1_000
PAIRS: Final = 1_000
_SEED, _TUPLE_SEED, _LIKE_SEED, _PAIR_SEED = 8, 9, 10, 11
_ATTRIBUTES, _VALUES, _TUPLE_DRAWS = 46, 100, 64
_LENGTH: Final = 1_000
_QTY, _REGIONS, _PAIR_REGIONS = 1_000, 20, 1_000


def hot(rules: int) -> Iterator[Condition]:
    """See the module."""
    weight, qty = _draws(rules, 2)
    for w, q in zip(_top(weight, WEIGHTS, 1_000), ranint(qty, 100).tolist(), strict=True):
        yield And((Compare("JMSType", "=", "hot"), Compare("weight", ">", w), Compare("qty", "<", q)))


def hot_pair(rules: int) -> Iterator[Condition]:
    """See the module."""
    type_, color, region, weight = _draws(rules, 4)
    rows = zip(
        ranint(type_, TYPES).tolist(), ranint(color, COLORS).tolist(), ranint(region, _PAIR_REGIONS).tolist(),
        _top(weight, WEIGHTS, 1_000), strict=True,
    )  # fmt: skip
    for i, (t, c, r, w) in enumerate(rows):
        if i % 10:
            r = 0
        else:
            t = c = 0
        values = ("JMSType", f"t{t}"), ("color", f"c{c}"), ("region", f"k{r}")
        yield And((*(Compare(name, "=", value) for name, value in values), Compare("weight", ">", w)))


def one_sided(rules: int) -> Iterator[Condition]:
    """See the module."""
    weight, qty = _draws(rules, 2)
    pairs = zip(_top(weight, WEIGHTS, 100), ranint(qty, 10).tolist(), strict=True)
    for i, (w, q) in enumerate(pairs):
        yield Compare("qty", "<", q) if i % 2 else Compare("weight", ">", w)


def two_sided(rules: int) -> Iterator[Condition]:
    """See the module."""
    weight, width = _draws(rules, 2)
    for w, more in zip(ranint(weight, WEIGHTS).tolist(), ranint(width, 20).tolist(), strict=True):
        yield And((Compare("weight", ">", w), Compare("weight", "<", w + 1 + more)))


def wide_or(rules: int) -> Iterator[Condition]:
    """See the module."""
    value, bound, _ = _draws(rules * BRANCHES, 3)
    types, regions = ranint(value, TYPES).tolist(), ranint(value, _REGIONS).tolist()
    weights, quantities = _top(bound, WEIGHTS, 100), ranint(bound, 2).tolist()
    for first in range(0, rules * BRANCHES, BRANCHES):
        branches: list[Condition] = []
        for k in range(first, first + BRANCHES):
            if k % 2:
                parts = Compare("region", "=", f"r{regions[k]}"), Compare("qty", "<", quantities[k])
            else:
                parts = Compare("JMSType", "=", f"t{types[k]}"), Compare("weight", ">", weights[k])
            branches.append(And(parts))
        yield Or(tuple(branches))


def identical(rules: int) -> Iterator[Condition]:
    """See the module."""
    parts = Compare("JMSType", "=", "t0"), Compare("color", "=", "c0"), Compare("weight", ">", 9_000)
    return (And(parts) for _ in range(rules))


def many_tuples(rules: int) -> Iterator[Condition]:
    """See the module."""
    pairs = list(combinations(range(_ATTRIBUTES), 2))
    which, first, second = (
        ranint(out, n).tolist() for out, n in zip(_draws(rules, 3), (PAIRS, 100, 100), strict=True)
    )
    for pair, v, w in zip(which, first, second, strict=True):
        a, b = pairs[pair]
        yield And((Compare(f"q{a}", "=", f"v{v}"), Compare(f"q{b}", "=", f"v{w}")))


def long_like(rules: int) -> Iterator[Condition]:
    """See the module."""
    before, after = _draws(rules, 2)
    for k, more in zip(ranint(before, 20).tolist(), ranint(after, _LENGTH // 2).tolist(), strict=True):
        yield Like("text", "%a" * (1 + k) + "%b%" + "_" * (1 + more))


def plain_messages(_rules: int, count: int, start: int) -> pa.RecordBatch:
    """Messages as they are in Z."""
    return plain.messages(count, start)[1]


def hot_messages(_rules: int, count: int, start: int) -> pa.RecordBatch:
    """Messages whose JMSType is 'hot'."""
    batch = plain.messages(count, start)[1]
    return batch.set_column(0, "JMSType", pa.array(["hot"] * count, pa.string()))


def pair_messages(_rules: int, count: int, start: int) -> pa.RecordBatch:
    """Messages of one pair of JMSType and color, with 1,000 regions."""
    batch = plain.messages(count, start)[1]
    regions = named("k", ranint(splitmix64(_PAIR_SEED, start, count), _PAIR_REGIONS), _PAIR_REGIONS)
    columns = {"JMSType": pa.array(["t0"] * count), "color": pa.array(["c0"] * count), "region": regions}
    for name, column in columns.items():
        batch = batch.set_column(batch.schema.get_field_index(name), name, column)
    return batch


def tuple_messages(_rules: int, count: int, start: int) -> pa.RecordBatch:
    """Messages that have every attribute of ``tuples``."""
    draws = splitmix64(_TUPLE_SEED, start * _TUPLE_DRAWS, count * _TUPLE_DRAWS).reshape(count, _TUPLE_DRAWS)
    values = {f"q{k}": named("v", ranint(draws[:, k], _VALUES), _VALUES) for k in range(_ATTRIBUTES)}
    return pa.RecordBatch.from_pydict(values)


def like_messages(_rules: int, count: int, start: int) -> pa.RecordBatch:
    """Messages of one long string each."""
    places = ranint(splitmix64(_LIKE_SEED, start, count), _LENGTH).tolist()
    texts = ["a" * place + "b" + "a" * (_LENGTH - 1 - place) for place in places]
    return pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.string())})


Rules = Callable[[int], Iterator[Condition]]
Messages = Callable[[int, int, int], pa.RecordBatch]

ROWS: Final[dict[str, tuple[Rules, Messages]]] = {
    "hot": (hot, hot_messages),
    "hot-pair": (hot_pair, pair_messages),
    "ranges-1": (one_sided, plain_messages),
    "ranges-2": (two_sided, plain_messages),
    "or": (wide_or, plain_messages),
    "identical": (identical, plain_messages),
    "tuples": (many_tuples, tuple_messages),
    "like": (long_like, like_messages),
}
"""Each row's rules, and its messages by rules, count and start."""


def _draws(count: int, each: int) -> list[Draws]:
    return list(splitmix64(_SEED, 0, count * each).reshape(count, each).T)


def _top(out: Draws, n: int, m: int) -> list[int]:
    return [int(number) for number in np.int64(n - m) + ranint(out, m)]
