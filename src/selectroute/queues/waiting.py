"""Calls that wait for a message, found from the message that arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING, Any, Final

from selectroute.queues.catalogue import Statistics
from selectroute.queues.groups import Wanted
from selectroute.queues.record import Record, message_of

if TYPE_CHECKING:
    from selectroute.index.index import Index
    from selectroute.queues.held_unit import HeldUnit

_NOBODY: Final[dict[int, Waiter]] = {}
_NUMBER: Final = attrgetter("number")


class Waiter:
    """One call that waits. Whoever finds the message for it hands it over; nobody looks for it again."""

    __slots__ = ("_deliver", "_handed", "browses", "id", "number", "record", "unit", "wanted")

    def __init__(
        self,
        wanted: Wanted,
        *,
        browses: bool = False,
        unit: HeldUnit | None = None,
        deliver: Callable[[Record], None] | None = None,
    ) -> None:
        self.wanted = wanted
        self.browses = browses
        self.unit: Any = unit  # of the kind of the queue
        self.record: Record | None = None
        self.number = 0
        # Where it is in a group may change while it waits: a backout by another thread takes it back.
        self.id = next(iter(wanted.ids), None)
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
    """Waiting calls, those that browse apart from those that take. Not safe for threads: the queue has the
    lock.
    """

    __slots__ = ("_browsing", "_numbers", "_statistics", "_taking", "count")

    def __init__(self, statistics: Statistics) -> None:
        self.count = 0
        self._statistics = statistics
        self._numbers = 0
        self._browsing = _Waiting()
        self._taking = _Waiting()

    def add(self, waiter: Waiter) -> None:
        """Add a call that waits from now on. O(1), of a new selector O(its size)."""
        self.count += 1
        self._numbers += 1
        waiter.number = self._numbers
        self._of(waiter).add(waiter)

    def remove(self, waiter: Waiter) -> bool:
        """Forget a call; return whether it was still waiting. O(1), of the last of a selector O(its size)."""
        found = self._of(waiter).remove(waiter)
        self.count -= found
        return found

    def all(self) -> list[Waiter]:
        """Every waiting call."""
        return [*self._browsing.all(), *self._taking.all()]

    def offer(self, record: Record) -> list[Waiter]:
        """Return the calls that get an arriving message, taken off: all that browse, the one that takes it
        last, if there is one.

        "The queue manager attempts to give priority to … specific get-wait requests that can be satisfied
        only by certain messages", before those that any message satisfies (IBM MQ, MQGMO_WAIT). O(calls that
        get it), if those that wait for one of its ids, or whose selectors it satisfies, ask for no more.
        """
        given = [waiter for waiter in self._browsing.candidates(record) if self._takes(waiter, record)]
        for waiter in self._taking.candidates(record):
            if self._takes(waiter, record):
                given.append(waiter)
                break
        for waiter in given:
            self.remove(waiter)
            waiter.record = record
        return given

    def _takes(self, waiter: Waiter, record: Record) -> bool:
        self._statistics.waiters_looked_at += 1
        return waiter.takes(record)

    def _of(self, waiter: Waiter) -> _Waiting:
        return self._browsing if waiter.browses else self._taking


class _Waiting:
    """Waiting calls by one of the ids that they wait for, by their selectors, and those without either.

    Each of the selectors is in an `Index` once, like those of subscriptions.
    """

    __slots__ = ("_any", "_by_id", "_by_selector", "_index")

    def __init__(self) -> None:
        self._by_id: dict[tuple[int, bytes], dict[int, Waiter]] = {}
        self._by_selector: dict[str, dict[int, Waiter]] = {}
        self._any: dict[int, Waiter] = {}
        self._index: Index | None = None

    def add(self, waiter: Waiter) -> None:
        selection = waiter.wanted.request.selection
        if waiter.id is not None:
            self._by_id.setdefault(waiter.id, {})[waiter.number] = waiter
        elif selection is not None:
            if self._index is None:
                from selectroute.index.index import Index  # loads NumPy, which most queues never need

                self._index = Index()
            if selection.name not in self._by_selector:
                self._index.add(selection.name, selection.selector)
                self._by_selector[selection.name] = {}
            self._by_selector[selection.name][waiter.number] = waiter
        else:
            self._any[waiter.number] = waiter

    def remove(self, waiter: Waiter) -> bool:
        selection = waiter.wanted.request.selection
        if waiter.id is not None:
            group = self._by_id.get(waiter.id, _NOBODY)
        elif selection is not None:
            group = self._by_selector.get(selection.name, _NOBODY)
        else:
            group = self._any
        if waiter.number not in group:
            return False
        del group[waiter.number]
        if not group and waiter.id is not None:
            del self._by_id[waiter.id]
        elif not group and selection is not None:
            assert self._index is not None
            del self._by_selector[selection.name]
            self._index.remove(selection.name)
        return True

    def all(self) -> Iterator[Waiter]:
        for group in (*self._by_id.values(), *self._by_selector.values(), self._any):
            yield from group.values()

    def candidates(self, record: Record) -> Iterator[Waiter]:
        """Those that may wait for a message, the specific ones first, of each kind the oldest first."""
        if self._by_id:
            groups = [self._by_id.get((field, value), _NOBODY) for field, value in enumerate(record[:3])]
            yield from merge(*(group.values() for group in groups), key=_NUMBER)
        if self._by_selector:
            assert self._index is not None
            matched = self._index.match(message_of(record, b"").selector_message)
            yield from merge(*(self._by_selector[name].values() for name in matched), key=_NUMBER)
        yield from self._any.values()
