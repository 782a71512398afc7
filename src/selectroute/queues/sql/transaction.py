"""Transaction on any number of queues of a database: puts, gets and settlements of many messages at once.

For a process that owns the messages it has got until it settles them: a broker. What belongs together is a
`QueueWork`, done whole or not at all. A transaction does many, and one that is refused, because a queue is
full, leaves the others alone. If the process dies, its messages return to their queues with their backout
counts raised (see `units`). A body that several messages of a transaction share is stored once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, update

from selectroute.queues.errors import MQRC_UNKNOWN_OBJECT_NAME, MQError, failed, queue_full
from selectroute.queues.lookup import Lookup
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import StoredMessage
from selectroute.queues.sql.lookup import Attributes, keys_of
from selectroute.queues.sql.statements import (
    ARRIVE_MANY,
    HELD,
    LOCK_QUEUES,
    PUT,
    PUT_KEY,
    RELEASED,
    TAKE_ALL_AT,
    shape_of,
    take_first,
)
from selectroute.queues.sql.store import SqlStore
from selectroute.queues.sql.tables import message, record_of, row_of, shared_body

OWNED: Final = 0
"""Number of the unit of the messages that a process owns; those of units of work begin at 1."""

_MIN_SHARED: Final = 100
"""Bytes of a body from which it is worth a row of its own."""

_OWN: Final = (
    message.c.queue == bindparam("in_queue"),
    message.c.place == bindparam("at_place"),
    message.c.owner == bindparam("own"),
)
_SETTLE: Final = delete(message).where(*_OWN)
_PUT_BACK: Final = (
    update(message)
    .where(*_OWN)
    .values(owner=None, unit=None, backout_count=message.c.backout_count + bindparam("raised"))
)
_SHARE: Final = insert(shared_body).returning(shared_body.c.id)


@dataclass(slots=True)
class QueuePut:
    """Message to put on a queue. `record` is set when it is done.

    The process gets the message at once if it is `owned`.
    """

    store: SqlStore
    message: ValidatedPut
    owned: bool = False
    record: StoredMessage | None = None


@dataclass(slots=True)
class QueueWork:
    """Puts and settlements that are done together or not at all.

    `settled` and `put_back` are messages that the process owns, by queue and key. The backout count of one
    that is put back is raised by the number beside it. `error` is set if the work is refused.
    """

    puts: list[QueuePut] = field(default_factory=list)
    settled: list[tuple[SqlStore, int]] = field(default_factory=list)
    put_back: list[tuple[SqlStore, int, int]] = field(default_factory=list)
    error: MQError | None = None

    def stores(self) -> Iterator[SqlStore]:
        """Yield the queues of the work, some of them several times."""
        yield from (put.store for put in self.puts)
        yield from (store for store, _ in self.settled)
        yield from (store for store, _, _ in self.put_back)


@dataclass(slots=True)
class QueueTake:
    """Get of the first matches of a queue, as many as `most`; `records` are set when it is done, in order."""

    store: SqlStore
    lookup: Lookup
    most: int
    records: list[StoredMessage] = field(default_factory=list)
    vain: Mapping[Attributes, int] = field(default_factory=dict)
    """Messages that were compared for lack of an index; see `SqlLookup`."""


def transact(works: Sequence[QueueWork], takes: Sequence[QueueTake] = ()) -> None:
    """Do works, then get messages, in one transaction on the database of all their queues.

    Raises MQError 2003 if another process considered this one dead: it owns nothing any more, and nothing was
    done. Raises `StoreError` if the database fails; then nothing was done either.
    """
    stores = {store.defined.id: store for work in works for store in work.stores()}
    stores |= {take.store.defined.id: take.store for take in takes}
    if not stores:
        return
    for store in stores.values():
        if not store.is_closed:
            store.begin()
    database = next(iter(stores.values())).database
    marks = {"own": database.owner.enter(), "of_unit": OWNED}
    with database.store.writing() as connection:
        database.owner.check(connection, marks["own"])
        transaction = _Transaction(connection, stores, marks)
        for work in works:
            work.error = transaction.refusal_of(work)
        admitted = [work for work in works if work.error is None]
        transaction.settle(admitted)
        transaction.put([put for work in admitted for put in work.puts])
        for take in takes:
            transaction.take(take)
    for work in admitted:
        for put in work.puts:
            if put.record is not None and not put.owned:
                put.store.watch.arrived(put.record)
    for store in {store for work in admitted for store, _, _ in work.put_back}:
        store.watch.released()
    for take in takes:
        take.store.indexes.owe(take.vain)


class _Transaction:
    """Transaction on some queues, whose rows it locks. `marks` name the unit of the messages owned."""

    def __init__(
        self, connection: Connection, stores: Mapping[int, SqlStore], marks: Mapping[str, int]
    ) -> None:
        self._connection = connection
        self._marks = marks
        self._stores = stores
        locked = connection.execute(LOCK_QUEUES, {"queues": sorted(stores)})
        self._indexes = {row.id: row.indexes for row in locked}
        self._room: dict[int, int] = {}

    def refusal_of(self, work: QueueWork) -> MQError | None:
        """Return why a work cannot be done; otherwise reserve the room that it needs."""
        needed = Counter(put.store.defined.id for put in work.puts)
        for queue, count in needed.items():
            store = self._stores[queue]
            if queue not in self._indexes or store.is_closed:
                return failed(MQRC_UNKNOWN_OBJECT_NAME, f"the queue {store.defined.name!r} was deleted")
            limit = store.settings.max_depth
            if limit is not None and count > self._room_of(queue, limit):
                return queue_full(limit, store.defined.name)
        for queue, count in needed.items():
            if queue in self._room:
                self._room[queue] -= count
        return None

    def settle(self, works: Sequence[QueueWork]) -> None:
        """Remove the messages that are settled, and return those that are put back to their queues."""
        settled = [self._own(store, place) for work in works for store, place in work.settled]
        put_back = [
            self._own(store, place) | {"raised": raised}
            for work in works
            for store, place, raised in work.put_back
        ]
        if settled:
            self._connection.execute(_SETTLE, settled)
        if put_back:
            released = sorted({row["in_queue"] for row in put_back})
            self._connection.execute(RELEASED, [{"in_queue": queue} for queue in released])
            self._connection.execute(_PUT_BACK, put_back)

    def put(self, puts: Sequence[QueuePut]) -> None:
        """Put messages, those of each queue in their order."""
        of_queue: defaultdict[int, list[QueuePut]] = defaultdict(list)
        for put in puts:
            of_queue[put.store.defined.id].append(put)
        shared = self._shared(puts)
        rows: list[dict[str, Any]] = []
        keys: list[dict[str, Any]] = []
        for queue, some in of_queue.items():
            last = self._connection.execute(ARRIVE_MANY, {"in_queue": queue, "count": len(some)}).scalar_one()
            for arrival, put in enumerate(some, start=last - len(some) + 1):
                put.record = record = put.store.record_of_put(put.message, arrival)
                row = row_of(record, queue, self._marks if put.owned else {}) | {"arriving": False}
                body = shared.get(id(put.message.body))
                if body is not None:
                    row |= {"body": None, "shared_body": body}
                rows.append(row)
                keys += keys_of(record, queue, self._indexes[queue])
        if rows:
            self._connection.execute(PUT, rows)
        if keys:
            self._connection.execute(PUT_KEY, keys)

    def take(self, take: QueueTake) -> None:
        """Get messages."""
        parameters = {**take.store.now(), **self._marks}
        match = take.lookup.match
        if match.selection is None and match.msg_token is None:
            shape, fields = shape_of(match)
            rows = self._connection.execute(take_first(shape), parameters | fields | {"most": take.most})
        else:
            finder = take.store.finder(self._connection)
            places = [record.queue_key for record in take.lookup.find_all(finder, take.most)]
            take.vain = finder.vain
            rows = self._connection.execute(TAKE_ALL_AT, parameters | {"places": places})
        take.records = sorted(map(record_of, rows), key=attrgetter("queue_key"))

    def _shared(self, puts: Sequence[QueuePut]) -> dict[int, int]:
        """Store the bodies that several messages share; return their ids by those of Python's objects."""
        bodies = {id(put.message.body): put.message.body for put in puts}
        uses = Counter(id(put.message.body) for put in puts)
        return {
            key: self._connection.execute(_SHARE, {"body": body}).scalar_one()
            for key, body in bodies.items()
            if uses[key] > 1 and len(body) >= _MIN_SHARED
        }

    def _room_of(self, queue: int, limit: int) -> int:
        if queue not in self._room:
            held = self._connection.execute(HELD, self._stores[queue].now()).scalar_one()
            self._room[queue] = limit - held
        return self._room[queue]

    def _own(self, store: SqlStore, place: int) -> dict[str, int]:
        return {"in_queue": store.defined.id, "at_place": place, "own": self._marks["own"]}
