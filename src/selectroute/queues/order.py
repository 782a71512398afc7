"""The messages of a queue in the order in which they are got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedList

from selectroute.queues.message import Message

_SHIFT: Final = 6
"""Places that differ only in this many low bits are in one run: up to 64 messages."""

_SHRUNK: Final = frozenset({4, 16})
"""A run that has just come down to so many is copied: dictionaries never become smaller by themselves."""

_URGENCY: Final = 56
"""Where the urgency stands in a place, above 2^56 arrivals: a million messages a second for 2,000 years."""


def place_of(arrival: int, priority: int | None) -> int:
    """Return the place of the message that arrived as number `arrival`; without priority, in that order."""
    return arrival if priority is None else (9 - priority) << _URGENCY | arrival


class Order:
    """Messages by their places.

    A run is a dictionary of neighbours by place, and only the numbers of runs are kept sorted. So a message
    is put at the end or taken from anywhere without a search: what takes time, making a run and forgetting
    it, is done once for up to 64 messages.

    invariant: a run has no message or is sorted by place, unless its number is in ``_unsorted``.
    """

    __slots__ = ("_numbers", "_runs", "_unsorted", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs: dict[int, dict[int, Message]] = {}
        self._numbers: SortedList = SortedList()
        self._unsorted: set[int] = set()

    def get(self, place: int) -> Message | None:
        """Return the message in a place. O(1)."""
        run = self._runs.get(place >> _SHIFT)
        return None if run is None else run.get(place)

    def append(self, message: Message) -> None:
        """Add a message that arrived after every other of its priority. O(1), amortised."""
        place = message.place
        number = place >> _SHIFT
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = {}
            self._numbers.add(number)
        run[place] = message
        self.count += 1

    def insert(self, message: Message) -> None:
        """Add a message in a place among others, where it was before. O(1), amortised."""
        self.append(message)
        self._unsorted.add(message.place >> _SHIFT)

    def remove(self, place: int) -> None:
        """Take a message out. O(1), amortised."""
        number = place >> _SHIFT
        run = self._runs[number]
        del run[place]
        self.count -= 1
        if not run:
            del self._runs[number]
            self._numbers.remove(number)
            self._unsorted.discard(number)
        elif len(run) in _SHRUNK:
            self._runs[number] = dict(run)

    def walk(self, after: int = -1) -> Iterator[Message]:
        """Yield the messages behind a place, in order. The order must not change meanwhile."""
        for number in self._numbers.irange(after >> _SHIFT):
            run = self._runs[number]
            if number in self._unsorted:
                run = self._runs[number] = dict(sorted(run.items()))
                self._unsorted.discard(number)
            for place, message in run.items():
                if place > after:
                    yield message
