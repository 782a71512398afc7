"""A queue in a database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, Self

from selectroute.queues.groups import Wanted
from selectroute.queues.held_queue import HeldQueue
from selectroute.queues.held_unit import check_own
from selectroute.queues.message import NO_ID, NO_TOKEN, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.queues.queue import Unit
from selectroute.queues.request import request_of
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.queues.sql_call import SqlCall
from selectroute.queues.sql_database import QueueDatabase
from selectroute.queues.sql_holding import SqlHolding
from selectroute.queues.sql_unit import SqlUnit

_NOTHING: Final[dict[str, Any]] = {
    "msg_id": NO_ID,
    "correl_id": NO_ID,
    "group_id": NO_ID,
    "msg_seq_number": 1,
    "offset": 0,
    "msg_token": NO_TOKEN,
    "selector": None,
}


class SqlQueue(HeldQueue):
    """A queue in SQLite or PostgreSQL, for any number of processes. See `Queue` for what it does.

    A message that was put is durable when `put` returns, whatever its persistence, and one that was got is
    gone when `get` returns: no other call on this database ever gets it, also not after a crash. A put or get
    is one transaction. What a unit got comes back as soon as its process is dead and another one looks.

    A database holds many queues by name; that of a registry may hold them too. Besides what `Queue` says,
    every call raises `StoreError` as the database says, and nothing was changed then.

    Args:
        database: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``, or one that is
            open (see `SqlQueues`) and stays so when the queue is closed.
        name: of a queue that `create` has made.
        clock: gives the seconds since 1970.

    Raises MQError 2085 for a queue that is not there; InvalidUrlError where there is no database, or none
    that has queues.
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
            super().__init__(SqlHolding(opened, self.defined, clock, owns_database=is_own))
        except BaseException:
            if is_own:
                opened.close()
            raise
        assert isinstance(self._holding, SqlHolding)
        self._in_database = self._holding

    def call(
        self,
        ring: Callable[[], None],
        match: int = DEFAULT_MATCH,
        *,
        browses: bool = False,
        syncpoint: Unit | None = None,
        **wanted: Any,
    ) -> SqlCall:
        """Return a get, or with `browses` a browse, that waits without a thread; see `SqlCall`.

        Args:
            ring: called, by any thread, when the call should look again.
            match: and all others, as `Queue.get` takes them.
        """
        unit = None if syncpoint is None else check_own(syncpoint, self._in_database)
        assert unit is None or isinstance(unit, SqlUnit)
        return self._in_database.call(self._wanted(match, wanted), ring, unit, browses)

    def listed(self, most: int, match: int = DEFAULT_MATCH, **wanted: Any) -> list[Message]:
        """Return the first matches without their bodies, at most so many; see `Queue.get` for `wanted`."""
        records = self._in_database.listed(self._wanted(match, wanted), most)
        return [self._in_database.shown(record) for record in records]

    def _wanted(self, match: int, given: dict[str, Any]) -> Wanted:
        fields = {**_NOTHING, **given}
        return Wanted(request_of(match, **fields, dialect=self.settings.dialect))

    @classmethod
    def create(
        cls,
        url: str,
        name: str,
        *,
        order: Literal["priority", "fifo"] = "priority",
        default_priority: int = 4,
        default_persistence: bool = False,
        max_depth: int | None = None,
        max_message_length: int = MAX_MESSAGE_LENGTH,
        dialect: str = "ibm-jms",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Make a queue, and the database if there is none, and open it.

        Raises MQError 2100 for a name that is taken, 2152 for one that is none: 1 to 48 of ``A-Za-z0-9./_%``.
        ValueError for settings that cannot be.
        """
        settings = QueueSettings(
            order, default_priority, default_persistence, max_depth, max_message_length, dialect
        )
        database = QueueDatabase(url, create=True)
        try:
            database.add(name, settings)
        finally:
            database.close()
        return cls(url, name, clock=clock)

    @staticmethod
    def names(url: str) -> list[str]:
        """Return the names of all queues of a database, in order."""
        database = QueueDatabase(url)
        try:
            return database.names()
        finally:
            database.close()

    @staticmethod
    def delete(url: str, name: str, *, purge: bool = False) -> None:
        """Delete a queue; with `purge` also one that has messages, and these with it.

        Raises MQError 2085 for a queue that is not there, 2055 for one that is not empty, with `purge` only
        where messages of it are in units of work.
        """
        database = QueueDatabase(url)
        try:
            database.remove(name, purge=purge)
        finally:
            database.close()
