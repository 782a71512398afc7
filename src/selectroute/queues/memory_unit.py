"""Units of work on a queue in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selectroute.queues.held_unit import HeldUnit
from selectroute.queues.record import Record

if TYPE_CHECKING:
    from selectroute.queues.holding import Holding


class MemoryUnit(HeldUnit):
    """What was put and got since the unit began; see `Unit`.

    A unit that is forgotten without an end, because its thread died, is backed out when its memory is freed.
    """

    __slots__ = ("_memory", "gets", "puts")

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        self._memory = holding
        self.puts: list[Record] = []
        self.gets: list[Record] = []

    def __del__(self) -> None:
        if not self.ended and (self.puts or self.gets):
            self._memory.adopt(len(self.puts), self.gets)
