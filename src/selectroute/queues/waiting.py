"""Calls that wait for a message, found by an arriving message's ids and by an index of selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import attrgetter
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING, Any, Final

from selectroute.queues.lookup import ID_FIELDS, Lookup, LookupStatistics
from selectroute.queues.message.record import StoredMessage, message_of
from selectroute.queues.unit import UnitOfWork

if TYPE_CHECKING:
    from selectroute.queues.waiting_selectors import WaitingSelectors

_NONE: Final[dict[int, Waiter]] = {}
_NUMBER: Final = attrgetter("number")


class Waiter:
    """Waiting call. In memory it is handed its message; in a database it is woken, and looks again.

    Args:
        lookup: the lookup of the call.
        browses: whether the call leaves the message on the queue.
        unit: the unit of the get.
        notify: called, by any thread, instead of waking a thread; must return at once.
    """

    __slots__ = ("_handed", "_notify", "browses", "id", "lookup", "number", "record", "unit")

    def __init__(
        self,
        lookup: Lookup,
        *,
        browses: bool = False,
        unit: UnitOfWork[Any] | None = None,
        notify: Callable[[], None] | None = None,
    ) -> None:
        self.lookup = lookup
        self.browses = browses
        self.unit = unit
        self.record: StoredMessage | None = None
        self.number = 0
        # Stored, because the group may change during the wait: a backout by another thread restores it.
        self.id = next(iter(lookup.ids), None)
        self._notify = notify
        self._handed = Lock()
        self._handed.acquire()

    def takes(self, record: StoredMessage) -> bool:
        """Return whether an arriving message is for this call; never after its unit has ended."""
        return self.lookup.wants(record) and (self.unit is None or not self.unit.ended)

    def hand_over(self) -> None:
        """Wake the call: it has its message, or the wait is over."""
        if self._notify is None:
            self._handed.release()
        else:
            self._notify()

    def wait(self, seconds: float) -> None:
        """Wait until `hand_over` is called, or until the timeout."""
        self._handed.acquire(timeout=-1 if seconds >= TIMEOUT_MAX else seconds)


class Waiters:
    """Waiting calls of a queue. Not safe for threads: the store holds the lock."""

    __slots__ = ("_browsing", "_numbers", "_statistics", "_taking", "count", "gets", "selecting")

    def __init__(self, statistics: LookupStatistics) -> None:
        self.count = 0
        self.gets = 0
        self.selecting = 0
        self._statistics = statistics
        self._numbers = 0
        self._browsing = _Waiting()
        self._taking = _Waiting()

    def add(self, waiter: Waiter) -> None:
        """Add a waiting call. O(1), with a new selector O(its size)."""
        self.count += 1
        self.gets += not waiter.browses
        self.selecting += waiter.lookup.match.selection is not None
        self._numbers += 1
        waiter.number = self._numbers
        self._of(waiter).add(waiter)

    def remove(self, waiter: Waiter) -> bool:
        """Remove a call; return whether it was still waiting. O(1), O(size) for a selector's last call."""
        was_waiting = self._of(waiter).remove(waiter)
        self.count -= was_waiting
        self.gets -= was_waiting and not waiter.browses
        self.selecting -= was_waiting and waiter.lookup.match.selection is not None
        return was_waiting

    def all(self) -> list[Waiter]:
        """Return every waiting call."""
        return [*self._browsing.all(), *self._taking.all()]

    def offer(self, record: StoredMessage) -> list[Waiter]:
        """Remove and return the calls that get an arriving message: those that browse, and one that takes it.

        "The queue manager attempts to give priority to … specific get-wait requests that can be satisfied
        only by certain messages", before those that any message satisfies (IBM MQ, MQGMO_WAIT). O(calls that
        get it), unless calls that share its ids or selectors have further conditions.
        """
        woken = [waiter for waiter in self._browsing.candidates(record) if self._takes(waiter, record)]
        for waiter in self._taking.candidates(record):
            if self._takes(waiter, record):
                woken.append(waiter)
                break
        for waiter in woken:
            self.remove(waiter)
            waiter.record = record
        return woken

    def _takes(self, waiter: Waiter, record: StoredMessage) -> bool:
        self._statistics.waiters_looked_at += 1
        return waiter.takes(record)

    def _of(self, waiter: Waiter) -> _Waiting:
        return self._browsing if waiter.browses else self._taking


class _Waiting:
    """Waiting calls, stored by one of their ids, else by the name of their selector, else under None.

    Each selector is there once, whatever the number of calls that wait with it.
    """

    __slots__ = ("_groups", "_selectors")

    def __init__(self) -> None:
        self._groups: dict[_Key, dict[int, Waiter]] = {}
        self._selectors: WaitingSelectors | None = None

    def add(self, waiter: Waiter) -> None:
        key, selection = _key_of(waiter), waiter.lookup.match.selection
        if selection is not None and key == selection.name and key not in self._groups:
            if self._selectors is None:
                # Loads NumPy, which most queues do not need.
                from selectroute.queues.waiting_selectors import WaitingSelectors

                self._selectors = WaitingSelectors()
            self._selectors.add(selection.name, selection.selector)
        self._groups.setdefault(key, {})[waiter.number] = waiter

    def remove(self, waiter: Waiter) -> bool:
        key = _key_of(waiter)
        group = self._groups.get(key, _NONE)
        if group.pop(waiter.number, None) is None:
            return False
        if not group:
            del self._groups[key]
            if isinstance(key, str) and self._selectors is not None:
                self._selectors.remove(key)
        return True

    def all(self) -> Iterator[Waiter]:
        for group in self._groups.values():
            yield from group.values()

    def candidates(self, record: StoredMessage) -> Iterator[Waiter]:
        """Yield the calls that may match a message: specific ones first, of each kind the oldest first."""
        if not self._groups:
            return
        ids = zip(ID_FIELDS, record[:3], strict=True)
        yield from self._oldest_first(ids)
        if self._selectors:
            yield from self._oldest_first(self._selectors.match(message_of(record, b"").selector_message))
        yield from self._groups.get(None, _NONE).values()

    def _oldest_first(self, keys: Iterable[_Key]) -> Iterator[Waiter]:
        return merge(*(self._groups.get(key, _NONE).values() for key in keys), key=_NUMBER)


_Key = tuple[int, bytes] | str | None


def _key_of(waiter: Waiter) -> _Key:
    selection = waiter.lookup.match.selection
    return waiter.id or (None if selection is None else selection.name)
