"""A get or browse of a queue in a database that waits without a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selectroute.queues.groups import Wanted
from selectroute.queues.message import Message
from selectroute.queues.record import PLACE, Record
from selectroute.queues.sql_watch import Watch
from selectroute.queues.waiting import Waiter


class Bell(Waiter):
    """A waiting call that is told by a function, which must return at once."""

    __slots__ = ("_ring",)

    def __init__(
        self, wanted: Wanted, ring: Callable[[], None], *, browses: bool = False, unit: Any = None
    ) -> None:
        super().__init__(wanted, browses=browses, unit=unit)
        self._ring = ring

    def hand_over(self) -> None:
        """Tell who waits to look again."""
        self._ring()


class SqlCall:
    """Looks for a message, and is rung when it should look again. Not to be shared by threads; `end` it.

    Args:
        watch: the calls that wait on this queue.
        again: looks for what a waiting call is for, and takes it unless that only browses.
        shown: makes a message of a record.
        made: makes the waiting call anew for each time that it waits.
    """

    def __init__(
        self,
        watch: Watch,
        again: Callable[[Waiter], Record | None],
        shown: Callable[[Record], Message],
        made: Callable[[], Waiter],
    ) -> None:
        self._watch = watch
        self._again = again
        self._shown = shown
        self._made = made
        self._waiter: Waiter | None = None

    def look(self) -> Message | None:
        """Return the message if it is there now; otherwise the call is rung when one comes.

        Raises MQError as `Queue.get` does, but for 2033.
        """
        before, self._waiter = self._waiter, self._made()
        # First to be seen as one that waits, then to look: what comes in between rings.
        self._watch.add(self._waiter)
        offered = None
        if before is not None:
            self._watch.remove(before)
            offered = before.record
        record = self._again(self._waiter)
        if record is None:
            return None
        if offered is not None and offered[PLACE] != record[PLACE]:
            self._watch.wake_all()  # somebody else may want what this call was woken for
        self._leave(record[PLACE])
        return self._shown(record)

    def end(self) -> None:
        """Wait no more. What it was rung for and did not look for is for others."""
        self._leave(None)

    def _leave(self, place: int | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._watch.remove(waiter)
            if waiter.record is not None and waiter.record[PLACE] != place:
                self._watch.wake_all()
