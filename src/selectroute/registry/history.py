"""The part of a registry that only reads: its newest revision, the log, and the past."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from selectroute.registry import log, transfer
from selectroute.registry.changes import Change, ChangePage, Op, Verified
from selectroute.registry.counter import read_counter
from selectroute.registry.errors import InvalidSpecError
from selectroute.registry.model import Subscription
from selectroute.registry.rows import change_of
from selectroute.registry.settings import read_setting
from selectroute.registry.verify import verify
from selectroute.store.engine import Store
from selectroute.store.head import lost

Progress = Callable[[int, int], None]
"""Called now and then with how many rows are done, and how many there are (0: not known)."""

_POLL_SECONDS = 0.05


class History:
    """The log of a `Registry`. All raise `StoreError` as the database says."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._committed = threading.Condition()

    @property
    def url(self) -> str:
        """The URL of the database, with its password."""
        return self._store.url.render_as_string(hide_password=False)

    @property
    def revision(self) -> int:
        """The newest revision; 0 before the first change."""
        with self._store.reading() as connection:
            number: int = read_counter(connection).revision
            return number

    def changes(
        self,
        after: int = 0,
        *,
        limit: int = 1_000,
        cursor: str | None = None,
        ops: Collection[Op] | None = None,
        wait_seconds: float = 0,
    ) -> ChangePage:
        """The changes behind a revision, the oldest first, at most `limit` of them.

        They end with a revision, unless the first one alone has more; ``next_cursor`` gives those that
        follow, also inside of a revision. With a `cursor`, the changes are those behind its page, whatever
        `after` is. With `ops` only changes of these kinds count. Without any, waits so many seconds for one.

        Raises `DamagedError` if the log is not what was written, `InvalidSpecError` for a limit, cursor or
        kind that is none.
        """
        if limit < 1:
            raise InvalidSpecError("/limit", "a limit is 1 or more")
        position = log.Position(after) if cursor is None else log.Position.of(cursor)
        until = time.monotonic() + wait_seconds
        while True:
            with self._store.reading() as connection:
                found = log.page(connection, position, limit, ops)
            if found or not self.wait(max(after, found.revision), until - time.monotonic()):
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

    def digest_at(self, revision: int) -> str:
        """The digest of the log up to a revision, in hex: it vouches for every change until then."""
        with self._store.reading() as connection:
            return log.digest_at(connection, log.Position(revision)).hex()

    def pending(self, after: int) -> int:
        """How many changes are behind a revision. O(that many)."""
        with self._store.reading() as connection:
            return log.count_behind(connection, after)

    def follow_changes(self, after: int, *, ops: Collection[Op] | None = None) -> Generator[Change]:
        """All changes behind a revision, up to the newest when this began; in bounded memory. With `ops` only
        those of these kinds.
        """
        with self._store.reading() as connection:
            yield from map(change_of, log.rows_behind(connection, after, ops))

    @contextmanager
    def bodies(self, status: str) -> Iterator[tuple[int, Iterator[str]]]:
        """The newest revision, and all subscriptions of a status at it, each as a line of JSON."""
        with self._store.reading() as connection:
            yield read_counter(connection).revision, transfer.bodies(connection, status)

    def as_of(self, revision: int, ids: Iterable[str]) -> Sequence[Subscription]:
        """Those of these subscriptions that were registered at a revision, as they were then."""
        with self._store.reading() as connection:
            return log.as_of(connection, revision, ids)

    def check_acknowledged(self) -> None:
        """Compare the newest revision with the one that was acknowledged last before this was opened.

        Raises `DamagedError` if the database has not come so far, or with another history.
        """
        head, mark = self._store.head, self._store.acknowledged
        if head is None or mark is None:
            return
        with self._store.reading() as connection:
            newest = read_counter(connection).revision
            digest = log.digest_at(connection, log.Position(mark.number)).hex()
            owner = read_setting(connection, "id")
        if owner != mark.owner:
            raise lost(head, "this is another registry than the one that was there")
        if newest < mark.number:
            raise lost(head, f"it is at revision {newest}, revision {mark.number} was acknowledged")
        if digest != mark.digest:
            raise lost(head, f"revision {mark.number} is not the one that was acknowledged")

    def verify(self, progress: Progress | None = None) -> Verified:
        """Read the whole database and compare it with its digests. O(changes + subscriptions).

        Raises `DamagedError` naming the first place that is not what was written.
        """
        with self._store.reading() as connection:
            return verify(connection, self._store.is_sqlite, progress)
