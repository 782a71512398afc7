"""Queues in a database: one by its name, and all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from threading import Lock
from typing import Any, Self, Unpack

from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQRC_UNKNOWN_OBJECT_NAME, MQError, failed
from selectroute.queues.lookup import Lookup, MatchOptions, match_of
from selectroute.queues.message.message import QueuedMessage, time_of
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.queue import BulkResult, MessageCount, Queue
from selectroute.queues.settings import QueueDescription, QueueSettings
from selectroute.queues.sql.bulk import Bulk
from selectroute.queues.sql.database import QueueDatabase
from selectroute.queues.sql.store import SqlStore
from selectroute.queues.sql.transaction import QueuePut, QueueWork, transact
from selectroute.queues.sql.watch import WaitingCall
from selectroute.queues.unit import UnitOfWork
from selectroute.store.errors import NoDatabaseError


class SqlQueue(Queue[SqlStore]):
    """Queue in SQLite or PostgreSQL, for any number of processes. See `Queue` for its methods.

    A message is durable when `put` returns, whatever its persistence, and removed when `get` returns: no
    other call on this database ever gets it, even after a crash. A put is one transaction; a get is one or
    two, and more while it waits. Units of a dead process are backed out by the next check of another process.

    A database holds many queues by name, see `SqlQueues`; it may be that of a registry. In addition to
    MQError, every call raises `StoreError` if the database fails; then nothing was changed.

    Args:
        database: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``, or an open
            one (see `SqlQueues`), which stays open when the queue is closed.
        name: the name of the queue, as given to `create`.
        clock: returns the seconds since 1970.

    Raises MQError 2085 for a queue that does not exist; InvalidUrlError if there is no database, or one
    without queues.
    """

    def __init__(
        self, database: str | QueueDatabase, name: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        if isinstance(database, QueueDatabase):
            opened, is_own = database, False
        else:
            opened, is_own = QueueDatabase(database, clock=clock), True
        try:
            self.defined = opened.find(name)
            self.name = self.defined.name
            super().__init__(SqlStore(opened, self.defined, clock, owns_database=is_own))
        except BaseException:
            if is_own:
                opened.close()
            raise

    @property
    def store(self) -> SqlStore:
        """Storage of the queue, for `transact`."""
        return self._store

    def __repr__(self) -> str:
        return f"SqlQueue({self._store.url!r}, {self.name!r})"

    def call(
        self,
        notify: Callable[[], None],
        *,
        browses: bool = False,
        syncpoint: UnitOfWork[Any] | None = None,
        **options: Unpack[MatchOptions],
    ) -> WaitingCall:
        """Return a get, or with `browses` a browse, that waits without a thread; see `WaitingCall`.

        Args:
            notify: called, by any thread, when the call should look again.
            browses: leave the message on the queue.
            syncpoint: the unit to get the message in.
            options: as of `Queue.get`.
        """
        unit = None if syncpoint is None else self._own(syncpoint)
        lookup = Lookup(match_of(self.settings.dialect, **options))
        return self._store.call(lookup, notify, unit, browses)

    @property
    def oldest(self) -> datetime | None:
        """Time of the put, in UTC, of the available message that has been on the queue longest.

        None without messages. A moved message keeps the time of its put.
        """
        timestamp = self._store.oldest
        return None if timestamp is None else time_of(timestamp)

    @property
    def waiting(self) -> int:
        """Number of gets that wait for a message now, of this object alone: not those of other processes."""
        return self._store.waiting

    def listed(
        self, most: int, *, after: bytes | None = None, **options: Unpack[MatchOptions]
    ) -> list[QueuedMessage]:
        """Return the first matches without their bodies, at most `most`.

        With the token `after`, the first of those behind the message that has or had it. Raises MQError 2331
        for a token of another queue.
        """
        key = -1 if after is None else self._store.key_in(after)
        lookup = Lookup(match_of(self.settings.dialect, **options), key)
        return [self._store.to_message(record) for record in self._store.listed(lookup, most)]

    def count(self, **options: Unpack[MatchOptions]) -> MessageCount:
        """Return the number of matches.

        For a selector, at most `MOST_COMPARED` messages are compared: if there are more, the count is
        not exact.
        """
        return self.bulk(**options).count()

    def purge(self, *, expected: int | None = None, **options: Unpack[MatchOptions]) -> BulkResult:
        """Remove all matches, in transactions of at most `CHUNK` messages.

        Messages in units of work, those that others are getting, and those that arrive from now on, stay.
        Raises CountChangedError, before anything is removed, if another number than `expected` matches.
        """
        return _finished(self.bulk(**options), expected)

    def move(self, to: str, *, expected: int | None = None, **options: Unpack[MatchOptions]) -> BulkResult:
        """Move all matches to the end of another queue of this database, in their order; see `purge`.

        Each transaction moves at most `CHUNK` messages. Ids, numbers, priority, persistence, expiry, time of
        the put and properties are kept; the backout count begins at 0. A message stays if the other queue is
        full, or has a lower limit for its body.

        Raises MQError 2085 if there is no queue of that name, 2152 if it is this one.
        """
        return _finished(self.bulk(to=to, **options), expected)

    def bulk(self, *, to: str | None = None, **options: Unpack[MatchOptions]) -> Bulk:
        """Return a purge, or with `to` a move, that is done chunk by chunk, see `Bulk`."""
        return Bulk(self._store, match_of(self.settings.dialect, **options), to)

    @classmethod
    def create(
        cls,
        url: str,
        name: str,
        settings: QueueSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Create a queue, and the database if there is none, and open the queue.

        Raises MQError 2100 for a name that is taken, 2152 for one that is not 1 to 48 of ``A-Za-z0-9./_%``.
        """
        with closing(QueueDatabase(url, create=True)) as database:
            database.add(name, settings or QueueSettings())
        return cls(url, name, clock=clock)


def _finished(bulk: Bulk, expected: int | None) -> BulkResult:
    bulk.count(expected)
    while bulk.step():
        pass
    return bulk.result


class SqlQueues:
    """Queues of one database, over one pool of connections. Safe for threads. `close` it, or use ``with``.

    The database is opened on first use; `create` creates the database and its tables if they are missing.
    Every call raises `StoreError` if the database fails.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``, or a function that
            returns it.
        clock: returns the seconds since 1970.
    """

    def __init__(self, url: str | Callable[[], str], *, clock: Callable[[], float] = time.time) -> None:
        self._url = url
        self._clock = clock
        self._lock = Lock()
        self._database: QueueDatabase | None = None
        self._opened: dict[str, SqlQueue] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Return the names of all queues, in order."""
        try:
            return self._connected().names()
        except NoDatabaseError:
            return []

    def settings(self, name: str) -> QueueSettings:
        """Return the settings of a queue. Raises MQError 2085."""
        return self._existing(name).find(name).settings

    def create(self, name: str, settings: QueueSettings | None = None) -> bool:
        """Create a queue; return whether it is new. An existing queue with these settings stays unchanged.

        Raises MQError 2100 for a queue with other settings, 2152 for an invalid name.
        """
        wanted = settings or QueueSettings()
        try:
            self._connected(create=True).add(name, wanted)
        except MQError as error:
            if error.reason != MQRC_OBJECT_ALREADY_EXISTS or self.settings(name) != wanted:
                raise
            return False
        return True

    def describe(self, name: str) -> QueueDescription:
        """Return the name, settings and current depth of a queue. Raises MQError 2085."""
        queue = self.open(name)
        return QueueDescription(
            **asdict(queue.settings), name=name, depth=queue.depth, oldest=queue.oldest, waiting=None
        )

    def open(self, name: str) -> SqlQueue:
        """Return a queue, the same object each time, closed by `close`. Raises MQError 2085."""
        database = self._existing(name)
        defined = database.find(name)
        with self._lock:
            opened = self._opened.get(name)
            if opened is not None and opened.defined == defined:
                return opened
            queue = self._opened[name] = SqlQueue(database, name, clock=self._clock)
        if opened is not None:
            opened.close()  # deleted and created again since
        return queue

    def put_all(self, puts: Sequence[tuple[SqlQueue, ValidatedPut]]) -> None:
        """QueuePut messages on queues of this database in one transaction, in their order: all or none.

        Raises MQError 2053 for a full queue, 2085 for a deleted one.
        """
        work = QueueWork([QueuePut(queue.store, message) for queue, message in puts])
        transact([work])
        if work.error is not None:
            raise work.error

    def delete(self, name: str, *, purge: bool = False) -> None:
        """Delete an empty queue; with `purge` also one with messages, which are deleted too.

        Raises MQError 2085 for a queue that does not exist, 2055 for one that is not empty, with `purge` only
        if messages are in units of work.
        """
        self._existing(name).remove(name, purge=purge)
        with self._lock:
            opened = self._opened.pop(name, None)
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Close all queues and the database."""
        with self._lock:
            opened, self._opened = [*self._opened.values()], {}
            database, self._database = self._database, None
        for queue in opened:
            queue.close()
        if database is not None:
            database.close()

    def _existing(self, name: str) -> QueueDatabase:
        """Return the database. Raises MQError 2085 for the queue if there is none."""
        try:
            return self._connected()
        except NoDatabaseError:
            raise failed(MQRC_UNKNOWN_OBJECT_NAME, f"there is no queue {name[:48]!r}") from None

    def _connected(self, *, create: bool = False) -> QueueDatabase:
        with self._lock:
            if self._database is None:
                url = self._url if isinstance(self._url, str) else self._url()
                self._database = QueueDatabase(url, create=create, clock=self._clock)
            return self._database
