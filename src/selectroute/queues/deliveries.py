"""What a stream delivers to the queues of a database: each delivery of a batch put once, whatever crashes.

::

    batch   0 ─────────── done ─────────────────────────── all deliveries, in an order that never changes
                           └─ chunk ─┘ put, and `done` moved behind it, in one transaction

Which batch a job is at, and how many of its deliveries are on the queues, stands in the same database as the
queues. So whoever goes on after a crash knows what was put, also of messages that were got since. Batches
come one after another: one row for a job's stream and one for its backfills are all that is ever kept.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

from selectroute.queues.errors import MQRC_Q_FULL, failed
from selectroute.queues.message import NO_ID
from selectroute.queues.places import place_of
from selectroute.queues.properties import properties_of
from selectroute.queues.record import Record
from selectroute.queues.routed import Routed, expiry_at, with_delivery
from selectroute.queues.sql_indexes import keys_of
from selectroute.queues.sql_statements import ARRIVE_MANY, HELD, PUT, PUT_KEY
from selectroute.queues.stored import FIELDS
from selectroute.queues.tables import delivered, metadata, queue
from selectroute.store.engine import Store
from selectroute.store.errors import StoreError

_ID_PREFIX: Final = b"AMQ "

_MINE: Final = and_(delivered.c.job == bindparam("of_job"), delivered.c.backfill == bindparam("is_backfill"))
_READ: Final = select(delivered.c.batch, delivered.c.done, delivered.c.gone).where(_MINE)
_LOCK: Final = _READ.with_for_update()
_MOVE: Final = (
    update(delivered)
    .where(_MINE)
    .values(batch=bindparam("to_batch"), done=bindparam("to_done"), gone=bindparam("to_gone"))
)
_QUEUES: Final = (
    select(queue)
    .where(queue.c.name.in_(bindparam("names", expanding=True)))
    .order_by(queue.c.id)  # so that jobs that put to the same queues wait for each other in one order
    .with_for_update()
)
_LENGTHS: Final = select(queue.c.name, queue.c.max_message_length)


class Delivery(NamedTuple):
    """One message for one subscription, on the way to a queue."""

    queue: str
    subscription: str
    delivery_id: str
    revision: int
    message: Routed


class Progress(NamedTuple):
    """How far a batch is delivered: so many of its deliveries are done.

    ``gone`` are queues that were not there any more, or had become others, when one of their messages came,
    and from which delivery on: none of these is put, not even if the queue comes back.
    """

    batch: int
    done: int = 0
    gone: Mapping[str, int] = {}


class QueueDeliveries:
    """A database of queues as a stream sees it. Safe for one thread at a time.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``.
        clock: gives the seconds since 1970.

    Raises InvalidUrlError where there is no database, or none that has queues; StoreError as the database
    says, as every call does: nothing was changed then.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._store = Store(url, metadata)
        self._clock = clock
        self._prefix = _ID_PREFIX + secrets.token_bytes(12)

    @property
    def name(self) -> str:
        """Which database it is, from wherever it is asked: its URL without the password."""
        url = self._store.url
        if self._store.is_sqlite:
            url = url.set(database=os.path.abspath(self._store.path))
        return url.render_as_string(hide_password=True)

    def lengths(self) -> dict[str, int]:
        """Return the queues that there are, and how long a message each of them holds, in bytes."""
        with self._store.reading() as connection:
            return {name: length for name, length in connection.execute(_LENGTHS)}

    def progress(self, job: str, batch: int) -> Progress | None:
        """Return how far a batch of a job is; None if a later one has begun, so that it is done.

        Batches of the stream count up from 0, backfills down from -1, each one after the one before is done.
        """
        with self._store.reading() as connection:
            return _progress(connection.execute(_READ, _of(job, batch)).one_or_none(), batch)

    def put(self, job: str, progress: Progress, deliveries: Sequence[Delivery]) -> Progress:
        """Put the next deliveries of a batch, in one transaction; return how far the batch is then.

        As many of them as there is room for, in their order, and at least one; of a queue that is gone none.

        Raises MQError 2053 if the first one's queue is full; StoreError if somebody else has gone on with
        the batch.
        """
        with self._store.writing() as connection:
            known = connection.execute(_LOCK, _of(job, progress.batch)).one_or_none()
            if _progress(known, progress.batch) != progress:
                raise StoreError(f"another process delivers batch {progress.batch} of job {job} to queues")
            queues = self._queues(connection, deliveries)
            gone = dict(progress.gone)
            fitting = self._fitting(connection, queues, deliveries, gone, progress.done)
            after = Progress(progress.batch, progress.done + fitting, gone)
            self._insert(connection, queues, [one for one in deliveries[:fitting] if one.queue not in gone])
            self._write(connection, job, after, is_new=known is None)
        return after

    def close(self) -> None:
        """Give the database back."""
        self._store.close()

    # ---- inside

    def _queues(self, connection: Connection, deliveries: Sequence[Delivery]) -> dict[str, Row[Any]]:
        """The queues that these are for, by name, held until the transaction ends."""
        names = sorted({one.queue for one in deliveries})
        return {row.name: row for row in connection.execute(_QUEUES, {"names": names})}

    def _fitting(
        self,
        connection: Connection,
        queues: Mapping[str, Row[Any]],
        deliveries: Sequence[Delivery],
        gone: dict[str, int],
        done: int,
    ) -> int:
        """How many of the deliveries there is room for; those of queues that are gone take none."""
        now = int(self._clock() * 1000)
        room = {
            name: row.max_depth - connection.execute(HELD, {"in_queue": row.id, "now_ms": now}).scalar_one()
            for name, row in queues.items()
            if row.max_depth is not None
        }
        for number, one in enumerate(deliveries):
            if one.queue in gone:
                continue
            row = queues.get(one.queue)
            if row is None or row.max_message_length < len(one.message.body):
                gone[one.queue] = done + number
                continue
            left = room.get(one.queue)
            if left is not None:
                if left <= 0:
                    if number == 0:
                        raise failed(
                            MQRC_Q_FULL, f"the queue {one.queue} is full: it holds {row.max_depth:,}"
                        )
                    return number
                room[one.queue] = left - 1
        return len(deliveries)

    def _insert(
        self, connection: Connection, queues: Mapping[str, Row[Any]], deliveries: Sequence[Delivery]
    ) -> None:
        """Give messages their places, in their order."""
        counts = Counter(one.queue for one in deliveries)
        arrivals: dict[str, int] = {}
        for name in queues:
            if counts[name]:
                given = {"in_queue": queues[name].id, "count": counts[name]}
                arrivals[name] = connection.execute(ARRIVE_MANY, given).scalar_one() - counts[name]
        now = int(self._clock() * 1000)
        rows: list[dict[str, Any]] = []
        keys: list[dict[str, Any]] = []
        for one in deliveries:
            arrivals[one.queue] += 1
            row = self._row(one, queues[one.queue], arrivals[one.queue], now)
            rows.append(row)
            if queues[one.queue].indexes != "{}":
                keys += keys_of(_record(row), row["queue"], queues[one.queue].indexes)
        if rows:
            connection.execute(PUT, rows)
        if keys:
            connection.execute(PUT_KEY, keys)

    def _row(self, one: Delivery, own: Row[Any], arrival: int, now: int) -> dict[str, Any]:
        message = one.message
        priority = own.default_priority if message.priority is None else message.priority
        return {
            "queue": own.id,
            "place": place_of(arrival, priority if own.order == "priority" else None),
            "msg_id": message.msg_id or self._prefix + arrival.to_bytes(8, "big"),
            "correl_id": message.correl_id,
            "group_id": message.group_id,
            "msg_seq_number": message.msg_seq_number,
            "offset": 0,
            "last_in_group": False,
            "priority": priority,
            "persistence": own.default_persistence if message.persistence is None else message.persistence,
            "expiry": expiry_at(message.expiration, now),
            "timestamp": now if message.timestamp is None else message.timestamp,
            "backout_count": 0,
            "expiration": message.expiration,
            "properties": with_delivery(message.properties, one.subscription, one.delivery_id, one.revision),
            "owner": None,
            "unit": None,
            "arriving": False,
            "body": message.body,
        }

    def _write(self, connection: Connection, job: str, after: Progress, is_new: bool) -> None:
        gone = json.dumps(dict(after.gone))
        if is_new:
            row = {"job": job, "backfill": after.batch < 0, "batch": after.batch, "done": after.done}
            connection.execute(insert(delivered), row | {"gone": gone})
        else:
            moved = {"to_batch": after.batch, "to_done": after.done, "to_gone": gone}
            connection.execute(_MOVE, _of(job, after.batch) | moved)


def _of(job: str, batch: int) -> dict[str, Any]:
    return {"of_job": job, "is_backfill": batch < 0}


def _progress(known: Any, batch: int) -> Progress | None:
    if known is None or abs(known.batch) < abs(batch):
        return Progress(batch)
    return Progress(batch, known.done, json.loads(known.gone)) if known.batch == batch else None


def _record(row: Mapping[str, Any]) -> Record:
    """The message of a row as a selector sees it; its body is not among that."""
    fields = {**row, "correl_id": row["correl_id"] or NO_ID, "group_id": row["group_id"] or NO_ID}
    return (*(fields[name] for name in FIELDS), b"", properties_of(row["properties"]))
