"""Lookup rules common to queues in memory and in a database."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from selectroute.queues.errors import ScanLimitError
from selectroute.queues.lookup.match import Match
from selectroute.queues.message.record import MAX_KEY, StoredMessage, queue_key_in

MAX_INDEXES: Final = 8
"""Maximum indexes made on demand: a new one replaces the least recently used, in a database the oldest."""

MAX_SCANNED_BEFORE_INDEX: Final = 16
"""Messages that a lookup may compare in vain before it counts towards a new index."""


_T = TypeVar("_T")


class ScanBudget:
    """Time for which lookups may compare messages with selectors. Other lookups have no limit."""

    def __init__(self) -> None:
        self._until = math.inf
        self._is_cancelled = False

    def run(self, seconds: float, function: Callable[[], _T]) -> _T:
        """Call a function, the lookups of which raise ScanLimitError after `seconds` or `cancel`."""
        self._until = time.monotonic() + seconds
        token = _BUDGET.set(self)
        try:
            return function()
        finally:
            _BUDGET.reset(token)

    def cancel(self) -> None:
        """End the running lookup at its next message; called by any thread."""
        self._is_cancelled = True  # and not the time, which `run` may be about to set

    def check(self) -> None:
        """Raise ScanLimitError if the time is over, or the lookup is cancelled."""
        if self._is_cancelled or time.monotonic() > self._until:
            raise ScanLimitError


_BUDGET: Final[ContextVar[ScanBudget | None]] = ContextVar("budget", default=None)


def check_budget() -> None:
    """Raise ScanLimitError if the budget of this thread's lookup is spent: before each message."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.check()


@dataclass(slots=True)
class LookupStatistics:
    """Counts of the cost of lookups since the queue was opened."""

    looked_at: int = 0
    """Messages that were compared with match options."""

    scans: int = 0
    """Lookups that scanned the queue because no requested field was indexed."""

    indexes_made: int = 0
    waiters_looked_at: int = 0
    """Waiting calls that were compared with an arriving message."""


def has_token(record: StoredMessage, msg_token: bytes, token_prefix: bytes) -> bool:
    """Return whether a message has this token, on the queue with this token prefix."""
    return msg_token[:8] == token_prefix and record.queue_key == queue_key_in(msg_token)


def find_by_token(
    match: Match,
    after: int,
    token_prefix: bytes,
    get: Callable[[int], StoredMessage | None],
    statistics: LookupStatistics,
) -> StoredMessage | None:
    """Return the message with the token of the match options, if it is after a key and matches. O(1).

    Args:
        match: one with a token.
        after: the key after which to look.
        token_prefix: of the queue's tokens.
        get: returns the message with a key.
        statistics: where the comparison is counted.
    """
    token = match.msg_token
    assert token is not None
    queue_key = queue_key_in(token)
    if token[:8] != token_prefix or not after < queue_key <= MAX_KEY:
        return None
    record = get(queue_key)
    if record is None:
        return None
    statistics.looked_at += 1
    return record if match.is_satisfied(record) else None


def first_of(records: Iterable[StoredMessage | None]) -> StoredMessage | None:
    """Return the record with the lowest key."""
    return min(filter(None, records), key=lambda record: record.queue_key, default=None)
