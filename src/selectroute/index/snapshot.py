"""Snapshots as users have them: built, opened, matched, changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from selectroute.arrays.state import SnapshotState
from selectroute.index.build.build import Row, build
from selectroute.index.change.delta import Change, changed
from selectroute.index.folder.format import open_snapshot
from selectroute.selector.arguments import check_argument
from selectroute.selector.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from selectroute.match.match import Matches


class Snapshot(SnapshotState):
    """All subscriptions of one revision, flat: arrays that executors map into memory, nothing to unpickle.

    Made by ``Index.freeze()`` and ``build_snapshot``; ``publish`` writes it to a folder and ``Snapshot.open``
    maps it from there. ``subscriptions`` has the columns id, destination, topic, selector, dialect, seltype,
    one row for each ordinal. Ordinals run through the segments, one after the other: the base, then the
    deltas of `changed`, which share all segments before them.

    ``len()`` counts the subscriptions. Ordinals may be more: one that was removed or replaced since leaves a
    hole, because the ordinals behind it stay as they are. It matches nothing, and `dead` says which they are.
    """

    @classmethod
    def of(cls, state: SnapshotState) -> Snapshot:
        """Return the snapshot of a state, with what was computed of it already."""
        if isinstance(state, cls):
            return state
        made = cls(state.segments, state.subscriptions, state.revision, state.digest, state.folder)
        made.__dict__.update(state.__dict__)
        return made

    @classmethod
    def open(cls, folder: str | PathLike[str], revision: int | None = None) -> Snapshot:
        """Map a published snapshot: the newest one, or that of a revision.

        Checks the format version and every SHA-256. Raises `SnapshotError`, which says what is missing or
        damaged.
        """
        check_argument(folder, (str, PathLike), "folder", "the path of a snapshot folder")
        check_argument(revision, (int, NoneType), "revision", "the number of a published revision, or None")
        return cls.of(open_snapshot(Path(folder), revision))

    def match(
        self, messages: pa.RecordBatch | pa.Table, missing: Literal["warn", "error", "ignore"] = "warn"
    ) -> Matches:
        """Return the subscriptions of each message: ``offsets`` int64[rows + 1], ``ordinals`` int32[total].

        A column named as an identifier is that identifier, its Arrow type the property's type, null is NULL;
        an identifier without a column is NULL, other columns are not read. ``missing`` says what becomes of
        names in `reads` that have no column: ``warn`` logs them, once for a snapshot, to the logger
        ``selectroute``; ``error`` raises `MissingColumnError`; ``ignore`` is for messages most of whose
        properties are not there.

        A column whose type no property has is of an unlike type to the subscriptions that read it, and
        nothing to others. Raises `ColumnTypeError` for several columns of one name; TypeError for messages
        that are no Arrow batch or table.
        """
        from selectroute.match.match import match  # loads numba, which opening and building never need

        return match(self, messages, missing)

    def changed(
        self, changes: Iterable[Change], revision: int | None = None, *, limits: Limits = DEFAULT_LIMITS
    ) -> Snapshot:
        """Return a snapshot with these changes, in their order: `Add`, `Replace` and `Remove`, whose
        selectors are within the limits, or a `Selector` within its own.

        It shares all arrays of this one, and has a delta beside them: O(size of the changed selectors); the
        first change of a segment also hashes its ids. Raises what ``Index.add``, ``replace`` and ``remove``
        raise; this snapshot stays as it is in any case.
        """
        return Snapshot.of(changed(self, changes, revision, limits))


def build_snapshot(
    subscriptions: pa.Table | Iterable[Row],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Snapshot:
    """Return a snapshot of many subscriptions, in their order: what ``Index.add`` and ``freeze`` make, much
    faster.

    ``subscriptions`` are (id, selector) or (id, selector, topic), where a selector is a text in the default
    dialect or a `Selector` in its own; or dicts, or a table, with ``id`` and any of ``selector``, ``topic``,
    ``dialect``, ``seltype`` (EXTENDED, or left to the selector) and ``destination``, all strings.
    ``progress`` is called with the number of subscriptions read so far; ``limits`` are those of a selector's
    text, and a `Selector` has met its own. O(size of the selectors + subscriptions × log subscriptions).

    Raises `BuildError` for the subscriptions that ``Index.add`` refuses, whose cause is that of the
    first, or to whose destination nothing can be delivered; `RegistrationError` for a column or field that
    subscriptions do not have; TypeError or ValueError for rows of any other form.

    >>> snapshot = build_snapshot([("s1", "JMSType = 'car'", None), ("s2", "weight > 2500", "cars/+")])
    >>> len(snapshot)
    2
    """
    return Snapshot.of(build(subscriptions, revision, progress, limits=limits))
