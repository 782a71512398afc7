"""Units of work, wherever the messages of the queue are held."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from selectroute.queues.errors import MQRC_HCONN_ERROR, MQRC_UNIT_OF_WORK_NOT_STARTED, failed
from selectroute.queues.groups import Handle, Position

if TYPE_CHECKING:
    from selectroute.queues.held_queue import Held


class HeldUnit:
    """A unit of work; see `Unit`. What was put and got in it is told by those who hold it."""

    __slots__ = ("_holding", "_positions", "ended")

    def __init__(self, holding: Held) -> None:
        self._holding = holding
        self.ended = False
        self._positions: dict[Handle, tuple[Position | None, Position | None]] = {}

    def belongs_to(self, holding: Held) -> bool:
        """Return whether the unit is one of this queue."""
        return self._holding is holding

    def check(self) -> None:
        """Raise MQError 2232 for a unit that has ended."""
        if self.ended:
            raise failed(MQRC_UNIT_OF_WORK_NOT_STARTED, "the unit was committed or backed out")

    def moved(self, handle: Handle, before: Position | None) -> None:
        """Note where a handle was in its group before a get of this unit moved it."""
        first, _ = self._positions.get(handle, (before, None))
        self._positions[handle] = first, handle.position

    def restore_positions(self) -> None:
        """Move handles back to where they were, but not those that others have moved since.

        "The information … is restored to the value that it had prior to the first successful MQGET call …
        in the current unit of work" (IBM MQ, MQBACK).
        """
        for handle, (before, after) in self._positions.items():
            if handle.position is after:
                handle.position = before

    def commit(self) -> None:
        """End the unit: its puts are on the queue and its gets are gone. O(puts)."""
        self._holding.end(self, commit=True)

    def backout(self) -> None:
        """End the unit: its puts never were and its gets are on the queue again. O(gets)."""
        self._holding.end(self, commit=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.ended:
            self._holding.end(self, commit=kind is None)


def check_own(unit: object, holding: Held) -> HeldUnit:
    """Return a unit that is one of this queue's. Raises MQError 2018."""
    if not isinstance(unit, HeldUnit) or not unit.belongs_to(holding):
        raise failed(MQRC_HCONN_ERROR, "the unit of work is one of another queue")
    return unit
