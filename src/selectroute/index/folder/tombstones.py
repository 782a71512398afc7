"""Invariants of tombstones: the ordinals of earlier segments that a delta removes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from selectroute.arrays.state import SnapshotState


def misplaced_tombstones(snapshot: SnapshotState) -> Iterator[str]:
    """Yield a sentence for each broken invariant that keeps readers inside the array of dead ordinals.

    Checked when a snapshot is opened. O(tombstones).
    """
    removed = [segment.removed for segment in snapshot.segments]
    if not all(array.dtype == np.int32 for array in removed):
        yield "tombstones are int32"
    for array, first in zip(removed, snapshot.firsts.tolist(), strict=False):
        if len(array) and not 0 <= array.min() <= array.max() < first:
            yield "a segment removes ordinals before its own"


def broken_tombstones(snapshot: SnapshotState) -> Iterator[str]:
    """Yield a sentence for each broken invariant. O(ordinals)."""
    misplaced = list(misplaced_tombstones(snapshot))
    yield from misplaced
    if misplaced:
        return
    removed = [segment.removed for segment in snapshot.segments]
    for array in removed:
        if not np.all(np.diff(array) > 0):
            yield "tombstones ascend"
    every = np.concatenate(removed)
    if len(np.unique(every)) != len(every):
        yield "an ordinal is removed once"
    live = np.ones(snapshot.firsts[-1], np.bool_) if snapshot.dead is None else ~snapshot.dead
    ids = snapshot.ids.to_arrow().filter(pa.array(live))
    if len(ids.unique()) != len(ids):
        yield "an id belongs to one subscription"
