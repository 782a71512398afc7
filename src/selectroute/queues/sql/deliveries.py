"""Deliveries of a stream to the queues of a database: each put exactly once, whatever crashes.

::

    batch   0 ─────────── done ─────────────────────────── all deliveries, in an order that never changes
                           └─ chunk ─┘ put, and `done` moved after it, in one transaction

The current batch of a job, and the number of its deliveries that were put, are in the same database as the
queues. So the next run after a crash knows which deliveries were put, even if messages were got since.
Batches are sequential: a job has one row for its stream and one for its backfills, never more.

A full queue holds back only its own deliveries. The row records from which delivery on, so that its messages
keep their order::

    put ── no room ──→ held, from number n on ── put_held, n advances ──→ nothing is left of the batch
    put ── gone ──→ gone, from n on                └──── give_up ──→ full: deliveries from n on are never put

`give_up` records this in a separate transaction: earlier deliveries stay put, and the caller must keep the
rest elsewhere, even after a crash or when there is room again.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

from selectroute.queues.message.from_stream import Routed, with_delivery
from selectroute.queues.message.message import NO_ID, properties_of
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import Record, arrived, expiry_at, new_id_prefix
from selectroute.queues.sql.lookup import keys_of
from selectroute.queues.sql.rows import row_of
from selectroute.queues.sql.statements import ARRIVE_MANY, HELD, PUT, PUT_KEY
from selectroute.queues.sql.tables import delivered, metadata, queue
from selectroute.store.engine import Store
from selectroute.store.errors import StoreError

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
    .order_by(queue.c.id)  # one lock order for all jobs, against deadlocks
    .with_for_update()
)
_LENGTHS: Final = select(queue.c.name, queue.c.max_message_length)
_DEPTHS: Final = select(queue.c.id, queue.c.name, queue.c.max_depth).where(
    queue.c.name.in_(bindparam("names", expanding=True))
)
_HELD, _FULL = "held", "full"


class Delivery(NamedTuple):
    """Delivery of a message for one subscription, to be put on a queue."""

    queue: str
    subscription: str
    delivery_id: str
    revision: int
    message: Routed


class Progress(NamedTuple):
    """Progress of a batch: the number of its finished deliveries.

    The other fields map queues to the first delivery concerned. ``gone``: the queue was deleted or replaced;
    later deliveries are not put, even if it is created again. ``full``: the queue had no room for so long
    that the rest was given up. ``held``: later deliveries are still to be put, even those before ``done``.
    """

    batch: int
    done: int = 0
    gone: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    full: Mapping[str, int] = {}

    @property
    def is_fresh(self) -> bool:
        """True if the batch has no progress yet."""
        return self == Progress(self.batch)


class Room(NamedTuple):
    """Room in a queue with a maximum depth."""

    left: int
    max_depth: int


class QueueDeliveries:
    """Database of queues for the deliveries of a stream. Safe for one thread at a time.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user:password@host/database``.
        clock: returns the seconds since 1970.

    Raises InvalidUrlError if there is no database, or one without queues. Every call raises StoreError if the
    database fails; then nothing was changed.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._store = Store(url, metadata)
        self._clock = clock
        self._prefix = new_id_prefix()

    @property
    def name(self) -> str:
        """URL of the database without the password, with an absolute path."""
        url = self._store.url
        if self._store.is_sqlite:
            url = url.set(database=os.path.abspath(self._store.path))
        return url.render_as_string(hide_password=True)

    def lengths(self) -> dict[str, int]:
        """Return all queues with the maximum length of a body, in bytes."""
        with self._store.reading() as connection:
            return {name: length for name, length in connection.execute(_LENGTHS)}

    def progress(self, job: str, batch: int) -> Progress | None:
        """Return the progress of a batch of a job; None if it is finished, because a later one has begun.

        Batches of the stream count up from 0, backfills down from -1; each begins after the previous one.
        """
        with self._store.reading() as connection:
            return _progress(connection.execute(_READ, _of(job, batch)).one_or_none(), batch)

    def put(self, job: str, progress: Progress, deliveries: Sequence[Delivery]) -> Progress:
        """Put the next deliveries of a batch, in one transaction; return the new progress.

        Deliveries of a queue are put in order up to the first without room; from that one on they are held.
        Deliveries for a queue that is gone, held or full are not put.

        Raises StoreError if another process has continued the batch.
        """
        numbered = list(enumerate(deliveries, progress.done))
        states = dict(progress.gone), dict(progress.held), dict(progress.full)
        with self._store.writing() as connection:
            is_new = self._lock(connection, job, progress)
            queues = self._queues(connection, deliveries)
            fitting = self._fitting(connection, queues, numbered, *states)
            after = Progress(progress.batch, progress.done + len(deliveries), *states)
            self._insert(connection, queues, fitting)
            self._write(connection, job, after, is_new)
        return after

    def put_held(
        self,
        job: str,
        progress: Progress,
        deliveries: Sequence[tuple[int, Delivery]],
        finished: Collection[str] = (),
    ) -> Progress:
        """Put held deliveries, in one transaction; return the new progress.

        Args:
            job: the job of the batch.
            progress: of the batch.
            deliveries: with their numbers in the batch: for each held queue all from its first held one up to
                some number. Deliveries of other queues are ignored.
            finished: held queues without further deliveries in the batch.

        Raises StoreError if another process has continued the batch.
        """
        gone, held = dict(progress.gone), dict(progress.held)
        mine = [(number, one) for number, one in deliveries if number >= held.get(one.queue, number + 1)]
        with self._store.writing() as connection:
            self._lock(connection, job, progress)
            queues = self._queues(connection, [one for _, one in mine])
            still: dict[str, int] = {}
            fitting = self._fitting(connection, queues, mine, gone, still, progress.full)
            for number, one in mine:
                held[one.queue] = number + 1
            for name in (*gone, *finished):
                held.pop(name, None)
            after = progress._replace(gone=gone, held=held | still)
            self._insert(connection, queues, fitting)
            self._write(connection, job, after, is_new=False)
        return after

    def give_up(self, job: str, progress: Progress, names: Collection[str]) -> Progress:
        """Give up the remaining deliveries of these held queues: they are never put. Returns the new
        progress.

        Raises StoreError if another process has continued the batch.
        """
        held, full = dict(progress.held), dict(progress.full)
        for name in names:
            full[name] = held.pop(name)
        after = progress._replace(held=held, full=full)
        with self._store.writing() as connection:
            self._lock(connection, job, progress)
            self._write(connection, job, after, is_new=False)
        return after

    def rooms(self, names: Collection[str]) -> dict[str, Room | None]:
        """Return the room in the existing queues of these; None for one without a maximum depth."""
        with self._store.reading() as connection:
            rows = connection.execute(_DEPTHS, {"names": sorted(names)}).all()
            now = int(self._clock() * 1000)
            return {
                row.name: None
                if row.max_depth is None
                else Room(row.max_depth - self._depth(connection, row.id, now), row.max_depth)
                for row in rows
            }

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    # ---- in a transaction

    def _queues(self, connection: Connection, deliveries: Sequence[Delivery]) -> dict[str, Row[Any]]:
        """Return the queues of deliveries by name, locked until the transaction ends."""
        names = sorted({one.queue for one in deliveries})
        return {row.name: row for row in connection.execute(_QUEUES, {"names": names})}

    def _fitting(
        self,
        connection: Connection,
        queues: Mapping[str, Row[Any]],
        deliveries: Sequence[tuple[int, Delivery]],
        gone: dict[str, int],
        held: dict[str, int],
        full: Mapping[str, int],
    ) -> list[Delivery]:
        """Return the deliveries with room on their queue; add the first others to `gone` and `held`."""
        now = int(self._clock() * 1000)
        room = {
            name: row.max_depth - self._depth(connection, row.id, now)
            for name, row in queues.items()
            if row.max_depth is not None
        }
        fitting: list[Delivery] = []
        for number, one in deliveries:
            if one.queue in gone or one.queue in held or one.queue in full:
                continue
            row = queues.get(one.queue)
            if row is None or row.max_message_length < len(one.message.body):
                gone[one.queue] = number
                continue
            left = room.get(one.queue)
            if left is not None:
                if left <= 0:
                    held[one.queue] = number
                    continue
                room[one.queue] = left - 1
            fitting.append(one)
        return fitting

    @staticmethod
    def _depth(connection: Connection, queue_id: int, now_ms: int) -> int:
        return int(connection.execute(HELD, {"in_queue": queue_id, "now_ms": now_ms}).scalar_one())

    def _lock(self, connection: Connection, job: str, progress: Progress) -> bool:
        """Lock the row of the batch; return whether it is new. Raises StoreError for another progress."""
        known = connection.execute(_LOCK, _of(job, progress.batch)).one_or_none()
        if _progress(known, progress.batch) != progress:
            raise StoreError(f"another process delivers batch {progress.batch} of job {job} to queues")
        return known is None

    def _insert(
        self, connection: Connection, queues: Mapping[str, Row[Any]], deliveries: Sequence[Delivery]
    ) -> None:
        """Insert the messages of deliveries, in order."""
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
            to = queues[one.queue]
            record = self._record(one, to, arrivals[one.queue], now)
            row = row_of(record, to.id, {})
            row["properties"] = with_delivery(
                one.message.properties, one.subscription, one.delivery_id, one.revision
            )
            rows.append(row)
            if to.indexes != "{}":
                record = record._replace(properties=properties_of(row["properties"]))
                keys += keys_of(record, to.id, to.indexes)
        if rows:
            connection.execute(PUT, rows)
        if keys:
            connection.execute(PUT_KEY, keys)

    def _record(self, one: Delivery, own: Row[Any], arrival: int, now_ms: int) -> Record:
        """Return the record of a delivery on a queue, without its properties."""
        message = one.message
        put = ValidatedPut(
            message.body,
            message.msg_id,
            message.correl_id or NO_ID,
            message.group_id or NO_ID,
            message.msg_seq_number,
            0,
            False,
            own.default_priority if message.priority is None else message.priority,
            own.default_persistence if message.persistence is None else message.persistence,
            expiry_at(message.expiration, now_ms),
            None,
        )
        record = arrived(put, arrival, own.order == "priority", self._prefix, now_ms)
        timestamp = now_ms if message.timestamp is None else message.timestamp
        return record._replace(timestamp=timestamp, expiration=message.expiration)

    def _write(self, connection: Connection, job: str, after: Progress, is_new: bool) -> None:
        states: dict[str, int | list[str | int]] = dict(after.gone)
        for state in (_HELD, _FULL):
            states |= {name: [state, number] for name, number in getattr(after, state).items()}
        gone = json.dumps(states)
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
    if known.batch != batch:
        return None
    gone: dict[str, int] = {}
    states: dict[str, dict[str, int]] = {_HELD: {}, _FULL: {}}
    for name, given in json.loads(known.gone).items():
        if isinstance(given, int):
            gone[name] = given
        else:
            state, number = given
            states[state][name] = number
    return Progress(batch, known.done, gone, states[_HELD], states[_FULL])
