"""Changes to a snapshot: a small delta segment, and tombstones for removed subscriptions.

::

    ordinals     0 … 999,999      1,000,000 … 1,000,009     1,000,010
    segments    ┌───────────────┬─────────────────────────┬────────────────────────┐
                │ base          │ delta, removed 17, 4711 │ delta, removed 1,000,003│
                └───────────────┴─────────────────────────┴────────────────────────┘

Existing segments are not touched. A replaced or removed subscription leaves a dead ordinal: otherwise the
ordinals of the base would shift, and each change would rewrite the base.

invariant: an ordinal is removed at most once, by a later segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.arrays.tables import Array
from selectroute.index.build.build import built, freeze, paused_collector
from selectroute.index.errors import BuildError, DuplicateSubscriptionError, UnknownSubscriptionError
from selectroute.index.subscription import KEEP, Keep, Subscription, prepare
from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.selector.selector_type import EXTENDED


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


Change = Add | Replace | Remove

_MANY = 256
"""Minimum number of changes whose selectors are read by their shapes."""


def changed(
    snapshot: SnapshotState,
    changes: Iterable[Change],
    revision: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> SnapshotState:
    """Apply changes: see `Snapshot.changed`."""
    wanted = "changes in a list: [sr.Add(id, selector), sr.Replace(id, selector), sr.Remove(id)]"
    check_iterable(changes, "changes", wanted)
    changes = list(changes)
    for change in changes:
        check_argument(change, (Add, Replace, Remove), "a change", wanted)
    check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
    ids = [change.id for change in changes]
    ordinals = _ordinals(snapshot, ids)
    removed: list[int] = []
    if len(changes) >= _MANY and len(set(ids)) == len(ids) and not any(map(_is_parsed, changes)):
        delta = _built(snapshot, changes, ordinals, removed, limits)
    else:
        delta = _indexed(snapshot, changes, ordinals, removed, limits)
    [segment] = delta.segments
    return with_delta(snapshot, segment, delta.subscriptions, removed, revision)


def _indexed(
    snapshot: SnapshotState,
    changes: list[Change],
    ordinals: dict[str, int],
    removed: list[int],
    limits: Limits,
) -> SnapshotState:
    """Return a delta, made one change after the other; append the removed ordinals to `removed`."""
    prepared: dict[str, Subscription] = {}
    destinations: dict[str, str | None] = {}
    with paused_collector():
        for change in changes:
            before, known = ordinals.pop(change.id, None), prepared.get(change.id)
            _check(change, before is not None or known is not None)
            if before is not None:
                removed.append(before)
            if isinstance(change, Remove):
                prepared.pop(change.id, None)
                continue
            earlier = destinations.get(change.id)
            destinations[change.id] = _kept(snapshot, "destination", change.destination, before, earlier)
            topic = _kept(snapshot, "topic", change.topic, before, known.topic if known else None)
            prepared[change.id] = prepare(
                change.id, change.selector, topic, change.dialect, change.extended, limits
            )
        frozen = freeze(prepared.values())
    rows = frozen.subscriptions
    texts = pa.array([destinations[id] for id in rows["id"].to_pylist()], pa.string())
    place = rows.schema.get_field_index("destination")
    return replace(frozen, subscriptions=rows.set_column(place, "destination", texts))


def _built(
    snapshot: SnapshotState,
    changes: list[Change],
    ordinals: dict[str, int],
    removed: list[int],
    limits: Limits,
) -> SnapshotState:
    """Return the same as `_indexed`, for many changes of distinct subscriptions."""
    rows: list[tuple[str | None, ...]] = []
    for change in changes:
        before = ordinals.get(change.id)
        _check(change, before is not None)
        if before is not None:
            removed.append(before)
        if not isinstance(change, Remove):
            text, seltype = str(change.selector or ""), EXTENDED if change.extended else None
            topic = _kept(snapshot, "topic", change.topic, before, None)
            destination = _kept(snapshot, "destination", change.destination, before, None)
            rows.append((change.id, text, topic, change.dialect, seltype, destination))
    names = ("id", "selector", "topic", "dialect", "seltype", "destination")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    try:
        table = pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})
        return built(table, limits=limits)
    except BuildError as error:
        raise error.cause from None


def _check(change: Change, exists: bool) -> None:
    """Raise an error for a new subscription that exists, or a change of one that does not."""
    if isinstance(change, Add):
        if exists:
            raise DuplicateSubscriptionError(change.id)
    elif not exists:
        raise UnknownSubscriptionError(change.id)


def _is_parsed(change: Change) -> bool:
    """Return whether the selector of a change is already parsed, possibly within other limits."""
    return not isinstance(change, Remove) and isinstance(change.selector, Selector)


def _kept(
    snapshot: SnapshotState, column: str, given: str | Keep | None, before: int | None, earlier: str | None
) -> str | None:
    """Return the topic filter or destination after a change; a kept one is that of the snapshot, or of an
    earlier change.
    """
    if not isinstance(given, Keep):
        return given
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


def _ordinals(snapshot: SnapshotState, ids: list[str]) -> dict[str, int]:
    """Return the ordinals of the ids that exist."""
    found = snapshot.find(ids).tolist()
    return {id: ordinal for id, ordinal in zip(ids, found, strict=True) if ordinal >= 0}
