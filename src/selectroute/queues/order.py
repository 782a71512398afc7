"""The messages of a queue in the order in which they are got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from selectroute.queues.record import PLACE, Record

_SHIFT: Final = 10
_LENGTH: Final = 1 << _SHIFT
"""Places in one run."""

_WITHIN: Final = _LENGTH - 1
_COUNT: Final = _LENGTH
_BEGIN: Final = _LENGTH + 1
"""Where a full run has the number of its messages, and a slot before which it has none."""

_DENSE: Final = 64
_SPARSE: Final = 32
"""With more messages a run becomes a list, with fewer again a dictionary: 256 bytes a message at most."""

_URGENCY: Final = 56
"""Where the urgency stands in a place, above 2^56 arrivals: a million messages a second for 2,000 years."""


def place_of(arrival: int, priority: int | None) -> int:
    """Return the place of the message that arrived as number `arrival`; without priority, in that order."""
    return arrival if priority is None else (9 - priority) << _URGENCY | arrival


class Order:
    """Messages by their places.

    A run has the messages of 1,024 neighbouring places; only the numbers of the runs are kept sorted. So a
    message is put, taken and put back without a search, and where a queue is deep that is one place in memory
    to go to. (A dictionary of all places would be walked over all that was taken, again and again.) A run
    with few messages is a dictionary by slot, one with many a list of all slots.

    invariant: a run has at least one message; a dictionary is sorted; a list knows how many messages it has,
    and has none before the slot that it names.
    """

    __slots__ = ("_numbers", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs: dict[int, Any] = {}
        self._numbers: SortedList = SortedList()

    def get(self, place: int) -> Record | None:
        """Return the message in a place. O(1)."""
        run = self._runs.get(place >> _SHIFT)
        if run is None:
            return None
        slot = place & _WITHIN
        record: Record | None = run.get(slot) if type(run) is dict else run[slot]
        return record

    def add(self, record: Record) -> None:
        """Add a message. O(1), amortised."""
        number, slot = record[PLACE] >> _SHIFT, record[PLACE] & _WITHIN
        self.count += 1
        run = self._runs.get(number)
        if run is None:
            self._runs[number] = {slot: record}
            self._numbers.add(number)
        elif type(run) is list:
            run[slot] = record
            run[_COUNT] += 1
            if slot < run[_BEGIN]:
                run[_BEGIN] = slot
        else:
            in_order = next(reversed(run)) < slot
            run[slot] = record
            if len(run) > _DENSE:
                self._runs[number] = _as_list(run)
            elif not in_order:
                self._runs[number] = dict(sorted(run.items()))

    def remove(self, record: Record) -> None:
        """Take a message out. O(1), amortised."""
        number, slot = record[PLACE] >> _SHIFT, record[PLACE] & _WITHIN
        self.count -= 1
        run = self._runs[number]
        if type(run) is list:
            run[slot] = None
            run[_COUNT] -= 1
            if run[_COUNT] < _SPARSE:
                self._runs[number] = dict(_within(run, 0))
            return
        del run[slot]
        if not run:
            del self._runs[number]
            self._numbers.remove(number)

    def first(self) -> Record | None:
        """Return the first message. O(1)."""
        if not self.count:
            return None
        run = self._runs[self._numbers[0]]
        if type(run) is dict:
            only: Record = run[next(iter(run))]
            return only
        slot, record = next(_within(run, 0))
        run[_BEGIN] = slot
        return record

    def walk(self, after: int = -1) -> Iterator[Record]:
        """Yield the messages behind a place, in order. The order must not change meanwhile."""
        begin = after + 1
        for number in self._numbers.irange(begin >> _SHIFT):
            run = self._runs[number]
            skip = begin & _WITHIN if number == begin >> _SHIFT else 0
            if type(run) is dict:
                yield from (record for slot, record in run.items() if slot >= skip)
            else:
                yield from (record for _, record in _within(run, skip))


def _as_list(few: dict[int, Record]) -> list[Any]:
    run: list[Any] = [None] * _LENGTH + [len(few), min(few)]
    for slot, record in few.items():
        run[slot] = record
    return run


def _within(run: list[Any], skip: int) -> Iterator[tuple[int, Record]]:
    """The messages of a list from a slot on, each with its slot."""
    for slot in range(max(skip, run[_BEGIN]), _LENGTH):
        if run[slot] is not None:
            yield slot, run[slot]
