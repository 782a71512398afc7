"""All queues of a database, by their names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from threading import Lock
from typing import Self

from selectroute.queues.errors import (
    MQRC_OBJECT_ALREADY_EXISTS,
    MQRC_UNKNOWN_OBJECT_NAME,
    MQError,
    failed,
)
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.settings import QueueDescription, QueueSettings
from selectroute.queues.sql.database import QueueDatabase
from selectroute.queues.sql.queue import SqlQueue
from selectroute.queues.sql.store import put_all
from selectroute.store.errors import NoDatabaseError


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
        """Put messages on queues of this database in one transaction, in their order: all or none.

        Raises MQError 2053 for a full queue, 2085 for a deleted one.
        """
        put_all([(queue._store, message) for queue, message in puts])

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
