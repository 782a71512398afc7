"""Invariants of tombstones: the ordinals of earlier segments that a delta removes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from selectroute.arrays.state import SnapshotState
from selectroute.index.errors import require


def check_tombstones(snapshot: SnapshotState) -> None:
    """Check what keeps readers inside the array of dead ordinals, when a snapshot is opened. O(tombstones).

    Raises `InvariantError`.
    """
    removed = [segment.removed for segment in snapshot.segments]
    require(all(array.dtype == np.int32 for array in removed), "tombstones are int32")
    for array, first in zip(removed, snapshot.firsts.tolist(), strict=False):
        placed = not len(array) or 0 <= array.min() <= array.max() < first
        require(placed, "a segment removes ordinals before its own")


def verify_tombstones(snapshot: SnapshotState) -> None:
    """Check all invariants. Raises `InvariantError`. O(ordinals)."""
    check_tombstones(snapshot)
    removed = [segment.removed for segment in snapshot.segments]
    for array in removed:
        require(np.all(np.diff(array) > 0), "tombstones ascend")
    every = np.concatenate(removed)
    require(len(np.unique(every)) == len(every), "an ordinal is removed once")
    live = np.ones(snapshot.firsts[-1], np.bool_) if snapshot.dead is None else ~snapshot.dead
    ids = snapshot.ids.to_arrow().filter(pa.array(live))
    require(len(ids.unique()) == len(ids), "an id belongs to one subscription")
