"""Changes to a snapshot: small delta segments, tombstones of removed subscriptions, merging of segments.

::

    ordinals     0 … 999,999      1,000,000 … 1,000,009     1,000,010
    segments    ┌───────────────┬─────────────────────────┬────────────────────────┐
                │ base          │ delta, removed 17, 4711 │ delta, removed 1,000,003│
                └───────────────┴─────────────────────────┴────────────────────────┘

Existing segments are not touched. A replaced or removed subscription leaves a dead ordinal: otherwise the
ordinals of the base would shift, and each change would rewrite the base.

invariant: an ordinal is removed at most once, by a later segment.

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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.arrays.tables import Array
from selectroute.index.compile.build import SEGMENT_ROWS, built, freeze, paused_collector, rebuilt
from selectroute.index.errors import BuildError, DuplicateSubscriptionError, UnknownSubscriptionError
from selectroute.index.snapshot_files import open_snapshot, write_segment
from selectroute.index.specification import COLUMNS, KEEP, IndexedSubscription, Keep, prepare
from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.storage import Location


@dataclass(frozen=True, slots=True)
class Add:
    """New subscription, as in `Index.add`."""

    id: str
    selector: Selector | str | None = None
    topic: str | None = None
    dialect: str = "jms"
    extended: bool = False
    destination: str | None = None
    """As text, see ``index.destination``."""


@dataclass(frozen=True, slots=True)
class Replace:
    """New selector of a subscription, as in `Index.replace`; without a topic or destination, the subscription
    keeps its own.
    """

    id: str
    selector: Selector | str | None
    topic: str | Keep | None = KEEP
    dialect: str = "jms"
    extended: bool = False
    destination: str | Keep | None = KEEP


@dataclass(frozen=True, slots=True)
class Remove:
    """End of a subscription."""

    id: str


@dataclass(frozen=True, slots=True)
class Put(Add):
    """Subscription as it is after the change, whether it is new or replaces one."""


@dataclass(frozen=True, slots=True)
class Drop(Remove):
    """End of a subscription, if there is one."""


Change = Add | Replace | Remove

_MANY = 64
"""Minimum number of changes whose selectors are read by their shapes (measured: fewer are faster alone)."""


class Delta:
    """Changes of a snapshot, looked up in it and not built yet.

    Attributes:
        snapshot: the snapshot before the changes.
        is_plain: each subscription is changed once, and all selectors are texts, so that `rows` has them.

    Raises TypeError for something else than changes.
    """

    def __init__(
        self, snapshot: SnapshotState, changes: Iterable[Change], limits: Limits = DEFAULT_LIMITS
    ) -> None:
        wanted = "changes in a list: [sr.Add(id, selector), sr.Replace(id, selector), sr.Remove(id)]"
        check_iterable(changes, "changes", wanted)
        self.snapshot = snapshot
        self._changes = list(changes)
        for change in self._changes:
            check_argument(change, (Add, Replace, Remove), "a change", wanted)
        check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
        self.limits = limits
        ids = [change.id for change in self._changes]
        ordinals = snapshot.find(ids).tolist()
        self._ordinals = {id: ordinal for id, ordinal in zip(ids, ordinals, strict=True) if ordinal >= 0}
        self.is_plain = len(set(ids)) == len(ids) and not any(map(_is_parsed, self._changes))

    @cached_property
    def rows(self) -> pa.Table:
        """Subscriptions as they are after the changes, in the columns of `Snapshot.subscriptions` with the
        seltypes of the changes; only if `is_plain`. Raises the errors of ``Snapshot.changed``, but for those
        of selectors.
        """
        rows: list[tuple[str | None, ...]] = []
        for change in self._changes:
            before = self._ordinals.get(change.id)
            _check(change, before is not None)
            if not isinstance(change, Remove):
                text, seltype = str(change.selector or ""), EXTENDED if change.extended else None
                topic = _kept(self.snapshot, "topic", change.topic, before, None)
                destination = _kept(self.snapshot, "destination", change.destination, before, None)
                rows.append((change.id, destination, topic, text, change.dialect, seltype))
        columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
        return pa.table({n: pa.array(c, pa.string()) for n, c in zip(COLUMNS, columns, strict=True)})

    @cached_property
    def removed(self) -> Array:
        """Ordinals of the subscriptions that are replaced or removed, int32, ascending."""
        return np.sort(np.array(list(self._ordinals.values()), np.int32))

    def applied(self, revision: int | None = None) -> SnapshotState:
        """Return the snapshot after the changes: see `Snapshot.changed`."""
        delta = self._built() if self.is_plain and len(self._changes) >= _MANY else self._indexed()
        [segment] = delta.segments
        return with_delta(self.snapshot, segment, delta.subscriptions, self.removed, revision)

    def _built(self) -> SnapshotState:
        try:
            return built(self.rows, limits=self.limits)
        except BuildError as error:
            raise error.cause from None

    def _indexed(self) -> SnapshotState:
        """Return the snapshot of the changed subscriptions, applied one change after the other."""
        prepared: dict[str, IndexedSubscription] = {}
        destinations: dict[str, str | None] = {}
        ordinals = dict(self._ordinals)
        with paused_collector():
            for change in self._changes:
                before, known = ordinals.pop(change.id, None), prepared.get(change.id)
                _check(change, before is not None or known is not None)
                if isinstance(change, Remove):
                    prepared.pop(change.id, None)
                    continue
                earlier = destinations.get(change.id)
                destinations[change.id] = _kept(
                    self.snapshot, "destination", change.destination, before, earlier
                )
                topic = _kept(self.snapshot, "topic", change.topic, before, known.topic if known else None)
                prepared[change.id] = prepare(
                    change.id, change.selector, topic, change.dialect, change.extended, self.limits
                )
            frozen = freeze(prepared.values())
        rows = frozen.subscriptions
        texts = pa.array([destinations[id] for id in prepared], pa.string())
        place = rows.schema.get_field_index("destination")
        return replace(frozen, subscriptions=rows.set_column(place, "destination", texts))


def _check(change: Change, exists: bool) -> None:
    """Raise an error for a new subscription that exists, or a change of one that does not."""
    if isinstance(change, Put | Drop):
        return
    if isinstance(change, Add):
        if exists:
            raise DuplicateSubscriptionError(change.id)
    elif not exists:
        raise UnknownSubscriptionError(change.id)


def _is_parsed(change: Change) -> bool:
    """Return whether the selector of a change is already parsed, possibly within other limits."""
    return not isinstance(change, Remove) and isinstance(change.selector, Selector)


def _kept(
    snapshot: SnapshotState, column: str, text: str | Keep | None, before: int | None, earlier: str | None
) -> str | None:
    """Return the topic filter or destination after a change; a kept one is that of the snapshot, or of an
    earlier change.
    """
    if not isinstance(text, Keep):
        return text
    return earlier if before is None else snapshot.subscriptions[column][before].as_py()


def with_delta(
    snapshot: SnapshotState,
    segment: Segment,
    rows: pa.Table,
    removed: Array | Sequence[int],
    revision: int | None = None,
) -> SnapshotState:
    """Return a snapshot with one more segment, which removes these ordinals; without it if it is empty."""
    tombstones = np.sort(np.array(removed, np.int32))
    if not segment.rows and not len(tombstones):
        return SnapshotState(snapshot.segments, snapshot.subscriptions, revision)
    subscriptions = pa.concat_tables([snapshot.subscriptions, rows.cast(snapshot.subscriptions.schema)])
    if not np.array_equal(segment.removed, tombstones):
        segment = replace(segment, removed=tombstones)
    return SnapshotState((*snapshot.segments, segment), subscriptions, revision)


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
