"""Calls that wait for a message, found from the message that arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING, Final

from selectroute.queues.catalogue import Statistics
from selectroute.queues.groups import Wanted
from selectroute.queues.record import Record, message_of

if TYPE_CHECKING:
    from selectroute.index.index import Index
    from selectroute.queues.memory_unit import MemoryUnit

_NOBODY: Final[dict[int, Waiter]] = {}


class Waiter:
    """One call that waits. Whoever finds the message for it hands it over; nobody looks for it again."""

    __slots__ = ("_deliver", "_handed", "browses", "number", "record", "unit", "wanted")

    def __init__(
        self,
        wanted: Wanted,
        *,
        browses: bool = False,
        unit: MemoryUnit | None = None,
        deliver: Callable[[Record], None] | None = None,
    ) -> None:
        self.wanted = wanted
        self.browses = browses
        self.unit = unit
        self.record: Record | None = None
        self.number = 0
        self._deliver = deliver
        self._handed = Lock()
        self._handed.acquire()

    def takes(self, record: Record) -> bool:
        """Return whether an arriving message is what the call waits for; in an ended unit it gets none."""
        return self.wanted.wants(record) and (self.unit is None or not self.unit.ended)

    def hand_over(self) -> None:
        """Tell who waits that it has its message, or that there will be none."""
        if self._deliver is None:
            self._handed.release()
        elif self.record is not None:
            self._deliver(self.record)

    def wait(self, seconds: float) -> None:
        """Wait until something is handed over, or the time is over."""
        self._handed.acquire(timeout=-1 if seconds >= TIMEOUT_MAX else seconds)


class Waiters:
    """Waiting calls, by the ids that they wait for, by their selectors, and those that take any message.

    Selectors are in an `Index`, like those of subscriptions. Not safe for threads: the queue has the lock.
    """

    __slots__ = ("_any", "_by_id", "_index", "_numbers", "_selecting", "_statistics", "count")

    def __init__(self, statistics: Statistics) -> None:
        self.count = 0
        self._statistics = statistics
        self._numbers = 0
        self._by_id: dict[tuple[int, bytes], dict[int, Waiter]] = {}
        self._selecting: dict[str, Waiter] = {}
        self._any: dict[int, Waiter] = {}
        self._index: Index | None = None

    def add(self, waiter: Waiter) -> None:
        """Add a call that waits from now on. O(1), of a selector O(its size)."""
        self.count += 1
        self._numbers += 1
        waiter.number = self._numbers
        ids = waiter.wanted.ids
        if ids:
            self._by_id.setdefault(ids[0], {})[waiter.number] = waiter
        elif waiter.wanted.request.selection is not None:
            if self._index is None:
                from selectroute.index.index import Index  # loads NumPy, which most queues never need

                self._index = Index()
            self._index.add(str(waiter.number), waiter.wanted.request.selection.selector)
            self._selecting[str(waiter.number)] = waiter
        else:
            self._any[waiter.number] = waiter

    def remove(self, waiter: Waiter) -> bool:
        """Forget a call; return whether it was still waiting. O(1), of a selector O(its size)."""
        name = str(waiter.number)
        if name in self._selecting:
            assert self._index is not None
            del self._selecting[name]
            self._index.remove(name)
        elif waiter.number in self._any:
            del self._any[waiter.number]
        else:
            key = next(iter(waiter.wanted.ids), None)
            group = _NOBODY if key is None else self._by_id.get(key, _NOBODY)
            if waiter.number not in group:
                return False
            del group[waiter.number]
            if not group and key is not None:
                del self._by_id[key]
        self.count -= 1
        return True

    def all(self) -> list[Waiter]:
        """Every waiting call."""
        by_id = chain.from_iterable(group.values() for group in self._by_id.values())
        return [*by_id, *self._selecting.values(), *self._any.values()]

    def offer(self, record: Record) -> list[Waiter]:
        """Return the calls that get an arriving message, taken off: all that browse, the one that takes it
        last, if there is one.

        "The queue manager attempts to give priority to … specific get-wait requests that can be satisfied
        only by certain messages", before those that any message satisfies (IBM MQ, MQGMO_WAIT). O(calls that
        wait for one of its ids or whose selector it satisfies).
        """
        browsing: list[Waiter] = []
        taker: Waiter | None = None
        for waiter in self._candidates(record):
            if taker is not None and not waiter.browses:
                continue
            self._statistics.waiters_looked_at += 1
            if waiter.takes(record):
                if waiter.browses:
                    browsing.append(waiter)
                else:
                    taker = waiter
        given = browsing if taker is None else [*browsing, taker]
        for waiter in given:
            self.remove(waiter)
            waiter.record = record
        return given

    def _candidates(self, record: Record) -> Iterator[Waiter]:
        for field, value in enumerate(record[:3]):
            yield from self._by_id.get((field, value), _NOBODY).values()
        if self._selecting:
            assert self._index is not None
            matched = self._index.match(message_of(record, b"").selector_message)
            yield from (self._selecting[name] for name in sorted(matched, key=int))
        yield from self._any.values()
