"""Freezing of a mutable index to a snapshot of one segment, with access keys planned from all clauses."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from selectroute.arrays.state import SnapshotState
from selectroute.index.build.bulk_filing import file_groups
from selectroute.index.build.collector import paused_collector
from selectroute.index.subscription import Subscription


def freeze(subscriptions: Iterable[Subscription], revision: int | None = None) -> SnapshotState:
    """Return the snapshot of an index; ordinals are in its order. O(total size of the selectors)."""
    with paused_collector():
        return _freeze(list(subscriptions), revision)


def _freeze(subscriptions: list[Subscription], revision: int | None) -> SnapshotState:
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
    writer = file_groups((), enumerate(subscriptions))
    return SnapshotState((writer.segment(len(subscriptions)),), ids, revision)
