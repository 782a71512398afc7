"""Contents of a snapshot, for ``index stats``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.selector.fields import identifier_of


@dataclass(frozen=True, slots=True)
class AccessTuple:
    """Tuple of attributes under which clauses are filed; the scan list has none. Sums over the segments: a
    tuple is looked up in each segment that has it. A tuple of three attributes or more divides hot keys of
    the tuple without the last, and is looked up beneath them.
    """

    attributes: tuple[str, ...]
    keys: int
    entries: int
    largest: int
    """Entries under the most crowded key."""


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """Base or delta: its ordinals, and how many of them are dead."""

    rows: int
    dead: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotStatistics:
    """Sizes of a snapshot, and the clauses on the scan list by their reason. Entries, keys, programs and
    clauses include those of dead ordinals until the next merge.
    """

    revision: int | None
    subscriptions: int
    entries: int
    subscriptions_per_entry: float
    """Above 1 if subscriptions with the same selector and topic filter share their entries."""
    bytes: int
    bytes_per_subscription: float
    programs: int
    reads: tuple[str, ...]
    tuples: tuple[AccessTuple, ...]
    scanned: dict[str, int]
    segments: tuple[SegmentStatistics, ...]


def statistics(snapshot: SnapshotState) -> SnapshotStatistics:
    """Return the statistics of a snapshot. O(leaves)."""
    tuples: dict[tuple[str, ...], AccessTuple] = {}
    for segment in snapshot.segments:
        for path in _tuples(segment):
            before = tuples.get(path.attributes, AccessTuple(path.attributes, 0, 0, 0))
            tuples[path.attributes] = AccessTuple(
                attributes=path.attributes,
                keys=before.keys + path.keys,
                entries=before.entries + path.entries,
                largest=max(before.largest, path.largest),
            )
    entries = sum(len(segment.tables.entry_bound) for segment in snapshot.segments)
    places = sum(len(segment.tables.entry_ordinal) for segment in snapshot.segments)
    return SnapshotStatistics(
        revision=snapshot.revision,
        subscriptions=len(snapshot),
        entries=entries,
        subscriptions_per_entry=places / entries if entries else 1.0,
        bytes=snapshot.nbytes,
        bytes_per_subscription=snapshot.nbytes / len(snapshot) if len(snapshot) else 0.0,
        programs=sum(len(segment.tables.step_first) - 1 for segment in snapshot.segments),
        reads=snapshot.reads,
        tuples=tuple(sorted(tuples.values(), key=lambda entry: -entry.entries)),
        scanned=dict(sorted(snapshot.scanned.items(), key=lambda item: -item[1])),
        segments=tuple(
            SegmentStatistics(segment.rows, dead, segment.nbytes)
            for segment, dead in zip(snapshot.segments, snapshot.deaths, strict=True)
        ),
    )


def _tuples(segment: Segment) -> Iterator[AccessTuple]:
    tables = segment.tables
    # Entries of each leaf: the entries before the group after its last, minus those before its first.
    sizes = np.diff(tables.entry_first[tables.group_first])
    names = [identifier_of(attribute.name) for attribute in segment.attributes]
    yield AccessTuple((), 0, int(sizes[0]), int(sizes[0]))
    divided = sizes[tables.tuple_leaf[-1] :]
    paths: list[tuple[str, ...]] = []
    for number, attributes in enumerate(tables.tuple_attributes.tolist()):
        leaves = sizes[tables.tuple_leaf[number] : tables.tuple_leaf[number + 1]]
        leaves = np.append(leaves, divided[tables.divided_tuple == number])
        above = paths[tables.tuple_above[number]] if tables.tuple_above[number] >= 0 else ()
        paths.append((*above, *(names[attribute] for attribute in attributes if attribute >= 0)))
        yield AccessTuple(
            attributes=paths[number],
            keys=len(leaves),
            entries=int(leaves.sum()),
            largest=int(leaves.max(initial=0)),
        )
