"""The messages of a queue in the order in which they are got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from selectroute.queues.record import PLACE, Record

_SHIFT: Final = 5
_LENGTH: Final = 1 << _SHIFT
"""Places in one run."""

_WITHIN: Final = _LENGTH - 1

_URGENCY: Final = 56
"""Where the urgency stands in a place, above 2^56 arrivals: a million messages a second for 2,000 years."""


def place_of(arrival: int, priority: int | None) -> int:
    """Return the place of the message that arrived as number `arrival`; without priority, in that order."""
    return arrival if priority is None else (9 - priority) << _URGENCY | arrival


class Order:
    """Messages by their places.

    A run has the messages of 32 neighbouring places, each where its place says, and after them their number.
    Only the numbers of the runs are kept sorted. So a message is put, taken and put back without a search,
    and what takes time, making a run and forgetting it, is done once for up to 32 messages. (A dictionary
    of all places would be walked from its beginning again and again, over all that was taken.)

    invariant: a run has at least one message, and their number is its last item.
    """

    __slots__ = ("_numbers", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs: dict[int, list[Any]] = {}
        self._numbers: SortedList = SortedList()

    def get(self, place: int) -> Record | None:
        """Return the message in a place. O(1)."""
        run = self._runs.get(place >> _SHIFT)
        record: Record | None = None if run is None else run[place & _WITHIN]
        return record

    def add(self, record: Record) -> None:
        """Add a message. O(1), amortised."""
        place = record[PLACE]
        number = place >> _SHIFT
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = [None] * _LENGTH + [0]
            self._numbers.add(number)
        run[place & _WITHIN] = record
        run[_LENGTH] += 1
        self.count += 1

    def remove(self, record: Record) -> None:
        """Take a message out. O(1), amortised."""
        place = record[PLACE]
        number = place >> _SHIFT
        run = self._runs[number]
        run[place & _WITHIN] = None
        run[_LENGTH] -= 1
        self.count -= 1
        if not run[_LENGTH]:
            del self._runs[number]
            self._numbers.remove(number)

    def first(self) -> Record | None:
        """Return the first message. O(1)."""
        return next(self.walk(), None) if self.count else None

    def walk(self, after: int = -1) -> Iterator[Record]:
        """Yield the messages behind a place, in order. The order must not change meanwhile."""
        begin = after + 1
        skip = begin & _WITHIN
        for number in self._numbers.irange(begin >> _SHIFT):
            run = self._runs[number]
            for record in run[skip if number == begin >> _SHIFT else 0 : _LENGTH]:
                if record is not None:
                    yield record
