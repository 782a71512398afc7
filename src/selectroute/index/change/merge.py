"""Merging of segments: fewer lookups for each message, and no tombstones.

Deltas make changes cheap and matching more expensive: each message is looked up in every segment, and each
match is checked against the tombstones. `merged` rewrites the newest segments as one, with a new plan;
`merge_due` chooses how many of them.

invariant: after a merge that was due, each segment has at least `RATIO` times as many rows and tombstones as
all later segments together. So there are O(log n) segments, and a subscription is only rewritten into a
segment at least half as large again as its old one: O(log n) times in its life, for any order of changes. If
there would be more than `MOST_SEGMENTS`, the last ones are rewritten earlier.

Segments with `FULL_ROWS` and more, and those before them, are left alone and don't count: merging does not
take more memory in a larger snapshot. They are rewritten only when a quarter of all ordinals is dead, piece
by piece.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.index.build.build import SEGMENT_ROWS, rebuilt
from selectroute.index.change.delta import Delta, with_delta
from selectroute.index.errors import BuildError
from selectroute.index.folder.format import open_snapshot, write_segment
from selectroute.storage import Location

RATIO = 2
MOST_SEGMENTS = 8
DEAD_SHARE = 4
"""At most one ordinal in this number is dead after a merge that was due."""

FULL_ROWS = SEGMENT_ROWS // 2

Part = tuple[tuple[Segment, pa.Table], ...]
"""Segments and their subscriptions; the first segment has the tombstones for earlier ones."""


def merge_due(snapshot: SnapshotState, sealed: int = 0, delta: Delta | None = None) -> int | None:
    """Return the first of the segments that are due to be merged, None if none are. O(segments).

    ``sealed``: the number of segments to leave alone, because they are being merged already. With a
    ``delta``, the answer is that for the snapshot after its changes.
    """
    rows = [segment.rows for segment in snapshot.segments]
    removed = [len(segment.removed) for segment in snapshot.segments]
    if delta is not None:
        rows.append(len(delta.rows))
        removed.append(len(delta.removed))
    if not sealed and sum(removed) * DEAD_SHARE > sum(rows):
        return 0
    full = [number for number, count in enumerate(rows) if count >= FULL_ROWS]
    sealed = max(sealed, full[-1] + 1 if full else 0)
    due: int | None = None
    newer = 0
    for number in reversed(range(sealed, len(rows))):
        size = rows[number] + removed[number]
        if newer and size < RATIO * newer:
            due = number
        newer += size
    if len(rows) - sealed > MOST_SEGMENTS:
        most = sealed + MOST_SEGMENTS - 1
        due = most if due is None else min(due, most)
    return due


def merge_size(snapshot: SnapshotState, first: int, delta: Delta | None = None) -> int:
    """Return the number of subscriptions that a merge from this segment on rewrites, with a ``delta`` after
    its changes.
    """
    size = int(snapshot.firsts[-1] - snapshot.firsts[first]) - sum(snapshot.deaths[first:])
    if delta is not None:
        size += len(delta.rows) - int(np.count_nonzero(delta.removed >= snapshot.firsts[first]))
    return size


def merged_with(delta: Delta, first: int) -> SnapshotState:
    """Return the snapshot after changes, with its segments from ``first`` on and the changes as one segment:
    the same as to apply them and then merge, but built once. For a plain delta, and without limits. Raises
    the errors of ``Snapshot.changed``.
    """
    before = delta.snapshot
    start = int(before.firsts[first])
    is_left = np.ones(int(before.firsts[-1]) - start, np.bool_)
    if before.dead is not None:
        is_left &= ~before.dead[start:]
    is_left[delta.removed[delta.removed >= start] - start] = False
    kept = before.subscriptions.slice(start).filter(pa.array(is_left))
    try:
        made = rebuilt(pa.concat_tables([kept, delta.rows.cast(kept.schema)]))
    except BuildError as error:
        raise error.cause from None
    removed = np.concatenate([delta.removed, *(segment.removed for segment in before.segments[first:])])
    [segment] = made.segments
    part = (replace(segment, removed=np.sort(removed[removed < start])), made.subscriptions)
    return merged(before, first, (part,))


def merged_part(snapshot: SnapshotState, first: int) -> Part:
    """Return the segments from ``first`` on as one segment, or as several if they have more than
    `SEGMENT_ROWS`, with their tombstones for earlier segments. O(size of their selectors).
    """
    return tuple(_segments(snapshot, first))


def _segments(snapshot: SnapshotState, first: int) -> Iterator[tuple[Segment, pa.Table]]:
    """Yield the segments of `merged_part`, each when it is built."""
    start, end = int(snapshot.firsts[first]), int(snapshot.firsts[-1])
    removed = np.concatenate([segment.removed for segment in snapshot.segments[first:]])
    tombstones = np.sort(removed[removed < start])
    for begin in range(start, max(end, start + 1), SEGMENT_ROWS):
        stop = min(begin + SEGMENT_ROWS, end)
        rows = snapshot.subscriptions.slice(begin, stop - begin)
        if snapshot.dead is not None:
            rows = rows.filter(pa.array(~snapshot.dead[begin:stop]))
        made = rebuilt(rows)
        [segment] = made.segments
        yield replace(segment, removed=tombstones), made.subscriptions
        tombstones = tombstones[:0]


def merged(snapshot: SnapshotState, first: int, part: Part, revision: int | None = None) -> SnapshotState:
    """Return the snapshot with the segments from ``first`` on replaced by their `merged_part`."""
    if not first:
        segments, tables = zip(*part, strict=True)
        return SnapshotState(segments, pa.concat_tables(tables), revision)
    before = snapshot.subscriptions.slice(0, snapshot.firsts[first])
    result = SnapshotState(snapshot.segments[:first], before, revision)
    for segment, rows in part:
        result = with_delta(result, segment, rows, segment.removed, revision)
    return result


def rolled_in(then: SnapshotState, first: int, part: Part, now: SnapshotState) -> SnapshotState:
    """Return `now` with the segments of `then` from ``first`` on replaced by their `merged_part`.

    ``now`` came from ``then`` by changes only, so it has the segments of ``then`` and some later ones. The
    later ones keep their arrays; only the ordinals of their tombstones change. O(their size).
    """
    count = len(then.segments)
    assert now.segments[:count] == then.segments, "the merged segments still exist"
    result = merged(then, first, part)
    start, end = int(then.firsts[first]), int(then.firsts[-1])
    shift = int(result.firsts[-1]) - end
    dead = np.zeros(0, np.int64) if then.dead is None else np.flatnonzero(then.dead[start:]) + start
    for number in range(count, len(now.segments)):
        segment = now.segments[number]
        removed = segment.removed.astype(np.int64)
        # A row of the merged part moves down by the number of dead rows before it.
        within = (removed >= start) & (removed < end)
        moved = np.where(within, removed - np.searchsorted(dead, removed), removed)
        moved = np.where(removed >= end, removed + shift, moved)
        rows = now.subscriptions.slice(now.firsts[number], segment.rows)
        result = with_delta(result, segment, rows, moved)
    return result


def main(folder: str, revision: str, first: str) -> None:
    """Merge in a separate process: write the merged part to the folder and its entries to standard output."""
    snapshot = open_snapshot(folder, int(revision))
    kind = "delta" if int(first) else "base"
    # Written one by one: they need not fit memory together.
    entries = [
        write_segment(segment, rows, Location.of(folder), int(revision), kind)
        for segment, rows in _segments(snapshot, int(first))
    ]
    json.dump(entries, sys.stdout)
