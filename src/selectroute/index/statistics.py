"""What a snapshot is made of, for ``index stats``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectroute.index.snapshot import Snapshot
from selectroute.selector.fields import identifier_of


@dataclass(frozen=True, slots=True)
class AccessTuple:
    """One tuple of attributes that clauses are filed under; the scan list has none."""

    attributes: tuple[str, ...]
    keys: int
    entries: int
    largest: int
    """Entries under the most crowded key."""


@dataclass(frozen=True, slots=True)
class SnapshotStatistics:
    """Sizes of a snapshot, and the clauses on the scan list by their reason."""

    revision: int | None
    subscriptions: int
    entries: int
    bytes: int
    bytes_per_subscription: float
    programs: int
    reads: tuple[str, ...]
    tuples: tuple[AccessTuple, ...]
    scanned: dict[str, int]


def statistics(snapshot: Snapshot) -> SnapshotStatistics:
    """Count what a snapshot holds. O(its leaves)."""
    [segment] = snapshot.segments
    tables = segment.tables
    # Entries of each leaf: the entries before the group after its last, minus those before its first.
    sizes = np.diff(tables.entry_first[tables.group_first])
    names = [identifier_of(attribute.name) for attribute in segment.attributes]
    tuples = [AccessTuple((), 0, int(sizes[0]), int(sizes[0]))]
    for number, attributes in enumerate(tables.tuple_attributes.tolist()):
        slots = tables.slot_leaf[tables.slot_first[number] : tables.slot_first[number + 1]]
        leaves = sizes[slots[slots >= 0]]
        tuples.append(
            AccessTuple(
                attributes=tuple(names[attribute] for attribute in attributes if attribute >= 0),
                keys=len(leaves),
                entries=int(leaves.sum()),
                largest=int(leaves.max(initial=0)),
            )
        )
    return SnapshotStatistics(
        revision=snapshot.revision,
        subscriptions=len(snapshot),
        entries=len(tables.entry_ordinal),
        bytes=snapshot.nbytes,
        bytes_per_subscription=snapshot.nbytes / len(snapshot) if len(snapshot) else 0.0,
        programs=len(tables.step_first) - 1,
        reads=snapshot.reads,
        tuples=tuple(sorted(tuples, key=lambda entry: -entry.entries)),
        scanned=dict(sorted(snapshot.scanned.items(), key=lambda item: -item[1])),
    )
