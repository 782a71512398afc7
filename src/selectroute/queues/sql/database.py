"""Database of queues: its connections, its queues by name, and this process as an owner of units."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select

from selectroute.index.destination import QUEUE_NAME, QUEUE_NAME_RULE
from selectroute.queues.errors import (
    MQRC_OBJECT_ALREADY_EXISTS,
    MQRC_OBJECT_NAME_ERROR,
    MQRC_Q_NOT_EMPTY,
    MQRC_UNKNOWN_OBJECT_NAME,
    failed,
)
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.statements import HELD
from selectroute.queues.sql.tables import held, message, metadata, queue, shared_body
from selectroute.queues.sql.units import Owner
from selectroute.store.engine import Store

_NAME: Final = re.compile(QUEUE_NAME)

_SETTINGS: Final = tuple(field.name for field in fields(QueueSettings))


_CHANGES: Final = select(queue.c.id, queue.c.arrivals, queue.c.releases).where(
    queue.c.id.in_(bindparam("ids", expanding=True))
)
_MOST_IDS: Final = 10_000
_ORPHAN_SECONDS: Final = 5.0
_SOME_BODIES: Final = (
    select(shared_body.c.id)
    .where(shared_body.c.id > bindparam("after"))
    .order_by(shared_body.c.id)
    .limit(1_000)
)
_REMOVE_ORPHANS: Final = delete(shared_body).where(
    shared_body.c.id.in_(bindparam("ids", expanding=True)),
    ~exists().where(message.c.shared_body == shared_body.c.id),
)


class Defined(NamedTuple):
    """Row of a queue in its database. Ids are never reused."""

    id: int
    name: str
    token_prefix: bytes
    settings: QueueSettings


class QueueDatabase:
    """Open database of queues. Safe for threads. `close` it.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``.
        create: create the database and its tables if they are missing.
        clock: returns the seconds since 1970.

    Raises NoDatabaseError if there is no database, or one without queues; InvalidUrlError for any other URL.
    Every method raises `StoreError` if the database fails.
    """

    def __init__(self, url: str, *, create: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.store = Store(url, metadata, _nothing if create else None)
        self.owner = Owner(self.store)
        self._orphans_after = 0
        self._removed_at = -_ORPHAN_SECONDS
        try:
            self.owner.sweep()
        except BaseException:
            self.store.close()
            raise

    def names(self) -> list[str]:
        """Return the names of all queues, in order."""
        with self.store.reading() as connection:
            return list(connection.execute(select(queue.c.name).order_by(queue.c.name)).scalars())

    def find(self, name: str) -> Defined:
        """Return the row of a queue. Raises MQError 2085."""
        row = None
        if _NAME.fullmatch(str(name)):  # PostgreSQL refuses some texts that cannot be names
            with self.store.reading() as connection:
                row = connection.execute(select(queue).where(queue.c.name == str(name))).one_or_none()
        if row is None:
            raise _unknown(name)
        settings = QueueSettings(*(row._mapping[column] for column in _SETTINGS))
        return Defined(row.id, row.name, bytes(row.token_prefix), settings)

    def changes(self, queues: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the numbers of arrivals and of releases of some queues, by their ids."""
        changes: dict[int, tuple[int, int]] = {}
        with self.store.reading() as connection:
            for begin in range(0, len(queues), _MOST_IDS):
                rows = connection.execute(_CHANGES, {"ids": queues[begin : begin + _MOST_IDS]})
                changes |= {row.id: (row.arrivals, row.releases) for row in rows}
        return changes

    def add(self, name: str, settings: QueueSettings) -> None:
        """Create a queue. Raises MQError 2100 for a name that is taken, 2152 for an invalid one."""
        if type(name) is not str or not _NAME.fullmatch(name):
            raise failed(MQRC_OBJECT_NAME_ERROR, QUEUE_NAME_RULE)
        row = asdict(settings)
        with self.store.writing() as connection:
            if connection.execute(select(queue.c.id).where(queue.c.name == name)).first() is not None:
                raise failed(MQRC_OBJECT_ALREADY_EXISTS, f"there is a queue {name!r} already")
            connection.execute(insert(queue), {**row, "name": name, "token_prefix": secrets.token_bytes(8)})

    def remove(self, name: str, *, purge: bool = False) -> None:
        """Delete an empty queue; with `purge` also one with messages, which are deleted too.

        Processes that still have the queue open get no messages, and 2085 for puts. Raises MQError 2085 for a
        queue that does not exist, 2055 for one that is not empty; with `purge` only for messages in units of
        work, which only their owners can end.
        """
        if not _NAME.fullmatch(str(name)):
            raise _unknown(name)
        self._back_out_dead()
        with self.store.writing() as connection:
            # The lock excludes puts, which update this row first.
            row = select(queue.c.id).where(queue.c.name == str(name)).with_for_update()
            id = connection.execute(row).scalar_one_or_none()
            if id is None:
                raise _unknown(name)
            parameters = {"in_queue": id, "now_ms": int(self.clock() * 1000)}
            in_units = select(func.count()).where(message.c.queue == id, message.c.owner.is_not(None))
            if not purge and connection.execute(HELD, parameters).scalar_one():
                raise failed(MQRC_Q_NOT_EMPTY, "the queue has messages")
            if connection.execute(in_units).scalar_one():
                raise failed(MQRC_Q_NOT_EMPTY, "messages of the queue are in units of work")
            connection.execute(delete(message).where(message.c.queue == id))
            connection.execute(delete(held).where(held.c.queue == id))
            connection.execute(delete(queue).where(queue.c.id == id))

    def remove_orphans_if_due(self) -> None:
        """Remove shared bodies without messages, some at a time, if the last time was seconds ago.

        Only PostgreSQL leaves any: see `tables`.
        """
        if self.store.is_sqlite or time.monotonic() - self._removed_at < _ORPHAN_SECONDS:
            return
        self._removed_at = time.monotonic()
        with self.store.writing() as connection:
            ids = connection.execute(_SOME_BODIES, {"after": self._orphans_after}).scalars().all()
            if ids:
                connection.execute(_REMOVE_ORPHANS, {"ids": ids})
        self._orphans_after = ids[-1] if ids else 0

    def close(self) -> None:
        """Back out all units of this process and close the connections."""
        try:
            self.owner.leave()
        finally:
            self.store.close()

    def _back_out_dead(self) -> None:
        """Back out units of dead processes, so that they do not keep a queue from being deleted."""
        with self.store.reading() as connection:
            others = self.owner.others(connection)
        for id in others:
            self.owner.back_out_if_dead(id)


def _unknown(name: object) -> Exception:
    return failed(MQRC_UNKNOWN_OBJECT_NAME, f"there is no queue {str(name)[:48]!r}")


def _nothing(connection: Connection) -> None:
    """Write no first rows: tables are enough."""
