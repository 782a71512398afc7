"""Storage of a queue in a database: its messages, its units, and the waiting calls of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Executable

from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_UNKNOWN_OBJECT_NAME,
    MQError,
    failed,
    queue_full,
)
from selectroute.queues.lookup import Lookup, LookupStatistics
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import (
    ARRIVALS,
    MAX_KEY,
    StoredMessage,
    arrived,
    current_message_of,
    descriptor_of,
    new_id_prefix,
    queue_key_in,
    queue_key_of,
)
from selectroute.queues.sql.database import Defined, QueueDatabase
from selectroute.queues.sql.lookup import Attributes, SqlIndexes, SqlLookup, keys_of
from selectroute.queues.sql.statements import (
    ARRIVE,
    AT,
    BETWEEN,
    CHANGES,
    DEPTH,
    FIRST,
    HELD,
    INDEXES,
    PUT,
    PUT_KEY,
    shape_of,
    take,
    take_at,
)
from selectroute.queues.sql.tables import bare_record_of, record_of, row_of
from selectroute.queues.sql.units import UnitEndings, UnitState
from selectroute.queues.sql.watch import QueueWatch, WaitingCall
from selectroute.queues.unit import UnitOfWork, move
from selectroute.queues.waiting import Waiter

Unit = UnitOfWork[UnitState]


class SqlStore:
    """`MessageStore` in a database. Safe for threads.

    Every call is one transaction, or finds a message in one and takes it in a second, if still available.
    """

    def __init__(
        self, database: QueueDatabase, defined: Defined, clock: Callable[[], float], *, owns_database: bool
    ) -> None:
        store, queue = database.store, defined.id
        self.settings = defined.settings
        self.statistics = LookupStatistics()
        self.database = database
        self.defined = defined
        self._owns_database = owns_database
        self._store = store
        self._in_queue = {"in_queue": queue}
        self._token_prefix = defined.token_prefix
        self._clock = clock
        self._by_priority = defined.settings.order == "priority"
        self._id_prefix = new_id_prefix()
        self._endings = UnitEndings(store, database.owner, self.now)
        self._owner = self._endings.owner
        self.url = store.url.render_as_string(hide_password=True)
        self.watch = QueueWatch(self.statistics, self._changes, self._arrived, self._endings.clean_up_if_due)
        self.indexes = SqlIndexes(store, queue, self.statistics)
        self._lock = Lock()
        self.is_closed = False

    @property
    def depth(self) -> int:
        """Number of messages available to a get now. O(1), but for those that have just expired."""
        self.begin()
        with self._store.reading() as connection:
            return int(connection.execute(DEPTH, self.now()).scalar_one())

    @property
    def oldest(self) -> int | None:
        """Time of the put, in milliseconds since 1970, of the available message that arrived first.

        None without messages. O(log depth) for each priority on the queue, and O(messages in units
        before it).
        """
        self.begin()
        parameters, after, first = self.now(), -1, None
        with self._store.reading() as connection:
            while (
                row := connection.execute(FIRST, {**parameters, "after": after}).one_or_none()
            ) is not None:
                candidate = row.place & ARRIVALS, row.timestamp
                first = candidate if first is None else min(first, candidate)
                after = row.place | ARRIVALS  # the last key of its priority
        return None if first is None else int(first[1])

    @property
    def waiting(self) -> int:
        """Number of gets that wait now in this process."""
        return self.watch.gets

    def put(self, message: ValidatedPut, unit: Unit | None) -> Descriptor:
        """Store a message, on the queue or in the unit."""
        self.begin()
        with self._in(unit) as marks:
            with self._store.writing() as connection:
                if unit is not None:
                    self._owner.check(connection, marks["own"])
                record = self._arrive(connection, message, marks)
            if unit is not None:
                unit.state.puts += 1
        if unit is None:
            self.watch.arrived(record)
        return descriptor_of(record, self._token_prefix)

    def take(self, lookup: Lookup, unit: Unit | None, waiter: Waiter | None) -> StoredMessage | None:
        """Take the first match off the queue. A waiter is added by `wait`, which looks again."""
        record = self._take(lookup, unit)
        return self._take(lookup, unit) if record is None and self._endings.clean_up() else record

    def browse(self, lookup: Lookup, waiter: Waiter | None) -> StoredMessage | None:
        """Return the first match, left on the queue. A waiter is added by `wait`, which looks again."""
        record = self._browse(lookup)
        return self._browse(lookup) if record is None and self._endings.clean_up() else record

    def wait(self, waiter: Waiter, seconds: float) -> StoredMessage:
        """Wait for the message of a waiter. Raises MQError 2033 after the timeout."""
        deadline = time.monotonic() + seconds
        call = self.call(waiter.lookup, None, waiter.unit, waiter.browses)
        try:
            while (record := call.find()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise failed(MQRC_NO_MSG_AVAILABLE)
                call.wait(left)
            return record
        finally:
            call.end()

    def call(
        self, lookup: Lookup, notify: Callable[[], None] | None, unit: Unit | None, browses: bool
    ) -> WaitingCall:
        """Return a get or browse that waits, without `notify` in the thread that calls it."""
        new_waiter = partial(Waiter, lookup, browses=browses, unit=unit, notify=notify)
        return WaitingCall(self.watch, self._retry, self.to_message, new_waiter)

    def key_in(self, msg_token: bytes) -> int:
        """Return the key in a token of this queue. Raises MQError 2331 for any other."""
        queue_key = queue_key_in(msg_token)
        if not msg_token.startswith(self._token_prefix) or queue_key > MAX_KEY:
            raise failed(MQRC_MSG_TOKEN_ERROR, "the token is of another queue")
        return queue_key

    def token_of(self, queue_key: int) -> bytes:
        """Return the token of the message with a key."""
        return self._token_prefix + queue_key.to_bytes(8, "big")

    def listed(self, lookup: Lookup, most: int) -> list[StoredMessage]:
        """Return the first matches without their bodies, in one transaction."""
        self.begin()
        with self._finding() as finder:
            return lookup.find_all(finder, most)

    def at(self, queue_key: int) -> StoredMessage | None:
        """Return the message with a key."""
        self.begin()
        with self._store.reading() as connection:
            row = connection.execute(AT, {**self.now(), "at_place": queue_key}).one_or_none()
        return None if row is None else record_of(row)

    def take_at(self, queue_key: int, unit: Unit | None) -> StoredMessage | None:
        """Take the message with a key off the queue."""
        self.begin()
        return self._taken(take_at(unit is not None), {"at_place": queue_key}, unit)

    def begin_unit(self) -> Unit:
        """Begin a unit of work. It is in the database from its first put or get on."""
        return UnitOfWork(self, UnitState(next(self._owner.units)))

    @property
    def unit_scope(self) -> object:
        """Database of the queue, all queues of which a unit may span."""
        return self.database

    def end_unit(self, unit: Unit, *, commit: bool, counts: bool = True) -> None:
        """Commit a unit or back it out, in one transaction.

        Raises MQError 2003 from a commit if another process considered this one dead and backed the unit out.
        """
        self.begin()
        state = unit.state
        with state.lock:
            unit.check()
            if state.owner is not None:
                try:
                    self._endings.end(state, commit=commit, counts=counts)
                except MQError:  # it has ended; after a StoreError it can be ended again
                    unit.ended = True
                    raise
            unit.ended = True
            if not commit:
                unit.restore_positions()

    def forget_unit(self, state: UnitState) -> None:
        """Back out an unreachable unit: by the next call, or within a second by a waiting one."""
        if state.owner is not None:
            self._endings.forget(state)

    def to_message(self, record: StoredMessage) -> QueuedMessage:
        """Return a record as a message for callers, with its remaining expiry."""
        return current_message_of(record, self._token_prefix, self._clock)

    def close(self) -> None:
        """Wake all waiting calls, back out all units, and close the database if this store owns it."""
        with self._lock:
            closed, self.is_closed = self.is_closed, True
        if closed:
            return
        self.watch.close()
        if self._owns_database:
            self.database.close()
        else:
            self._endings.leave()

    # ---- transactions

    def now(self) -> dict[str, int]:
        """Return the queue and the time, as parameters of statements."""
        return {**self._in_queue, "now_ms": int(self._clock() * 1000)}

    def _changes(self) -> tuple[int, int]:
        with self._store.reading() as connection:
            row = connection.execute(CHANGES, self._in_queue).one_or_none()
        return (0, 0) if row is None else (row.arrivals, row.releases)

    def _arrived(self, after: int, upto: int) -> list[StoredMessage]:
        """Return the visible messages with arrival numbers above `after` and up to `upto`, without bodies."""
        records: list[StoredMessage] = []
        with self._store.reading() as connection:
            for priority in range(10) if self._by_priority else (None,):
                ends = {"after": queue_key_of(after, priority), "upto": queue_key_of(upto, priority)}
                records += map(bare_record_of, connection.execute(BETWEEN, {**self.now(), **ends}))
        return records

    def _arrive(
        self, connection: Connection, message: ValidatedPut, marks: Mapping[str, int]
    ) -> StoredMessage:
        """Insert a message. Raises MQError 2053 for a full queue, 2085 for a deleted one.

        Args:
            connection: of the transaction.
            message: the validated put.
            marks: columns that mark the message as in a unit; empty without a unit.
        """
        now = self.now()
        counter = connection.execute(ARRIVE, now).one_or_none()
        if counter is None:
            raise failed(MQRC_UNKNOWN_OBJECT_NAME, "the queue was deleted")
        limit = self.settings.max_depth
        if limit is not None and connection.execute(HELD, now).scalar_one() >= limit:
            raise queue_full(limit)
        arrival, indexes = counter
        record = self.record_of_put(message, arrival)
        connection.execute(PUT, row_of(record, self.defined.id, marks))
        keys = keys_of(record, self.defined.id, indexes)
        if keys:
            connection.execute(PUT_KEY, keys)
        return record

    def record_of_put(self, message: ValidatedPut, arrival: int) -> StoredMessage:
        """Return the record of a message that arrives now as number `arrival`."""
        return arrived(message, arrival, self._by_priority, self._id_prefix, int(self._clock() * 1000))

    def begin(self) -> None:
        """Check that the queue is open, and clean up from time to time."""
        if self.is_closed:
            raise failed(MQRC_HOBJ_ERROR, "the queue is closed")
        self._endings.clean_up_if_due()
        self.database.remove_orphans_if_due()

    @contextmanager
    def _in(self, unit: Unit | None) -> Iterator[dict[str, int]]:
        """Keep a unit from ending, and yield the columns that mark its messages."""
        if unit is None:
            yield {}
            return
        state = unit.state
        with state.lock:
            unit.check()
            if state.owner is None:
                state.owner = self._owner.enter()
            state.released[self.defined.id] = self.watch.released
            yield {"own": state.owner, "of_unit": state.number}

    def _take(self, lookup: Lookup, unit: Unit | None) -> StoredMessage | None:
        self.begin()
        if unit is not None:
            unit.check()
        match, _, handle = lookup
        if handle is None and match.selection is None and match.msg_token is None:
            shape, parameters = shape_of(match)
            record = self._taken(take(shape, unit is not None), parameters, unit)
            self.statistics.looked_at += record is not None
            return record
        record = None
        while record is None:
            if (candidate := self._find(lookup)) is None:
                return None
            record = self._taken(take_at(unit is not None), {"at_place": candidate.queue_key}, unit)
        if handle is not None:
            move(handle, record, unit)
        return record

    def _taken(
        self, statement: Executable, parameters: dict[str, Any], unit: Unit | None
    ) -> StoredMessage | None:
        """Take one message, finally or into the unit."""
        if unit is None:
            rows = self._store.single(statement, {**parameters, **self.now()})
            return record_of(rows[0]) if rows else None
        with self._in(unit) as marks:
            with self._store.writing() as connection:
                self._owner.check(connection, marks["own"])
                row = connection.execute(statement, {**parameters, **marks, **self.now()}).one_or_none()
            if row is not None:
                unit.state.gets += 1
        return None if row is None else record_of(row)

    def _browse(self, lookup: Lookup) -> StoredMessage | None:
        self.begin()
        while (candidate := self._find(lookup)) is not None:
            if (record := self.at(candidate.queue_key)) is not None:
                return record
        return None

    def _find(self, lookup: Lookup) -> StoredMessage | None:
        """Return the first match without its body."""
        with self._finding() as finder:
            return lookup.find(finder)

    @contextmanager
    def _finding(self) -> Iterator[SqlLookup]:
        """Yield the lookup of a transaction; make an index that would have cost less, also if it failed."""
        vain: Mapping[Attributes, int] = {}
        try:
            with self._store.reading() as connection:
                finder = self.finder(connection)
                vain = finder.vain
                yield finder
        finally:
            self.indexes.owe(vain)

    def finder(self, connection: Connection) -> SqlLookup:
        """Return the lookup of a transaction."""
        indexes = connection.execute(INDEXES, self._in_queue).scalar_one_or_none() or "{}"
        return SqlLookup(connection, self.now(), indexes, self._token_prefix, self.statistics)

    def _retry(self, waiter: Waiter) -> StoredMessage | None:
        """Look again for the message of a waiter; None in a unit that has ended.

        Most retries find nothing: they only read, and block no writer.
        """
        if waiter.browses:
            return self._browse(waiter.lookup)
        if waiter.unit is not None and waiter.unit.ended:
            return None
        self.begin()
        return None if self._find(waiter.lookup) is None else self._take(waiter.lookup, waiter.unit)
