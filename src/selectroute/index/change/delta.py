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
from functools import cached_property

import numpy as np
import pyarrow as pa

from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.arrays.tables import Array
from selectroute.index.build.build import built, freeze, paused_collector
from selectroute.index.errors import BuildError, DuplicateSubscriptionError, UnknownSubscriptionError
from selectroute.index.subscription import COLUMNS, KEEP, Keep, Subscription, prepare
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
        found = snapshot.find(ids).tolist()
        self._ordinals = {id: ordinal for id, ordinal in zip(ids, found, strict=True) if ordinal >= 0}
        self.is_plain = len(set(ids)) == len(ids) and not any(map(_is_parsed, self._changes))

    @cached_property
    def rows(self) -> pa.Table:
        """Subscriptions as they are after the changes, in the columns of `Snapshot.subscriptions` with the
        given seltype; only if `is_plain`. Raises the errors of ``Snapshot.changed``, but for those of
        selectors.
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
        """Return the same as `_built`, made one change after the other."""
        prepared: dict[str, Subscription] = {}
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


def changed(
    snapshot: SnapshotState,
    changes: Iterable[Change],
    revision: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> SnapshotState:
    """Apply changes: see `Snapshot.changed`."""
    return Delta(snapshot, changes, limits).applied(revision)


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
