"""Storage of a queue in memory: its messages, its units and the waiting calls, under one lock."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock

from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_Q_FULL,
    failed,
)
from selectroute.queues.lookup.finding import Statistics
from selectroute.queues.lookup.groups import Handle, Lookup, position_after
from selectroute.queues.memory.catalogue import Catalogue
from selectroute.queues.message.message import Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import (
    Record,
    arrived,
    backed_out,
    current_message_of,
    descriptor_of,
    new_id_prefix,
)
from selectroute.queues.settings import QueueSettings
from selectroute.queues.unit import UnitOfWork
from selectroute.queues.waiting import Waiter, Waiters
from selectroute.selector.explain.sentences import counted


@dataclass(slots=True)
class UnitState:
    """Messages put and got in a unit of work."""

    puts: list[Record] = field(default_factory=list)
    gets: list[Record] = field(default_factory=list)


Unit = UnitOfWork[UnitState]


class MemoryStore:
    """`MessageStore` in memory. Safe for threads.

    invariant: a message that was put and is not gone is either in the catalogue or in one unit.
    """

    def __init__(self, settings: QueueSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.statistics = Statistics()
        self._clock = clock
        self._lock = Lock()
        self._waiters = Waiters(self.statistics)
        self._by_priority = settings.order == "priority"
        self._arrivals = 0
        self._in_units = 0
        self._id_prefix = new_id_prefix()
        self._token_prefix = secrets.token_bytes(8)
        self._catalogue = Catalogue(self.statistics, self._token_prefix, self._id_prefix)
        self._forgotten: deque[UnitState] = deque()
        self._closed = False

    @property
    def depth(self) -> int:
        """Number of messages available to a get now."""
        with self._lock:
            self._begin(None)
            return self._catalogue.count

    def put(self, message: ValidatedPut, unit: Unit | None) -> Descriptor:
        """Store a message, on the queue or in the unit."""
        now_ms = int(self._clock() * 1000)
        given: list[Waiter] | None = None
        with self._lock:
            self._begin(unit)
            limit = self.settings.max_depth
            if limit is not None and self._catalogue.count + self._in_units >= limit:
                raise failed(MQRC_Q_FULL, f"the queue holds {counted(limit, 'message')}, its maximum depth")
            self._arrivals += 1
            record = arrived(message, self._arrivals, self._by_priority, self._id_prefix, now_ms)
            if unit is not None:
                unit.state.puts.append(record)
                self._in_units += 1
            elif self._waiters.count:
                given = self._arrive((record,))
            else:
                self._catalogue.add(record)
        if given or self._forgotten:
            self._finish(given)
        return descriptor_of(record, self._token_prefix)

    def take(self, lookup: Lookup, unit: Unit | None, waiter: Waiter | None) -> Record | None:
        """Take the first match off the queue; without one, add `waiter` to the waiting calls."""
        with self._lock:
            catalogue = self._catalogue
            if unit is not None or catalogue.expiring or self._closed:
                self._begin(unit)
            find = catalogue.find
            record = find(lookup.request) if lookup.handle is None else lookup.find(catalogue)
            if record is not None:
                catalogue.remove(record)
                if unit is not None or lookup.handle is not None:
                    self._taken(record, unit, lookup.handle)
            elif waiter is not None:
                self._waiters.add(waiter)
        if self._forgotten:
            self._back_out_forgotten()
        return record

    def browse(self, lookup: Lookup, waiter: Waiter | None) -> Record | None:
        """Return the first match, left on the queue; without one, add `waiter` to the waiting calls."""
        with self._lock:
            self._begin(None)
            record = lookup.find(self._catalogue)
            if record is None and waiter is not None:
                self._waiters.add(waiter)
        self._finish(None)
        return record

    def at(self, queue_key: int) -> Record | None:
        """Return the message with a key."""
        with self._lock:
            self._begin(None)
            return self._catalogue.get(queue_key)

    def take_at(self, queue_key: int, unit: Unit | None) -> Record | None:
        """Take the message with a key off the queue."""
        with self._lock:
            self._begin(unit)
            record = self._catalogue.get(queue_key)
            if record is not None:
                self._catalogue.remove(record)
                self._taken(record, unit, None)
        self._finish(None)
        return record

    def wait(self, waiter: Waiter, seconds: float) -> Record:
        """Wait for the message of a waiter. Raises MQError 2033 after the timeout."""
        try:
            waiter.wait(seconds)
        except BaseException:  # a KeyboardInterrupt: put back a message that was handed over in the meantime
            with self._lock:
                record = waiter.record
                mine = record is not None and not waiter.browses and waiter.unit is None
                given = self._arrive((record,)) if record is not None and mine else None
                self._waiters.remove(waiter)
            self._finish(given)
            raise
        with self._lock:
            self._waiters.remove(waiter)
            if waiter.record is None:
                raise failed(MQRC_HOBJ_ERROR if self._closed else MQRC_NO_MSG_AVAILABLE)
            return waiter.record

    def begin_unit(self) -> Unit:
        """Begin a unit of work."""
        return UnitOfWork(self, UnitState())

    def end_unit(self, unit: Unit, *, commit: bool) -> None:
        """Commit a unit or back it out. O(puts) or O(gets)."""
        with self._lock:
            self._begin(unit)
            unit.ended = True
            if not commit:
                unit.restore_positions()
            given = self._release(unit.state, commit=commit)
        self._finish(given)

    def forget_unit(self, state: UnitState) -> None:
        """Back out an unreachable unit; called when its memory is freed.

        The call may come inside a method of this object that holds the lock; then that method backs the unit
        out after it has released the lock.
        """
        if not state.puts and not state.gets:
            return
        self._forgotten.append(state)
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._back_out_forgotten()

    def close(self) -> None:
        """Drop all messages and wake all waiting calls."""
        with self._lock:
            self._closed = True
            given = self._waiters.all()
            self._waiters = Waiters(self.statistics)
            self._catalogue = Catalogue(self.statistics, self._token_prefix, self._id_prefix)
        self._hand_over(given)

    def to_message(self, record: Record) -> QueuedMessage:
        """Return a record as a message for callers, with its remaining expiry."""
        return current_message_of(record, self._token_prefix, self._clock)

    # ---- called with the lock

    def _begin(self, unit: Unit | None) -> None:
        """Check that queue and unit have not ended, and drop expired messages."""
        if self._closed:
            raise failed(MQRC_HOBJ_ERROR, "the queue is closed")
        if unit is not None:
            unit.check()
        expiring = self._catalogue.expiring
        if expiring:
            now = int(self._clock() * 1000)
            while expiring and expiring[0][0] <= now:
                record = self._catalogue.get(expiring[0][1])
                assert record is not None
                self._catalogue.remove(record)

    def _arrive(self, records: Iterable[Record]) -> list[Waiter]:
        """Put messages on the queue or hand them to waiting calls; return these calls."""
        given: list[Waiter] = []
        for record in records:
            if record.expiration and record.expiration <= self._clock() * 1000:
                continue
            offered = self._waiters.offer(record) if self._waiters.count else []
            given += offered
            if offered and not offered[-1].browses:
                self._taken(record, offered[-1].unit, offered[-1].lookup.handle)
            else:
                self._catalogue.add(record)
        return given

    def _taken(self, record: Record, unit: Unit | None, handle: Handle | None) -> None:
        """Record in the unit and the group of a get that a message was taken."""
        if handle is not None:
            before = handle.position
            handle.position = position_after(record, before)
            if unit is not None:
                unit.moved(handle, before)
        if unit is not None:
            unit.state.gets.append(record)
            self._in_units += 1

    def _release(self, state: UnitState, *, commit: bool) -> list[Waiter]:
        """Put the puts of a committed unit, or the gets of a backed out one, on the queue."""
        self._in_units -= len(state.puts) + len(state.gets)
        return self._arrive(state.puts if commit else map(backed_out, state.gets))

    # ---- called without the lock

    def _back_out_forgotten(self) -> None:
        """Back out the units that were forgotten."""
        while self._forgotten:
            given: list[Waiter] = []
            with self._lock:
                if self._forgotten and not self._closed:
                    given = self._release(self._forgotten.popleft(), commit=False)
                else:
                    self._forgotten.clear()
            self._hand_over(given)

    def _finish(self, given: list[Waiter] | None) -> None:
        """Wake the calls that were given messages, and back out forgotten units."""
        if given:
            self._hand_over(given)
        if self._forgotten:
            self._back_out_forgotten()

    def _hand_over(self, given: list[Waiter]) -> None:
        for waiter in given:
            waiter.hand_over()
