"""Deliveries of a stream to the queues of a database: each put exactly once, whatever crashes in between.

Messages, and the progress of the task that puts them, are in the same database: each transaction stores
both. So an attempt of a task knows what was put, even if messages were got since. A job has one row for each
task of its stream, and one for each task of its side batches. An attempt's pending deliveries are put in
transactions of a bounded size.

The deliveries of a task have ascending numbers, which are the same in every attempt. A full queue holds back
only its own deliveries, and the row records from which one on, so that its messages keep their order::

    put ── no room ──→ held, from number n on ── put, n advances ──→ nothing is left of the task
    put ── gone ──→ gone, from n on      └── excluded ──→ full: deliveries from n on are never put

The attempt that finds a queue gone or full, and every later one, must refuse the deliveries from n on.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError

from selectroute.queues.message.from_stream import Routed, with_delivery
from selectroute.queues.message.message import properties_of
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import StoredMessage, arrived, expiry_at, new_id_prefix
from selectroute.queues.sql.lookup import keys_of
from selectroute.queues.sql.statements import ARRIVE_MANY, HELD, PUT, PUT_KEY
from selectroute.queues.sql.tables import delivered, metadata, queue, row_of
from selectroute.selector.fields import NO_ID
from selectroute.store.engine import Store
from selectroute.store.errors import OvertakenError, StoreError

_JOB: Final = and_(delivered.c.job == bindparam("of_job"), delivered.c.backfill == bindparam("is_backfill"))
_MINE: Final = and_(_JOB, delivered.c.task == bindparam("of_task"))
_BATCHES: Final = select(delivered.c.batch, delivered.c.plan).where(_JOB)
_READ: Final = select(delivered).where(_MINE)
_LOCK: Final = _READ.with_for_update()
_MOVE: Final = update(delivered).where(_MINE)
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

DONE: Final = 1 << 160
"""Number after the last delivery of any task."""


class Delivery(NamedTuple):
    """Delivery of a message for one subscription, to be put on a queue."""

    queue: str
    subscription: str
    delivery_id: str
    revision: int
    message: Routed


class TaskKey(NamedTuple):
    """Task that puts deliveries. Batches of the stream count up from 0, side batches down from -1."""

    job: str
    batch: int
    task: int = 0
    plan: str = ""
    """Digest of the plan of the batch."""


class Progress(NamedTuple):
    """Progress of a task: the messages put, and the number of the next delivery.

    The other fields map queues to the first delivery concerned. ``gone``: the queue was deleted or replaced;
    later deliveries are not put, even if it is created again. ``full``: the queue had no room for so long
    that the rest was given up. ``held``: deliveries from this one on are still to be put, even those before
    ``next``. ``attempt`` counts the attempts that have gone on after another one.
    """

    done: int = 0
    next: int = 0
    gone: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    full: Mapping[str, int] = {}
    attempt: int = 0

    def is_pending(self, number: int, queue: str) -> bool:
        """Return whether a delivery is still to be put."""
        if queue in self.gone or queue in self.full:
            return False
        return number >= self.held.get(queue, self.next)


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
        return self._absolute.render_as_string(hide_password=True)

    @property
    def url(self) -> str:
        """URL of the database for processes in other folders."""
        return self._absolute.render_as_string(hide_password=False)

    @property
    def _absolute(self) -> URL:
        url = self._store.url
        return url.set(database=os.path.abspath(self._store.path)) if self._store.is_sqlite else url

    def lengths(self) -> dict[str, int]:
        """Return all queues with the maximum length of a body, in bytes."""
        with self._store.reading() as connection:
            return {name: length for name, length in connection.execute(_LENGTHS)}

    def begun(self, job: str, batch: int) -> set[str] | None:
        """Return the plans by which deliveries of a batch were put; None if a later batch has begun.

        The later batch is of the same job, and like this one of its stream or of its side batches.
        """
        with self._store.reading() as connection:
            parameters = {"of_job": job, "is_backfill": batch < 0}
            rows = connection.execute(_BATCHES, parameters).all()
        if any(abs(row.batch) > abs(batch) for row in rows):
            return None
        return {row.plan for row in rows if row.batch == batch}

    def progress(self, task: TaskKey) -> Progress:
        """Return the progress of a task.

        Raises OvertakenError if it has begun a later batch, StoreError if it was put by another plan.
        """
        with self._store.reading() as connection:
            return _progress(connection.execute(_READ, _of(task)).one_or_none(), task)

    def put(
        self,
        task: TaskKey,
        progress: Progress,
        deliveries: Sequence[tuple[int, Delivery]],
        closed: dict[str, int],
        excluded: Collection[str] = (),
    ) -> Progress:
        """Put pending deliveries of a task, in one transaction; return the new progress.

        Deliveries of a queue are put in order up to the first without room; from that one on they are held.

        Args:
            task: the task.
            progress: its progress.
            deliveries: with their numbers, ascending: all that are pending and whose queues are not closed,
                up to some number.
            closed: the queues without room, with their maximum depth; those that are found are added.
            excluded: queues whose deliveries are given up at the first without room.

        Raises OvertakenError if another attempt has continued the task.
        """
        states = dict(progress.gone), dict(progress.held), dict(progress.full)
        closing = dict(closed)
        with self._store.writing() as connection:
            is_new = self._lock(connection, task, progress)
            queues = self._queues(connection, [delivery for _, delivery in deliveries])
            fitting = self._fitting(connection, queues, deliveries, *states, closing, excluded)
            after = max(progress.next, deliveries[-1][0] + 1)
            moved = Progress(progress.done + len(fitting), after, *states, progress.attempt)
            self._insert(connection, queues, fitting)
            self._write(connection, task, moved, is_new)
        closed |= closing
        return moved

    def take_over(self, task: TaskKey, progress: Progress) -> Progress:
        """Go on with a task as its only attempt: one before can put nothing more. Return the new progress.

        Raises OvertakenError if another attempt has continued the task.
        """
        return self._change(task, progress, progress._replace(attempt=progress.attempt + 1))

    def finish(self, task: TaskKey, progress: Progress, closed: Collection[str]) -> Progress:
        """Record that all of a task is put, but what closed queues hold; return the new progress.

        Raises OvertakenError if another attempt has continued the task.
        """
        held = {name: number for name, number in progress.held.items() if name in closed}
        return self._change(task, progress, progress._replace(next=DONE, held=held))

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

    def _change(self, task: TaskKey, progress: Progress, after: Progress) -> Progress:
        """Change the progress of a task without putting anything; return the new one."""
        with self._store.writing() as connection:
            self._lock(connection, task, progress)
            self._write(connection, task, after, is_new=False)
        return after

    # ---- in a transaction

    def _queues(self, connection: Connection, deliveries: Sequence[Delivery]) -> dict[str, Row[Any]]:
        """Return the queues of deliveries by name, locked until the transaction ends."""
        names = sorted({delivery.queue for delivery in deliveries})
        return {row.name: row for row in connection.execute(_QUEUES, {"names": names})}

    def _fitting(
        self,
        connection: Connection,
        queues: Mapping[str, Row[Any]],
        deliveries: Sequence[tuple[int, Delivery]],
        gone: dict[str, int],
        held: dict[str, int],
        full: dict[str, int],
        closed: dict[str, int],
        excluded: Collection[str],
    ) -> list[Delivery]:
        """Return the deliveries with room on their queue; move the others' states."""
        now = int(self._clock() * 1000)
        room = {
            name: row.max_depth - self._depth(connection, row.id, now)
            for name, row in queues.items()
            if row.max_depth is not None
        }
        fitting: list[Delivery] = []
        for number, delivery in deliveries:
            name = delivery.queue
            if name in gone or name in full or name in closed:
                continue
            row = queues.get(name)
            if row is None or row.max_message_length < len(delivery.message.body):
                gone[name] = number
                held.pop(name, None)
            elif room.get(name, 1) > 0:
                if name in room:
                    room[name] -= 1
                if name in held:
                    held[name] = number + 1
                fitting.append(delivery)
            elif name in excluded:
                full[name] = number
                held.pop(name, None)
            else:
                held[name] = number
                closed[name] = row.max_depth
        return fitting

    @staticmethod
    def _depth(connection: Connection, queue_id: int, now_ms: int) -> int:
        return int(connection.execute(HELD, {"in_queue": queue_id, "now_ms": now_ms}).scalar_one())

    def _lock(self, connection: Connection, task: TaskKey, progress: Progress) -> bool:
        """Lock the row of a task; return whether it is new. Raises OvertakenError for another progress."""
        known = connection.execute(_LOCK, _of(task)).one_or_none()
        if _progress(known, task) != progress:
            raise _moved(task)
        return known is None

    def _insert(
        self, connection: Connection, queues: Mapping[str, Row[Any]], deliveries: Sequence[Delivery]
    ) -> None:
        """Insert the messages of deliveries, in order."""
        counts = Counter(delivery.queue for delivery in deliveries)
        arrivals: dict[str, int] = {}
        for name in queues:
            if counts[name]:
                parameters = {"in_queue": queues[name].id, "count": counts[name]}
                arrivals[name] = connection.execute(ARRIVE_MANY, parameters).scalar_one() - counts[name]
        now = int(self._clock() * 1000)
        rows: list[dict[str, Any]] = []
        keys: list[dict[str, Any]] = []
        for delivery in deliveries:
            arrivals[delivery.queue] += 1
            to = queues[delivery.queue]
            record = self._record(delivery, to, arrivals[delivery.queue], now)
            row = row_of(record, to.id, {})
            row["properties"] = with_delivery(
                delivery.message.properties, delivery.subscription, delivery.delivery_id, delivery.revision
            )
            rows.append(row)
            if to.indexes != "{}":
                record = record._replace(properties=properties_of(row["properties"]))
                keys += keys_of(record, to.id, to.indexes)
        if rows:
            connection.execute(PUT, rows)
        if keys:
            connection.execute(PUT_KEY, keys)

    def _record(self, delivery: Delivery, target: Row[Any], arrival: int, now_ms: int) -> StoredMessage:
        """Return the record of a delivery on a queue, without its properties."""
        message = delivery.message
        put = ValidatedPut(
            message.body,
            message.msg_id,
            message.correl_id or NO_ID,
            message.group_id or NO_ID,
            message.msg_seq_number,
            0,
            False,
            target.default_priority if message.priority is None else message.priority,
            target.default_persistence if message.persistence is None else message.persistence,
            expiry_at(message.expiration, now_ms),
            None,
            message.timestamp,
            message.expiration,
        )
        return arrived(put, arrival, target.order == "priority", self._prefix, now_ms)

    def _write(self, connection: Connection, task: TaskKey, after: Progress, is_new: bool) -> None:
        row = {
            "batch": task.batch,
            "done": after.done,
            "queues": json.dumps([after.gone, after.held, after.full]),
            "plan": task.plan,
            "next": str(after.next),
            "attempt": after.attempt,
        }
        if not is_new:
            connection.execute(_MOVE.values(row), _of(task))
            return
        own = {"job": task.job, "backfill": task.batch < 0, "task": task.task}
        try:
            connection.execute(insert(delivered), own | row)
        except IntegrityError as error:  # there was no row to lock, and another attempt came first
            raise _moved(task) from error


def _of(task: TaskKey) -> dict[str, Any]:
    return {"of_job": task.job, "is_backfill": task.batch < 0, "of_task": task.task}


def _moved(task: TaskKey) -> OvertakenError:
    return OvertakenError(f"another process delivers batch {task.batch} of job {task.job} to queues")


def _progress(known: Any, task: TaskKey) -> Progress:
    if known is None or abs(known.batch) < abs(task.batch):
        return Progress()
    if known.batch != task.batch:
        raise _moved(task)
    if known.plan != task.plan:
        raise StoreError(
            f"batch {task.batch} was put to queues by another plan than this one: another process runs the "
            "job, or its input has changed"
        )
    gone, held, full = json.loads(known.queues)
    return Progress(known.done, int(known.next), gone, held, full, known.attempt)


_CHUNK: Final = 2_000
"""Deliveries per transaction: other writers wait at most a tenth of a second for it."""

_CHUNK_BYTES: Final = 16 << 20


class TaskPuts:
    """Puts of one attempt, from the first delivery of the task to the last.

    Args:
        database: the database of queues.
        task: the task.
        excluded: queues whose deliveries are given up at the first without room.

    Attributes:
        progress: the progress of the task.
        closed: the queues without room in this attempt, with their maximum depth.

    Calls raise OvertakenError if another attempt has continued the task.
    """

    def __init__(self, database: QueueDeliveries, task: TaskKey, excluded: Collection[str] = ()) -> None:
        self._database = database
        self._task = task
        self._excluded = excluded
        self.progress = database.progress(task)
        self.closed: dict[str, int] = {}

    def waits(self, number: int, queue: str) -> bool:
        """Return whether a delivery is to be put by this attempt."""
        return queue not in self.closed and self.progress.is_pending(number, queue)

    @property
    def is_rest_done(self) -> bool:
        """True if only deliveries to full queues are left of the task."""
        return self.progress.next == DONE

    def take_over(self) -> None:
        """Go on as the only attempt, if there was one before."""
        if self.progress != Progress():
            self.progress = self._database.take_over(self._task, self.progress)

    def put(self, deliveries: Iterable[tuple[int, Delivery]]) -> None:
        """Put the pending ones among the next deliveries."""
        chunk: list[tuple[int, Delivery]] = []
        size = 0
        for number, delivery in deliveries:
            if not self.waits(number, delivery.queue):
                continue
            chunk.append((number, delivery))
            size += len(delivery.message.body)
            if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                self._put(chunk)
                chunk, size = [], 0
        if chunk:
            self._put(chunk)

    def is_held_up(self) -> bool:
        """Return whether only full queues are left of the task, which still have no room."""
        held = self.progress.held
        if not self.is_rest_done or not held or not held.keys().isdisjoint(self._excluded):
            return False
        rooms = self._database.rooms(held)
        full = {name: room.max_depth for name, room in rooms.items() if room is not None and room.left <= 0}
        if full.keys() != held.keys():
            return False
        self.closed = full
        return True

    def finish(self) -> None:
        """Record that all is put, after the last delivery, if queues were held."""
        held = self.progress.held
        if held and (not self.is_rest_done or held.keys() != self.closed.keys()):
            self.progress = self._database.finish(self._task, self.progress, self.closed)

    def _put(self, chunk: list[tuple[int, Delivery]]) -> None:
        self.progress = self._database.put(self._task, self.progress, chunk, self.closed, self._excluded)
