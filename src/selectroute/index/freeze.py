"""The mutable index to a snapshot of one segment, its access keys planned from the final statistics."""

from __future__ import annotations

import pyarrow as pa

from selectroute.clauses.access import equalities
from selectroute.index.collector import paused_collector
from selectroute.index.entries import Writer
from selectroute.index.index import Index
from selectroute.index.plan import MAX_PAIRS, Plan
from selectroute.index.snapshot import Snapshot
from selectroute.selector.dialect import dialect


def freeze(index: Index, revision: int | None = None) -> Snapshot:
    """Flatten an index. Ordinals follow its order. O(total size of the selectors)."""
    with paused_collector():
        return _freeze(index, revision)


def _freeze(index: Index, revision: int | None) -> Snapshot:
    writer = _write(index, Plan(index.statistics, limit=None))
    if len(writer.pairs) > MAX_PAIRS:
        # Rare: so many shapes of selectors that the pairs of the fewest must share those of the others.
        writer = _write(index, Plan.of_commonest(index.statistics, writer.pairs))
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
    return Snapshot((writer.segment(len(subscriptions)),), ids, revision)


def _write(index: Index, plan: Plan) -> Writer:
    writer = Writer(plan)
    for ordinal, subscription in enumerate(index):
        writer.byte_strings = dialect(subscription.dialect).byte_strings
        entries = []
        for clause in subscription.clauses:
            found = equalities(clause)
            if found.satisfiable:
                entries.append((clause, found))
        for clause, found in entries:
            writer.add(ordinal, clause, found, len(entries))
    return writer
