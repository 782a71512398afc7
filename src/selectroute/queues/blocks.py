"""The messages of a queue in memory: by their places, and in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedList

from selectroute.queues.block import SHIFT, WITHIN, Block
from selectroute.queues.places import ARRIVALS, URGENCY
from selectroute.queues.record import PLACE, Record

_NUMBERS: Final = ARRIVALS >> SHIFT
"""The number of a block that is in the number of a run."""


class Blocks:
    """Messages in blocks by their arrival. Those of a block that have one urgency are a run; the numbers of
    the runs are kept sorted, and within a run the order is that of arrival. So a message comes, goes and
    comes back without a search, and in a block that nobody has walked through, nothing is kept of the order.

    invariant: a block has a message; ``_runs`` has the numbers of the runs of all blocks.
    """

    __slots__ = ("_blocks", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._blocks: dict[int, Block] = {}
        self._runs: SortedList = SortedList()

    def get(self, place: int) -> Record | None:
        """Return the message in a place. O(1)."""
        record = self.arrived(place & ARRIVALS)
        return record if record is not None and record[PLACE] == place else None

    def arrived(self, arrival: int) -> Record | None:
        """Return the message that arrived as this one. O(1)."""
        block = self._blocks.get(arrival >> SHIFT)
        return None if block is None else block.get(arrival & WITHIN)

    def add(self, record: Record) -> None:
        """Add a message. O(1), amortised."""
        place: int = record[PLACE]
        number = (place & ARRIVALS) >> SHIFT
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Block()
        block.add(place & WITHIN, record)
        self.count += 1
        run = block.runs.get(place >> URGENCY, 0)
        if run is not None:
            if not run:
                self._runs.add(place >> SHIFT)
            block.runs[place >> URGENCY] = run | 1 << (place & WITHIN) if run else None

    def remove(self, place: int) -> None:
        """Take the message in a place out. O(1), amortised."""
        number = (place & ARRIVALS) >> SHIFT
        block = self._blocks[number]
        block.remove(place & WITHIN)
        self.count -= 1
        if block.walked:
            self._leave(block, place)
        if not block.count:
            del self._blocks[number]
            for urgency in block.runs:
                self._runs.remove(urgency << URGENCY - SHIFT | number)

    def _leave(self, block: Block, place: int) -> None:
        """Take a place out of its run."""
        run = block.runs[place >> URGENCY]
        if run is not None:
            run ^= 1 << (place & WITHIN)
            if run:
                block.runs[place >> URGENCY] = run
            else:
                del block.runs[place >> URGENCY]
                self._runs.remove(place >> SHIFT)

    def first(self) -> Record | None:
        """Return the first message. O(1), amortised."""
        while self._runs:
            run = self._runs[0]
            block, urgency = self._blocks[run & _NUMBERS], run >> URGENCY - SHIFT
            slots = block.slots(urgency)
            if slots:
                return block.get((slots & -slots).bit_length() - 1)
            del block.runs[urgency], self._runs[0]
        return None

    def walk(self, after: int = -1) -> Iterator[Record]:
        """Yield the messages behind a place, in order. They must not change meanwhile."""
        begin = after + 1
        for run in self._runs.irange(begin >> SHIFT):
            block = self._blocks[run & _NUMBERS]
            slots = block.slots(run >> URGENCY - SHIFT)
            if run == begin >> SHIFT:
                slots &= -1 << (begin & WITHIN)
            while slots:
                lowest = slots & -slots
                record = block.get(lowest.bit_length() - 1)
                assert record is not None, "a slot of a run has a message"
                yield record
                slots ^= lowest
