"""Snapshots of the public interface: build, open, match, change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from os import PathLike
from types import NoneType
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from selectroute.arrays.state import SnapshotState
from selectroute.index.changes import Change, Delta
from selectroute.index.compile.build import Row, build
from selectroute.index.snapshot_files import open_snapshot
from selectroute.selector.arguments import check_argument
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import Message
from selectroute.storage.location import Where

if TYPE_CHECKING:
    from selectroute.match.match import Matches
    from selectroute.match.single import MessageMatches


class Snapshot(SnapshotState):
    """Flat arrays of all subscriptions of one revision, which executors map into memory without unpickling.

    Made by ``Index.freeze()`` and ``build_snapshot``; ``publish`` writes it to a folder and ``Snapshot.open``
    maps it from there. ``subscriptions`` has the columns id, destination, topic, selector, dialect, seltype,
    one row for each ordinal. Ordinals run through the segments in order: the base, then the deltas of
    `changed`, which share all earlier segments.

    ``len()`` counts the subscriptions. There may be more ordinals: a removed or replaced subscription leaves
    a hole, because the ordinals after it do not change. A hole matches nothing; `dead` marks the holes.
    """

    def __dir__(self) -> list[str]:
        """Return what an interactive prompt completes: not what only the engine needs."""
        return [name for name in super().__dir__() if name not in _ENGINE]

    @classmethod
    def of(cls, state: SnapshotState) -> Snapshot:
        """Return the snapshot of a state, with the cached properties of the state."""
        if isinstance(state, cls):
            return state
        snapshot = cls(state.segments, state.subscriptions, state.revision, state.digest, state.folder)
        snapshot.__dict__.update(state.__dict__)
        return snapshot

    @classmethod
    def open(cls, folder: Where, revision: int | None = None) -> Snapshot:
        """Map a published snapshot: the newest one, or that of a revision.

        ``folder`` is a path or a URL (``s3://bucket/snapshots``). Files of remote storage are copied to a
        cache on this machine, each once, and mapped there. Checks the format version and every SHA-256.
        Raises `SnapshotError` if a file is missing or damaged.
        """
        check_argument(folder, (str, PathLike), "folder", "the path or URL of a snapshot folder")
        check_argument(revision, (int, NoneType), "revision", "the number of a published revision, or None")
        return cls.of(open_snapshot(folder, revision))

    def match(
        self,
        messages: pa.RecordBatch | pa.Table,
        missing: Literal["warn", "error", "ignore"] = "warn",
        unlike: Literal["warn", "error", "ignore"] = "warn",
    ) -> Matches:
        """Return the subscriptions of each message: ``offsets`` int64[rows + 1], ``ordinals`` int32[total].

        A column with the name of an identifier has the values of that identifier; the Arrow type gives the
        property's type, null is NULL. An identifier without a column is NULL, other columns are not read.
        ``missing`` is the action for names in `reads` without a column: ``warn`` logs them, once for a
        snapshot, to the logger ``selectroute``; ``error`` raises `MissingColumnError`; ``ignore`` is for
        messages that lack most properties.

        A column of a type that no property has, such as a timestamp, is unlike every type, and only affects
        the subscriptions that read it: ``NOT (at > 5)`` is true for all its values. ``unlike`` is the action
        for such columns: ``warn`` logs each once, ``error`` raises `ColumnTypeError`. Unless
        ``ignore``, a column that selectors compare with constants of another type is logged, too: strings
        with numbers, a float with 0.23, which is a double (0.23F is a float).

        Raises `ColumnTypeError` for several columns of one name; TypeError for messages that are not an Arrow
        batch or table.
        """
        from selectroute.match.match import match  # loads numba, which opening and building never need

        return match(self, messages, missing, unlike)

    def match_one(self, message: Message) -> MessageMatches:
        """Return the subscriptions of one message: ``ordinals``, int32, and ``ids()``.

        Several times faster than a batch of one. For several threads at once, each of which takes memory: at
        most 8 bytes a subscription. Raises TypeError for anything but a `Message`.

        >>> snapshot = build_snapshot([("heavy", "JMSType = 'car' AND weight > 2500")])
        >>> snapshot.match_one(Message({"JMSType": "car"}, {"weight": 3000})).ids()
        ['heavy']
        """
        return _match_one()(self, message)

    def changed(
        self, changes: Iterable[Change], revision: int | None = None, *, limits: Limits = DEFAULT_LIMITS
    ) -> Snapshot:
        """Return a snapshot with these changes applied in order: `Add`, `Replace` and `Remove`. Selectors
        given as text must be within the limits.

        The result shares all arrays of this snapshot, which is not changed, and adds a delta: O(size of the
        changed selectors); the first change of a segment also hashes its ids. Raises the errors of
        ``Index.add``, ``replace`` and ``remove``.
        """
        return Snapshot.of(Delta(self, changes, limits).applied(revision))


_ENGINE: Final = ("attributes", "checks_names", "dead_entries", "deaths", "firsts", "no_bytes", "readers")


@cache
def _match_one() -> Callable[[SnapshotState, Message], MessageMatches]:
    """Import the matching of one message, once: an import statement takes as long as a third of a match."""
    from selectroute.match.single import match_one

    return match_one


def build_snapshot(
    subscriptions: pa.Table | Iterable[Row],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Snapshot:
    """Return a snapshot of many subscriptions, in order: as ``Index.add`` and ``freeze``, but much faster.

    ``subscriptions`` are (id, selector) or (id, selector, topic), where a selector is a text in the default
    dialect or a `Selector` in its own; or dicts, or a table, with ``id`` and any of ``selector``, ``topic``,
    ``dialect``, ``seltype`` (EXTENDED, or left to the selector) and ``destination``, all strings.
    ``progress`` is called with the number of subscriptions read so far; ``limits`` apply to selectors given
    as text. O(size of the selectors + subscriptions × log subscriptions).

    Raises `BuildError` for subscriptions that ``Index.add`` rejects, with the cause of the first, or with an
    invalid destination; `RegistrationError` for an unknown column or field; TypeError or ValueError for rows
    of any other form.

    >>> snapshot = build_snapshot([("s1", "JMSType = 'car'", None), ("s2", "weight > 2500", "cars/+")])
    >>> len(snapshot)
    2
    """
    return Snapshot.of(build(subscriptions, revision, progress, limits=limits))
