"""Distinct selectors of workload D, each matched once, and their subscribers, taken from a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

import selectroute as sr
from bench.engine import Engine
from bench.workloads.alike import DISTINCT
from bench.workloads.oracle import Expected


class ExpandedEngine(Engine):
    """What one would write around a matcher that does not share: the thousand selectors are matched by the
    kernel, and the subscribers of those that match are taken from a table of them, a row each, by NumPy.
    """

    name = "expanded"

    def __init__(
        self,
        texts: Callable[[int], Iterable[str]],
        rules: int,
        batches: Sequence[pa.RecordBatch],
        checked: int,
    ) -> None:
        self.messages = sum(batch.num_rows for batch in batches)
        self._snapshot = sr.build_snapshot((f"s{n}", text) for n, text in enumerate(texts(DISTINCT)))
        self._subscribers = np.arange(rules, dtype=np.int32).reshape(-1, DISTINCT).T.copy()
        self._batches = batches
        self._checked = batches[0].slice(0, checked)

    def judge(self) -> Expected:
        """See `Engine`."""
        found = self._matched(self._checked)
        return Expected(len(found), int(found.sum(dtype=np.int64)))

    def run(self) -> int:
        """See `Engine`."""
        return sum(len(self._matched(batch)) for batch in self._batches)

    def _matched(self, batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Return the subscribers of each message, one after another."""
        return self._subscribers[self._snapshot.match(batch).ordinals].reshape(-1)
