"""The part of a registry that only reads: its newest revision, the log, and the past."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from selectroute.registry import log, transfer
from selectroute.registry.changes import Change, Verified
from selectroute.registry.model import Subscription
from selectroute.registry.revision import read_counter
from selectroute.registry.rows import change_of
from selectroute.registry.verify import verify
from selectroute.store.engine import Store

Progress = Callable[[int, int], None]
"""Called now and then with how many rows are done, and how many there are (0: not known)."""

_POLL_SECONDS = 0.05


class History:
    """The log of a `Registry`. All raise `StoreError` as the database says."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._committed = threading.Condition()

    @property
    def revision(self) -> int:
        """The newest revision; 0 before the first change."""
        with self._store.reading() as connection:
            number: int = read_counter(connection).revision
            return number

    def changes(self, after: int = 0, *, limit: int = 1_000, wait_seconds: float = 0) -> Sequence[Change]:
        """The changes behind a revision, the oldest first: whole revisions, about `limit` changes.

        If the first revision alone has more than `limit`, it comes as a whole. Without any, waits so many
        seconds for one. Raises `DamagedError` if the log is not what was written.
        """
        until = time.monotonic() + wait_seconds
        while True:
            with self._store.reading() as connection:
                found = log.changes(connection, after, limit)
                newest = read_counter(connection).revision  # behind `after` it may be without changes
            if found or not self.wait(newest, until - time.monotonic()):
                return found

    def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is a revision behind `after`, at most so many seconds; whether there is."""
        until = time.monotonic() + seconds
        while self.revision <= after:
            left = until - time.monotonic()
            if left <= 0:
                return False
            # A commit of this process wakes at once; those of others are looked for.
            with self._committed:
                self._committed.wait(min(left, _POLL_SECONDS))
        return True

    def pending(self, after: int) -> int:
        """How many changes are behind a revision. O(that many)."""
        with self._store.reading() as connection:
            return log.count_behind(connection, after)

    def follow_changes(self, after: int) -> Iterator[Change]:
        """All changes behind a revision, up to the newest when this began; in bounded memory."""
        with self._store.reading() as connection:
            yield from map(change_of, log.rows_behind(connection, after))

    @contextmanager
    def bodies(self, status: str) -> Iterator[tuple[int, Iterator[str]]]:
        """The newest revision, and all subscriptions of a status at it, each as a line of JSON."""
        with self._store.reading() as connection:
            yield read_counter(connection).revision, transfer.bodies(connection, status)

    def as_of(self, revision: int, ids: Iterable[str]) -> Sequence[Subscription]:
        """Those of these subscriptions that were registered at a revision, as they were then."""
        with self._store.reading() as connection:
            return log.as_of(connection, revision, ids)

    def verify(self, progress: Progress | None = None) -> Verified:
        """Read the whole database and compare it with its digests. O(changes + subscriptions).

        Raises `DamagedError` naming the first place that is not what was written.
        """
        with self._store.reading() as connection:
            return verify(connection, self._store.is_sqlite, progress)
