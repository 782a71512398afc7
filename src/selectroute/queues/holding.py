"""What a queue in memory holds: its messages, the calls that wait and the units, under one lock."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable
from threading import ExceptHookArgs, Lock
from typing import Final

from selectroute.queues.admission import Admitted
from selectroute.queues.catalogue import Catalogue, Statistics
from selectroute.queues.errors import (
    MQRC_HOBJ_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_Q_FULL,
    failed,
)
from selectroute.queues.groups import Handle, Wanted, position_after
from selectroute.queues.memory_unit import MemoryUnit
from selectroute.queues.message import UNLIMITED, Descriptor, Message
from selectroute.queues.places import place_of
from selectroute.queues.positions import EXPIRATION
from selectroute.queues.record import Record, descriptor_of, given_out, returned
from selectroute.queues.settings import QueueSettings
from selectroute.queues.waiting import Waiter, Waiters
from selectroute.selector.sentences import counted

_ID_PREFIX: Final = b"AMQ "
"""How IBM MQ's own message ids begin."""


class Holding:
    """Messages that may be got, messages in units, and who waits. Every method is safe for threads.

    A message is in exactly one place: in the catalogue, in a unit, or gone.
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
        self._id_prefix = _ID_PREFIX + secrets.token_bytes(12)
        self._token_prefix = secrets.token_bytes(8)
        self._catalogue = Catalogue(self.statistics, self._token_prefix, self._id_prefix)
        self._forgotten: deque[tuple[int, list[Record]]] = deque()
        self._closed = False

    @property
    def depth(self) -> int:
        """How many messages could be got now."""
        with self._lock:
            self._begin(None)
            return self._catalogue.count

    def put(self, admitted: Admitted, unit: MemoryUnit | None) -> Descriptor:
        """Give a message its place, on the queue or in the unit."""
        body, msg_id, correl_id, group_id, sequence, offset, last, priority, persistence, expiry, own = (
            admitted
        )
        timestamp = int(self._clock() * 1000)
        given: list[Waiter] | None = None
        with self._lock:
            self._begin(unit)
            limit = self.settings.max_depth
            if limit is not None and self._catalogue.count + self._in_units >= limit:
                raise failed(
                    MQRC_Q_FULL, f"the queue holds {counted(limit, 'message')}, and may hold no more"
                )
            self._arrivals = arrival = self._arrivals + 1
            place = place_of(arrival, priority if self._by_priority else None)
            record = (
                msg_id or self._id_prefix + arrival.to_bytes(8, "big"),
                correl_id,
                group_id,
                sequence,
                offset,
                last,
                priority,
                persistence,
                expiry,
                timestamp,
                0,
                0 if expiry == UNLIMITED else timestamp + 100 * expiry,
                place,
                body,
                own,
            )
            if unit is not None:
                unit.puts.append(record)
                self._in_units += 1
            elif self._waiters.count:
                given = self._arrive((record,))
            else:
                self._catalogue.add(record)
        if given or self._forgotten:
            self._finish(given)
        return descriptor_of(record, self._token_prefix)

    def take(self, wanted: Wanted, unit: MemoryUnit | None, waiter: Waiter | None) -> Record | None:
        """Take what is wanted off the queue; if there is nothing, `waiter` waits for it."""
        with self._lock:
            catalogue = self._catalogue
            if unit is not None or catalogue.expiring or self._closed:
                self._begin(unit)
            find = catalogue.find
            record = find(wanted.request) if wanted.handle is None else wanted.find(catalogue)
            if record is not None:
                catalogue.remove(record)
                if unit is not None or wanted.handle is not None:
                    self._taken(record, unit, wanted.handle)
            elif waiter is not None:
                self._waiters.add(waiter)
        if self._forgotten:
            self._settle()
        return record

    def look(self, wanted: Wanted, waiter: Waiter | None) -> Record | None:
        """Return what is wanted and leave it there; if there is nothing, `waiter` waits for it."""
        with self._lock:
            self._begin(None)
            record = wanted.find(self._catalogue)
            if record is None and waiter is not None:
                self._waiters.add(waiter)
        self._finish(None)
        return record

    def at(self, place: int) -> Record | None:
        """Return the message in a place."""
        with self._lock:
            self._begin(None)
            return self._catalogue.get(place)

    def take_at(self, place: int, unit: MemoryUnit | None) -> Record | None:
        """Take the message in a place off the queue."""
        with self._lock:
            self._begin(unit)
            record = self._catalogue.get(place)
            if record is not None:
                self._catalogue.remove(record)
                self._taken(record, unit, None)
        self._finish(None)
        return record

    def waited(self, waiter: Waiter, seconds: float) -> Record:
        """Wait until the waiter is handed its message. Raises MQError 2033 when the time is over."""
        try:
            waiter.wait(seconds)
        except BaseException:  # a KeyboardInterrupt: what was handed over meanwhile is nobody's
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

    def cancel(self, waiter: Waiter) -> bool:
        """Let a call wait no longer; return whether it still did."""
        with self._lock:
            return self._waiters.remove(waiter)

    def begin(self) -> MemoryUnit:
        """Begin a unit of work."""
        return MemoryUnit(self)

    def end(self, unit: MemoryUnit, *, commit: bool) -> None:
        """End a unit: its puts, or else its gets, are on the queue from now on."""
        with self._lock:
            self._begin(unit)
            unit.ended = True
            if not commit:
                unit.restore_positions()
            given = self._release(len(unit.puts), unit.gets, unit.puts if commit else None)
        self._finish(given)

    def adopt(self, puts: int, gets: list[Record]) -> None:
        """Back out what a unit did that was forgotten; called from wherever its memory is freed.

        That may be inside of a method of this very object, under the lock: whoever has the lock then does
        it when done.
        """
        self._forgotten.append((puts, gets))
        if self._lock.acquire(blocking=False):
            self._lock.release()
            self._settle()

    def close(self) -> None:
        """Let go of everything; whoever waits is told."""
        with self._lock:
            self._closed = True
            given = self._waiters.all()
            self._waiters = Waiters(self.statistics)
            self._catalogue = Catalogue(self.statistics, self._token_prefix, self._id_prefix)
        for waiter in given:
            waiter.hand_over()

    def shown(self, record: Record) -> Message:
        """Return a message as it is given out, with the expiry that is left."""
        return given_out(record, self._token_prefix, self._clock)

    # ---- what follows is called with the lock, but for the last two

    def _begin(self, unit: MemoryUnit | None) -> None:
        """Refuse a closed queue and an ended unit; drop what has expired."""
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
        """Give messages to those who wait for them, and the others their places; returns the former."""
        given: list[Waiter] = []
        for record in records:
            if record[EXPIRATION] and record[EXPIRATION] <= self._clock() * 1000:
                continue
            offered = self._waiters.offer(record) if self._waiters.count else []
            given += offered
            if offered and not offered[-1].browses:
                self._taken(record, offered[-1].unit, offered[-1].wanted.handle)
            else:
                self._catalogue.add(record)
        return given

    def _taken(self, record: Record, unit: MemoryUnit | None, handle: Handle | None) -> None:
        """Note who has a message that is off the queue now."""
        if handle is not None:
            before = handle.position
            handle.position = position_after(record, before)
            if unit is not None:
                unit.moved(handle, before)
        if unit is not None:
            unit.gets.append(record)
            self._in_units += 1

    def _release(self, puts: int, gets: list[Record], committed: list[Record] | None) -> list[Waiter]:
        """Take messages out of a unit and put those on the queue that belong there now."""
        self._in_units -= puts + len(gets)
        return self._arrive(map(returned, gets) if committed is None else committed)

    def _settle(self) -> None:
        """Back out the units that were forgotten."""
        while self._forgotten:
            given: list[Waiter] = []
            with self._lock:
                if self._forgotten and not self._closed:
                    given = self._release(*self._forgotten.popleft(), None)
                else:
                    self._forgotten.clear()
            self._hand_over(given)

    def _finish(self, given: list[Waiter] | None) -> None:
        if given:
            self._hand_over(given)
        if self._forgotten:
            self._settle()

    def _hand_over(self, given: list[Waiter]) -> None:
        for waiter in given:
            try:
                waiter.hand_over()
            except Exception as error:
                # It is no fault of whoever put the message: told as that of a thread of its own would be.
                threading.excepthook(ExceptHookArgs((type(error), error, error.__traceback__, None)))
                assert waiter.record is not None
                with self._lock:
                    again = self._arrive((waiter.record,))
                self._hand_over(again)
