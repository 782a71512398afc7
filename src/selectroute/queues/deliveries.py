"""What a stream delivers to the queues of a database: each delivery of a batch put once, whatever crashes.

::

    batch   0 ─────────── done ─────────────────────────── all deliveries, in an order that never changes
                           └─ chunk ─┘ put, and `done` moved behind it, in one transaction

Which batch a job is at, and how many of its deliveries are on the queues, stands in the same database as the
queues. So whoever goes on after a crash knows what was put, also of messages that were got since. Batches
come one after another: one row for a job's stream and one for its backfills are all that is ever kept.

A queue that is full holds back what is for it, and nothing else. The row says from which delivery on, and so
its messages keep their order::

    put ── no room ──→ held, from number n on ── put_held, n moves on ──→ nothing is left of the batch
    put ── gone ──→ gone, from n on                └──── give_up ──→ full: what comes from n on is never put

`give_up` decides, in a transaction of its own: what was put before it stays put, and from then on all that is
left is the caller's to keep elsewhere, whatever crashes and however much room there is later.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, insert, select, update

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
_DEPTHS: Final = select(queue.c.id, queue.c.name, queue.c.max_depth).where(
    queue.c.name.in_(bindparam("names", expanding=True))
)
_HELD, _FULL = "held", "full"


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
    and from which delivery on: none of these is put, not even if the queue comes back. ``full`` are queues
    that had no room for so long that the rest was given up, likewise. Of a queue that is ``held`` what comes
    from that delivery on is still to be put, whatever ``done`` says.
    """

    batch: int
    done: int = 0
    gone: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    full: Mapping[str, int] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether nothing of the batch was ever put, or decided."""
        return self == Progress(self.batch)


class Room(NamedTuple):
    """What fits into a queue that has a greatest depth."""

    left: int
    max_depth: int


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

        Those of each queue in their order, up to the first that it has no room for: from that one on they are
        held. Of a queue that is gone, held or full none.

        Raises StoreError if somebody else has gone on with the batch.
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
        """Put deliveries that were held, in one transaction; return how far the batch is then.

        Args:
            job: whose batch it is.
            progress: how far it is.
            deliveries: with their numbers in the batch: of any queues that are held all from where they are
                held, up to some number. Those of others are left alone.
            finished: queues that are held and of which the batch has nothing more behind these.

        Raises StoreError if somebody else has gone on with the batch.
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
        """Decide that what is left for these queues, which are held, is never put; return the progress then.

        Raises StoreError if somebody else has gone on with the batch.
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
        """Return how much fits into these queues; None for one without a greatest depth, nothing of one that
        is not there.
        """
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
        deliveries: Sequence[tuple[int, Delivery]],
        gone: dict[str, int],
        held: dict[str, int],
        full: Mapping[str, int],
    ) -> list[Delivery]:
        """The deliveries that there is room for. Notes which queues are gone or have no more, from which one
        on.
        """
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
        found: int = connection.execute(HELD, {"in_queue": queue_id, "now_ms": now_ms}).scalar_one()
        return found

    def _lock(self, connection: Connection, job: str, progress: Progress) -> bool:
        """Hold the row of the batch; return whether there is none yet. Raises StoreError if it is another."""
        known = connection.execute(_LOCK, _of(job, progress.batch)).one_or_none()
        if _progress(known, progress.batch) != progress:
            raise StoreError(f"another process delivers batch {progress.batch} of job {job} to queues")
        return known is None

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


def _record(row: Mapping[str, Any]) -> Record:
    """The message of a row as a selector sees it; its body is not among that."""
    fields = {**row, "correl_id": row["correl_id"] or NO_ID, "group_id": row["group_id"] or NO_ID}
    return (*(fields[name] for name in FIELDS), b"", properties_of(row["properties"]))
