"""Brute force in NumPy: every selector over the columns of a batch, one selector after another.

The floor below which no index may fall. It is brute force as one would write it: strings become codes once a
batch, the parts of an AND are judged for the rows that are left, and the rows of every selector are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bench.engine import Engine
from bench.workloads.conditions import Columns, Condition, Rows, matching
from bench.workloads.oracle import Expected


class BruteEngine(Engine):
    """See `bench.engine.Engine`."""

    name = "numpy"

    def __init__(
        self, conditions: Sequence[Condition], batches: Sequence[pa.RecordBatch], checked: int
    ) -> None:
        self.messages = sum(batch.num_rows for batch in batches)
        self._conditions = conditions
        self._batches = batches
        self._checked = batches[0].slice(0, checked)

    def judge(self) -> Expected:
        """See `bench.engine.Engine`."""
        return expected(self._conditions, self._checked)

    def run(self) -> int:
        """See `bench.engine.Engine`."""
        return sum(len(rows) for batch in self._batches for rows in _match(self._conditions, batch))


def expected(conditions: Sequence[Condition], batch: pa.RecordBatch) -> Expected:
    """Count the matches of a batch, and sum the numbers of the matching rules."""
    counts = [len(rows) for rows in _match(conditions, batch)]
    return Expected(sum(counts), sum(rule * count for rule, count in enumerate(counts)))


def _match(conditions: Sequence[Condition], batch: pa.RecordBatch) -> list[Rows]:
    columns = Columns(batch)
    return [matching(condition, columns) for condition in conditions]
