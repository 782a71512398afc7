"""Workload S: seeded texts of every production, seven of eight a selector, exact like Z and U.

Text k takes draws 24 k to 24 k + 23 of the stream of seed 3, one after another. A text is a chain of one to
five conditions; the last of every eighth text is one that no selector may have, so that the whole is invalid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.workloads.plain import splitmix64

_SEED, _DRAWS = 3, 24
INVALID_EVERY: Final = 8

_NAMES: Final = (
    "JMSType",
    "color",
    "weight",
    "qty",
    "region",
    "urgent",
    "JMSXGroupID",
    "unit_price",
    "$p",
    "x1",
)
_WORDS: Final = ("car", "blue", "t42", "it''s", "", "EMEA", "DE-10115", "a longer value, with a comma")
_CONDITIONS: Final = (
    "{n} = '{w}'",
    "{n} <> '{w}'",
    "'{w}' = {n}",
    "{n} > {i}",
    "{n} <= {i}.25",
    "{n} BETWEEN {i} AND {i}",
    "{n} NOT BETWEEN -{i} AND {i}.5E3",
    "{n} IN ('{w}', '{w}', '{w}')",
    "{n} NOT IN ('{w}')",
    "{n} LIKE '{w}%_'",
    "{n} NOT LIKE '%!_{w}' ESCAPE '!'",
    "{n} IS NULL",
    "{n} IS NOT NULL",
    "{n}",
    "{n} + {i} * 2 <= -{n}",
    "({n} - {i}) / 4 >= {n} * -({i} + {n})",
    "({n} > {i}) = TRUE",
    "NOT ({n} = {i} OR {n} = '{w}')",
)
_INVALID: Final = (
    "{n} =",
    "{n} == '{w}'",
    "{n} IN ()",
    "{n} IN ({i})",
    "{n} LIKE {i}",
    "'{w}' < '{w}'",
    "{n} = {i} = {n}",
    "{n} BETWEEN {i}",
    "({n} > {i}",
    "{n} > {i})",
    "NULL IS NULL",
    "{n} = NOT {n}",
    "{n} + {i}",
    "{n} {n}",
    "{n} = '{w}",
    '{n} = "{w}"',
)
_CHAINS: Final = ("{0} AND {1}", "{0} OR {1}", "({0}) AND {1}", "NOT ({0}) OR {1}", "{0} AND NOT {1}")


def texts(count: int) -> list[str]:
    """Return the first texts of the workload."""
    draws = splitmix64(_SEED, 0, count * _DRAWS) >> 33  # 31 bits: a remainder of it is as good as even
    rows = draws.reshape(count, _DRAWS).tolist()
    return [_text(iter(row), number % INVALID_EVERY == INVALID_EVERY - 1) for number, row in enumerate(rows)]


def _text(draws: Iterator[int], invalid: bool) -> str:
    more = next(draws) % 5
    text = _condition(draws, _INVALID if invalid and not more else _CONDITIONS)
    for left in reversed(range(more)):
        chain = _CHAINS[next(draws) % len(_CHAINS)]
        text = chain.format(text, _condition(draws, _INVALID if invalid and not left else _CONDITIONS))
    return text


def _condition(draws: Iterator[int], shapes: tuple[str, ...]) -> str:
    shape = shapes[next(draws) % len(shapes)]
    # One draw fills all places of a condition: each takes it with another step.
    seed = next(draws)
    pieces = shape.split("{")
    filled = [pieces[0]]
    for step, piece in enumerate(pieces[1:], 1):
        filled += (_fill(piece[0], seed // step), piece[2:])
    return "".join(filled)


def _fill(place: str, draw: int) -> str:
    if place == "i":
        return str(draw % 10_000)
    pool = _NAMES if place == "n" else _WORDS
    return pool[draw % len(pool)]
