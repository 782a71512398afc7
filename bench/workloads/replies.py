"""Workload R, request and reply: every rule waits for one correlation id, and a message answers one at most.

Rule i is ``JMSCorrelationID = 'ID:…'`` with 48 hexadecimal digits: draws 3 i to 3 i + 2 of the stream of seed
3, 16 digits each. Message j takes draw j of seed 4: ``r = ranint(floor(N * 10 / 9))`` for N rules. It carries
the id of rule r; where r is N or more, it is one that the rules would have come to, had there been more of
them: one message in ten is answered by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench.workloads.oracle import Expected
from bench.workloads.plain import Draws, Ints, ranint, splitmix64, splitmix64_at

_RULE_SEED, _RULE_DRAWS = 3, 3
_MESSAGE_SEED = 4
_DIGITS = 16 * _RULE_DRAWS
_CHUNK = 100_000


def correlation_ids(rules: Ints) -> list[str]:
    """Return the ids that some rules wait for."""
    places: Draws = (rules[:, None] * _RULE_DRAWS + np.arange(_RULE_DRAWS)).astype(np.uint64).ravel()
    digits = splitmix64_at(_RULE_SEED, places).astype(">u8").tobytes().hex()
    return [f"ID:{digits[first : first + _DIGITS]}" for first in range(0, len(digits), _DIGITS)]


def selectors(count: int, start: int = 0) -> Iterator[str]:
    """Yield the texts of rules ``start`` to ``start + count``."""
    for first in range(start, start + count, _CHUNK):
        for one in correlation_ids(np.arange(first, min(first + _CHUNK, start + count))):
            yield f"JMSCorrelationID = '{one}'"


def messages(rules: int, count: int, start: int = 0) -> pa.RecordBatch:
    """Return messages ``start`` to ``start + count`` for a number of rules: ids are all they have."""
    ids = correlation_ids(_asked(rules, count, start))
    return pa.RecordBatch.from_pydict({"JMSCorrelationID": pa.array(ids, pa.string())})


def expected(rules: int, count: int) -> Expected:
    """Return what must match of the first messages, without any engine."""
    asked = _asked(rules, count, 0)
    answered = asked[asked < rules]
    return Expected(len(answered), int(answered.sum()))


def _asked(rules: int, count: int, start: int) -> Ints:
    return ranint(splitmix64(_MESSAGE_SEED, start, count), rules * 10 // 9)
