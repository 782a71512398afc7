"""Results of calls on many messages of a queue: how many match, and what came of a purge or a move."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from selectroute.queues.message.queue_key import ARRIVALS


class BulkPosition(NamedTuple):
    """Position of a purge or a move that is to go on: the arrival number of the last message that it is
    about, and the key up to which all is done.
    """

    last_arrival: int = ARRIVALS
    after: int = -1


class MessageCount(NamedTuple):
    """Number of messages that a lookup finds; if it is not exact, there are at least so many."""

    number: int
    is_exact: bool


@dataclass(slots=True)
class Stayed:
    """Numbers of matching messages that stayed on their queue, by reason."""

    full: int = 0
    """The other queue has no room for them."""

    too_long: int = 0
    """Their bodies are longer than the other queue permits."""

    in_use: int = 0
    """Others got them in the meantime, or were getting them."""

    @property
    def total(self) -> int:
        """Number of all of them."""
        return self.full + self.too_long + self.in_use


@dataclass(slots=True)
class BulkResult:
    """Result of a purge or a move: how many messages matched, and how many were removed or moved."""

    matched: MessageCount = field(default_factory=lambda: MessageCount(0, True))
    done: int = 0
    stayed: Stayed = field(default_factory=Stayed)
    is_complete: bool = False
    """Whether all matches were dealt with."""

    def with_more(self, part: BulkResult) -> BulkResult:
        """Return the result of this and of what went on from its position."""
        ours, theirs = self.stayed, part.stayed
        stayed = Stayed(ours.full + theirs.full, ours.too_long + theirs.too_long, ours.in_use + theirs.in_use)
        return BulkResult(self.matched, self.done + part.done, stayed, part.is_complete)
