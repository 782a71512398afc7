"""What a queue in a database holds: its messages, those in units too, and who waits for them here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from sqlalchemy import Connection, Executable

from selectroute.queues.admission import Admitted
from selectroute.queues.catalogue import Statistics
from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQError,
    failed,
)
from selectroute.queues.groups import Wanted, position_after
from selectroute.queues.message import Descriptor, Message
from selectroute.queues.record import PLACE, Record, descriptor_of, given_out
from selectroute.queues.sql_arrivals import Arrivals
from selectroute.queues.sql_call import Bell, SqlCall
from selectroute.queues.sql_database import Defined, QueueDatabase
from selectroute.queues.sql_endings import Endings
from selectroute.queues.sql_indexes import SqlIndexes
from selectroute.queues.sql_lookup import SqlLookup
from selectroute.queues.sql_statements import (
    AT,
    CHANGES,
    DEPTH,
    INDEXES,
    shape_of,
    take,
    take_at,
)
from selectroute.queues.sql_unit import SqlUnit
from selectroute.queues.sql_watch import Watch
from selectroute.queues.stored import record_of
from selectroute.queues.waiting import Waiter


class SqlHolding:
    """See `Held`. The messages are in the database and nowhere else; every call is one transaction, or finds
    a message in one and takes it in a second, if it is still there.
    """

    def __init__(
        self,
        database: QueueDatabase,
        defined: Defined,
        clock: Callable[[], float],
        *,
        owns_database: bool,
    ) -> None:
        store, queue = database.store, defined.id
        self.settings = defined.settings
        self.statistics = Statistics()
        self._database = database
        self._owns_database = owns_database
        self._store = store
        self._in_queue = {"in_queue": queue}
        self._token_prefix = defined.token_prefix
        self._clock = clock
        self._arrivals = Arrivals(queue, defined.settings)
        self._endings = Endings(store, database.owner, self._now, self._released)
        self._owner = self._endings.owner
        self._watch = Watch(self.statistics, self._changes, self._arrived, self._endings.tend_now_and_then)
        self._indexes = SqlIndexes(store, queue, self.statistics)
        self._lock = Lock()
        self._closed = False

    @property
    def depth(self) -> int:
        """How many messages could be got now. O(depth), in the database."""
        self._begin()
        with self._store.reading() as connection:
            return int(connection.execute(DEPTH, self._now()).scalar_one())

    def put(self, admitted: Admitted, unit: SqlUnit | None) -> Descriptor:
        """Give a message its place, on the queue or in the unit."""
        self._begin()
        with self._in(unit) as marks:
            with self._store.writing() as connection:
                if unit is not None:
                    self._owner.check(connection, marks["own"])
                record = self._arrivals.add(connection, admitted, marks, self._now())
            if unit is not None:
                unit.puts += 1
        if unit is None:
            self._watch.arrived(record)
        return descriptor_of(record, self._token_prefix)

    def take(self, wanted: Wanted, unit: SqlUnit | None, waiter: Waiter | None) -> Record | None:
        """Take what is wanted off the queue; if there is nothing, `waiter` waits for it."""
        record = self._take(wanted, unit)
        if record is None and self._endings.tend():
            record = self._take(wanted, unit)
        if record is None and waiter is not None:
            self._watch.add(waiter)
        return record

    def look(self, wanted: Wanted, waiter: Waiter | None) -> Record | None:
        """Return what is wanted and leave it there; if there is nothing, `waiter` waits for it."""
        record = self._look(wanted)
        if record is None and self._endings.tend():
            record = self._look(wanted)
        if record is None and waiter is not None:
            self._watch.add(waiter)
        return record

    def waited(self, waiter: Waiter, seconds: float) -> Record:
        """Wait until there is what the waiter waits for. Raises MQError 2033 when the time is over."""
        deadline = time.monotonic() + seconds
        record: Record | None = None
        offered: Record | None = None
        try:
            while True:
                # At once, too: something may have come before the call was seen to wait.
                record = self._again(waiter)
                if record is not None:
                    return record
                left = deadline - time.monotonic()
                if left <= 0:
                    raise failed(MQRC_NO_MSG_AVAILABLE)
                offered = None
                waiter.wait(left)
                offered = waiter.record
                self._watch.remove(waiter)
                self._begin()
                waiter = Waiter(waiter.wanted, browses=waiter.browses, unit=waiter.unit)
                self._watch.add(waiter)
        finally:
            self._watch.remove(waiter)
            place = None if record is None else record[PLACE]
            if any(one is not None and one[PLACE] != place for one in (offered, waiter.record)):
                self._watch.wake_all()  # somebody else may want what this call was woken for

    def call(self, wanted: Wanted, ring: Callable[[], None], unit: SqlUnit | None, browses: bool) -> SqlCall:
        """Return a call that looks for what is wanted whenever it is rung, and waits without a thread."""
        return SqlCall(
            self._watch, self._again, self.shown, lambda: Bell(wanted, ring, browses=browses, unit=unit)
        )

    def listed(self, wanted: Wanted, most: int) -> list[Record]:
        """Return the first matches without their bodies, as one transaction sees them."""
        self._begin()
        records: list[Record] = []
        with self._store.reading() as connection:
            lookup = self._lookup(connection)
            while len(records) < most and (found := wanted.find(lookup)) is not None:
                records.append(found)
                wanted = wanted._replace(after=found[PLACE])
        self._indexes.owe(lookup.vain)
        return records

    def at(self, place: int) -> Record | None:
        """Return the message in a place."""
        self._begin()
        with self._store.reading() as connection:
            row = connection.execute(AT, {**self._now(), "at_place": place}).one_or_none()
        return None if row is None else record_of(row)

    def take_at(self, place: int, unit: SqlUnit | None) -> Record | None:
        """Take the message in a place off the queue."""
        self._begin()
        return self._taken(take_at(unit is not None), {"at_place": place}, unit)

    def begin(self) -> SqlUnit:
        """Begin a unit. The database hears of it when something is put or got in it."""
        return SqlUnit(self, self._owner.next_unit())

    def end(self, unit: SqlUnit, *, commit: bool) -> None:
        """End a unit, in one transaction. Raises MQError 2003 if it was backed out because this process was
        taken for dead.
        """
        self._begin()
        with unit.lock:
            unit.check()
            if unit.owner is not None:
                expected = unit.puts, unit.gets
                try:
                    self._endings.end(unit.owner, unit.number, commit=commit, expected=expected)
                except MQError:  # it is over; after a StoreError it can be ended again
                    unit.ended = True
                    raise
            unit.ended = True
            if not commit:
                unit.restore_positions()

    def forget(self, owner: int, unit: int) -> None:
        """Back out a unit that nobody can end any more; the next call does it."""
        self._endings.forget(owner, unit)

    def shown(self, record: Record) -> Message:
        """Return a message as it is given out, with the expiry that is left."""
        return given_out(record, self._token_prefix, self._clock)

    def close(self) -> None:
        """Back all units of this queue out, and close its database if that is its own; who waits is told."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        self._watch.close()
        if self._owns_database:
            self._database.close()
        else:
            self._endings.leave()

    # ---- inside

    def _now(self) -> dict[str, int]:
        return {**self._in_queue, "now_ms": int(self._clock() * 1000)}

    def _changes(self) -> tuple[int, int]:
        with self._store.reading() as connection:
            found = connection.execute(CHANGES, self._in_queue).one_or_none()
        return (0, 0) if found is None else (found.arrivals, found.releases)

    def _arrived(self, after: int, upto: int) -> list[Record]:
        """The visible messages that arrived behind a number and up to another one."""
        with self._store.reading() as connection:
            return self._arrivals.between(connection, after, upto, self._now())

    def _begin(self) -> None:
        """Refuse a closed queue, and look after the dead from time to time."""
        if self._closed:
            raise failed(MQRC_HOBJ_ERROR, "the queue is closed")
        self._endings.tend_now_and_then()

    def _released(self) -> None:
        self._watch.released()

    @contextmanager
    def _in(self, unit: SqlUnit | None) -> Iterator[dict[str, int]]:
        """What marks the messages of a unit, which does not end meanwhile."""
        if unit is None:
            yield {}
            return
        with unit.lock:
            unit.check()
            if unit.owner is None:
                unit.owner = self._owner.enter()
            yield {"own": unit.owner, "of_unit": unit.number}

    def _take(self, wanted: Wanted, unit: SqlUnit | None) -> Record | None:
        self._begin()
        if unit is not None:
            unit.check()
        request, _, handle = wanted
        if handle is None and request.selection is None and request.msg_token is None:
            shape, given = shape_of(request)
            record = self._taken(take(shape, unit is not None), given, unit)
            self.statistics.looked_at += record is not None
            return record
        while True:
            found = self._find(wanted)
            if found is None:
                return None
            record = self._taken(take_at(unit is not None), {"at_place": found[PLACE]}, unit)
            if record is not None:
                break
        if handle is not None:
            before = handle.position
            handle.position = position_after(record, before)
            if unit is not None:
                unit.moved(handle, before)
        return record

    def _taken(self, statement: Executable, given: dict[str, Any], unit: SqlUnit | None) -> Record | None:
        """Take one message, for good or into the unit."""
        if unit is None:
            rows = self._store.single(statement, {**given, **self._now()})
            return record_of(rows[0]) if rows else None
        with self._in(unit) as marks:
            with self._store.writing() as connection:
                self._owner.check(connection, marks["own"])
                row = connection.execute(statement, {**given, **marks, **self._now()}).one_or_none()
            if row is not None:
                unit.gets += 1
        return None if row is None else record_of(row)

    def _look(self, wanted: Wanted) -> Record | None:
        self._begin()
        while True:
            found = self._find(wanted)
            record = None if found is None else self.at(found[PLACE])
            if found is None or record is not None:
                return record

    def _find(self, wanted: Wanted) -> Record | None:
        """Find what is wanted, without its body; and make the index for want of which much was looked at."""
        with self._store.reading() as connection:
            lookup = self._lookup(connection)
            found = wanted.find(lookup)
        self._indexes.owe(lookup.vain)
        return found

    def _lookup(self, connection: Connection) -> SqlLookup:
        indexes = connection.execute(INDEXES, self._in_queue).scalar_one_or_none() or "{}"
        return SqlLookup(connection, self._now(), indexes, self._token_prefix, self.statistics)

    def _again(self, waiter: Waiter) -> Record | None:
        """Look again for what a call waits for; in a unit that has ended it gets nothing.

        Many look in vain: they only read, and keep nobody who writes.
        """
        if waiter.browses:
            return self._look(waiter.wanted)
        if waiter.unit is not None and waiter.unit.ended:
            return None
        self._begin()
        return None if self._find(waiter.wanted) is None else self._take(waiter.wanted, waiter.unit)
