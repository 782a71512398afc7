"""Workloads Z and U: seeded rules and messages, exact, so that every engine in every language runs the same.

A splitmix64 stream of seed s adds 0x9E3779B97F4A7C15 for each draw, so draw k depends on s and k alone and
all draws are computed at once. ``u01 = (out >>> 11) * 2^-53``, ``ranint(n) = floor(u01 * n)``, and
``zipf(n)`` is the first i with ``cum[i] > u01 * cum[n - 1]``, where ``cum[i]`` is the sum of 1/r for r = 1 to
i + 1, added in this order in double precision. The other workloads have modules of their own: see
`catalogue`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TYPES: Final = 1_000
COLORS: Final = 100
WEIGHTS: Final = 10_000
BODY: Final = 107

_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_RULE_SEED, _RULE_DRAWS = 1, 3
_MESSAGE_SEED, _MESSAGE_DRAWS = 2, 8

Ints = npt.NDArray[np.int64]
Draws = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Triples:
    """Rules or messages reduced to what decides: type, color and weight, int64 each."""

    type: Ints
    color: Ints
    weight: Ints

    def __len__(self) -> int:
        return len(self.type)


def splitmix64(seed: int, start: int, count: int) -> Draws:
    """Return draws ``start`` to ``start + count`` of the stream of a seed."""
    return splitmix64_at(seed, np.arange(start, start + count, dtype=np.uint64))


def splitmix64_at(seed: int, places: Draws) -> Draws:
    """Return the draws at some places of the stream of a seed, the first being at 0."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the definition
        z = np.uint64(seed) + _GAMMA * (places + np.uint64(1))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def rules(workload: str, count: int) -> Triples:
    """Return the rules of ``Z`` (skewed) or ``U`` (uniform): each is ``type = t AND color = c AND weight >
    w``.
    """
    t, c, w = splitmix64(_RULE_SEED, 0, count * _RULE_DRAWS).reshape(count, _RULE_DRAWS).T
    if workload == "Z":
        return Triples(zipf(t, TYPES), zipf(c, COLORS), ranint(w, WEIGHTS))
    if workload == "U":
        return Triples(ranint(t, TYPES), ranint(c, COLORS), ranint(w, WEIGHTS))
    raise ValueError(f"there is no workload {workload!r}, only Z and U")


def selectors(triples: Triples) -> Iterator[str]:
    """Yield the text of each rule."""
    for t, c, w in zip(triples.type.tolist(), triples.color.tolist(), triples.weight.tolist(), strict=True):
        yield f"JMSType = 't{t}' AND color = 'c{c}' AND weight > {w}"


def messages(count: int, start: int = 0) -> tuple[Triples, pa.RecordBatch]:
    """Return messages ``start`` to ``start + count``, the same for every workload: what decides, and all
    columns.
    """
    draws = splitmix64(_MESSAGE_SEED, start * _MESSAGE_DRAWS, count * _MESSAGE_DRAWS)
    t, c, w, corr, priority, qty, region, urgent = draws.reshape(count, _MESSAGE_DRAWS).T
    triples = Triples(zipf(t, TYPES), zipf(c, COLORS), ranint(w, WEIGHTS))
    columns = {
        "JMSType": named("t", triples.type, TYPES),
        "color": named("c", triples.color, COLORS),
        "weight": pa.array(triples.weight, pa.int32()),
        "JMSCorrelationID": pa.array([f"{out:08x}" for out in (corr >> np.uint64(32)).tolist()], pa.string()),
        "JMSPriority": pa.array(ranint(priority, 10), pa.int32()),
        "qty": pa.array(ranint(qty, 1_000), pa.int32()),
        "region": named("r", ranint(region, 20), 20),
        "urgent": pa.array(ranint(urgent, 2) == 1),
    }
    return triples, pa.RecordBatch.from_pydict(columns)


def with_body(batch: pa.RecordBatch) -> pa.Table:
    """Return the messages with a body of 107 characters, as a stream would carry it: their strings."""
    texts = [column for column in batch.columns if pa.types.is_string(column.type)]
    parts = pc.binary_join_element_wise(*texts, "|", null_handling="skip")
    body = pc.utf8_slice_codeunits(pc.utf8_rpad(parts, BODY, "."), 0, BODY)
    return pa.Table.from_batches([batch]).append_column("@body", body)


def named(prefix: str, numbers: Ints, count: int) -> Any:
    """Return ``prefix`` and number as strings, for numbers below ``count``."""
    names = pa.array([f"{prefix}{number}" for number in range(count)], pa.string())
    return names.take(pa.array(numbers))


def ranint(out: Draws, n: int) -> Ints:
    """Return for each draw an even number below ``n``."""
    return np.floor(_u01(out) * n).astype(np.int64)


def zipf(out: Draws, n: int) -> Ints:
    """Return for each draw a number below ``n``, number i in proportion to ``1 / (i + 1)``."""
    cumulated = _harmonic(n)
    found: Ints = np.searchsorted(cumulated, _u01(out) * cumulated[-1], side="right").astype(np.int64)
    return found


@cache
def _harmonic(n: int) -> npt.NDArray[np.float64]:
    return np.cumsum(1.0 / np.arange(1, n + 1, dtype=np.float64))  # adds in order, as defined


def _u01(out: Draws) -> npt.NDArray[np.float64]:
    return (out >> np.uint64(11)).astype(np.float64) * 2.0**-53
