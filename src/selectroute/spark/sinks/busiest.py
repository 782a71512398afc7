"""Busiest subscriptions of a task or a batch: those with most deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUSIEST: Final = 100
"""Subscriptions that are named of a batch."""

OF_TASK: Final = 1_000
"""Subscriptions that a task names. If it delivers to more, the number of one that is not among the busiest of
each task is too small in the sum.
"""


class DeliveryCounts:
    """Numbers of deliveries of a task by subscription. No Python object is made for a delivery.

    Args:
        ids: the snapshot's column of ids.
    """

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._counts = np.zeros(len(ids), dtype=np.int64)

    def add(self, ordinals: npt.NDArray[np.int32]) -> None:
        """Count deliveries, one for each ordinal."""
        np.add.at(self._counts, ordinals, 1)

    def busiest(self, most: int = OF_TASK) -> dict[str, int]:
        """Return the numbers of the subscriptions with most deliveries, by id."""
        used = np.flatnonzero(self._counts)
        if len(used) > most:
            used = used[np.argpartition(self._counts[used], -most)[-most:]]
        return dict(zip(self._ids.take(pa.array(used)).to_pylist(), self._counts[used].tolist(), strict=True))


def busiest_of(tasks: Iterable[Mapping[str, int]], most: int = BUSIEST) -> dict[str, int]:
    """Return the subscriptions with most deliveries in all tasks of a batch, the busiest first."""
    total: Counter[str] = Counter()
    for of_task in tasks:
        total.update(of_task)
    return dict(nsmallest(most, total.items(), key=lambda one: (-one[1], one[0])))
