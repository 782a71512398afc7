"""Oracle: what must match, computed by sorting alone: no engine of ours, no parser, no index takes part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.workloads.plain import COLORS, WEIGHTS, Ints, Triples


@dataclass(frozen=True, slots=True)
class Expected:
    """Matches of a set of messages: how many, and the sum of the numbers of the matching rules."""

    matches: int
    rule_sum: int


class Oracle:
    """Answers for one set of rules. A message matches the rules of its type and color whose weight is
    lower.
    """

    def __init__(self, rules: Triples) -> None:
        keys = (rules.type * COLORS + rules.color) * WEIGHTS + rules.weight
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(order)])

    def lengths(self, messages: Triples) -> Ints:
        """How many rules each message matches."""
        first, last = self._ranges(messages)
        return last - first

    def expected(self, messages: Triples) -> Expected:
        """Return matches and sum over all messages."""
        first, last = self._ranges(messages)
        return Expected(int((last - first).sum()), int((self._sums[last] - self._sums[first]).sum()))

    def _ranges(self, messages: Triples) -> tuple[Ints, Ints]:
        lowest = (messages.type * COLORS + messages.color) * WEIGHTS
        return np.searchsorted(self._keys, lowest), np.searchsorted(self._keys, lowest + messages.weight)
