"""Results of calls on many messages of a queue: how many match, and what came of a purge or a move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from selectroute.queues.message.record import ARRIVALS


class BulkPosition(NamedTuple):
    """Position of a purge or a move that is to go on: the arrival number of the last message that it is
    about, and the key up to which all is done.
    """

    last_arrival: int = ARRIVALS
    after: int = -1

    def __str__(self) -> str:
        return f"{self.last_arrival}-{self.after}"

    @classmethod
    def of(cls, text: str) -> BulkPosition:
        """Return the position of a text, as `str` makes it."""
        return cls(*map(int, text.split("-", 1)))


@dataclass(frozen=True, slots=True)
class MessageCount:
    """Number of messages that match; if it is not exact, there are at least so many."""

    count: int
    exact: bool


@dataclass(slots=True)
class Stayed:
    """Numbers of matching messages that stayed on their queue, by reason: it is `full`, they are `too_long`
    for it, or others got them in the meantime, or were getting them (`in_use`).
    """

    full: int = 0
    too_long: int = 0
    in_use: int = 0

    @property
    def total(self) -> int:
        """Number of all of them."""
        return self.full + self.too_long + self.in_use


@dataclass(slots=True)
class BulkResult:
    """Result of a purge or a move: how many messages matched when it began, and how many were removed or
    moved. `position` is where to go on, null if all matches were dealt with.
    """

    matched: MessageCount
    done: int = 0
    stayed: Stayed = field(default_factory=Stayed)
    position: str | None = None

    @property
    def is_complete(self) -> bool:
        """True if all matches were dealt with."""
        return self.position is None

    def with_more(self, part: BulkResult) -> BulkResult:
        """Return the result of this and of what went on from its position."""
        ours, theirs = self.stayed, part.stayed
        stayed = Stayed(ours.full + theirs.full, ours.too_long + theirs.too_long, ours.in_use + theirs.in_use)
        return BulkResult(self.matched, self.done + part.done, stayed, part.position)
