"""Units of work on a queue in a database."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from selectroute.queues.held_unit import HeldUnit

if TYPE_CHECKING:
    from selectroute.queues.sql_holding import SqlHolding


class SqlUnit(HeldUnit):
    """How many messages were put and got since the unit began; in the database they have its number.

    A unit that is forgotten without an end, because its thread died, is backed out by the next call or within
    a second by one that waits; one whose process died, see `owners`.
    """

    __slots__ = ("_in_database", "gets", "lock", "number", "owner", "puts")

    def __init__(self, holding: SqlHolding, number: int) -> None:
        super().__init__(holding)
        self._in_database = holding
        self.lock = Lock()  # nothing is put or got in it while it ends
        self.number = number
        self.owner: int | None = None
        self.puts = 0
        self.gets = 0

    def __del__(self) -> None:
        if not self.ended and self.owner is not None:
            self._in_database.forget(self.owner, self.number)
