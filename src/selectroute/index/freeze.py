"""The mutable index to a snapshot of one segment, its access keys planned from the final statistics."""

from __future__ import annotations

import pyarrow as pa

from selectroute.index.collector import paused_collector
from selectroute.index.filing import file_all
from selectroute.index.index import Index
from selectroute.index.snapshot import Snapshot


def freeze(index: Index, revision: int | None = None) -> Snapshot:
    """Flatten an index. Ordinals follow its order. O(total size of the selectors)."""
    with paused_collector():
        return _freeze(index, revision)


def _freeze(index: Index, revision: int | None) -> Snapshot:
    subscriptions = list(index)
    ids = pa.table(
        {
            "id": pa.array([s.id for s in subscriptions], pa.string()),
            "destination": pa.nulls(len(subscriptions), pa.string()),
            "topic": pa.array([s.topic for s in subscriptions], pa.string()),
            "selector": pa.array([s.selector for s in subscriptions], pa.string()),
            "dialect": pa.array([s.dialect for s in subscriptions], pa.string()),
            "seltype": pa.array([s.seltype for s in subscriptions], pa.string()),
        }
    )
    writer = file_all((), enumerate(subscriptions))
    return Snapshot((writer.segment(len(subscriptions)),), ids, revision)
