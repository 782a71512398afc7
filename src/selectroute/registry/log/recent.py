"""Newest changes that this process committed, in memory.

A publisher in the same process takes them from here. Reading them from the log again, with the check of its
digests, took a third of a publication.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from selectroute.registry.log.transaction import LogHead, Transaction
from selectroute.registry.model import Subscription

MOST_CHARACTERS: Final = 8 << 20
"""Maximum characters of the subscriptions that are kept, as JSON."""

MOST_TRANSACTIONS: Final = 4_096


class Latest(NamedTuple):
    """Changes of some successive transactions: the revision of the last one, the digest of the log up to it,
    and the last state of each changed subscription, None if it is removed.
    """

    revision: int
    digest: str
    changed: Mapping[str, Subscription | None]


class _Committed(NamedTuple):
    before: LogHead
    after: LogHead
    changed: Mapping[str, Subscription | None]
    characters: int


class RecentChanges:
    """Newest transactions of this process, without a gap. Safe for use by threads.

    invariant: each transaction begins where the one before it ended. One that another process committed in
    between, or that is too large to be kept, removes all before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed: deque[_Committed] = deque()
        self._characters = 0

    def add(self, transaction: Transaction) -> None:
        """Take a transaction that was just committed."""
        before, after = transaction.before, transaction.head
        if before == after:
            return
        changed = transaction.changed
        size = transaction.characters
        with self._lock:
            if changed is None or size > MOST_CHARACTERS:
                self._clear()
                return
            if self._committed and self._committed[-1].after != before:
                self._clear()
            self._committed.append(_Committed(before, after, changed, size))
            self._characters += size
            while self._characters > MOST_CHARACTERS or len(self._committed) > MOST_TRANSACTIONS:
                self._characters -= self._committed.popleft().characters

    def since(self, revision: int) -> Latest | None:
        """Return what changed after a revision; None if that is not known here, or nothing did."""
        with self._lock:
            found: list[_Committed] = []
            for one in reversed(self._committed):
                if one.before.revision < revision:
                    break
                found.append(one)
        if not found or found[-1].before.revision != revision:
            return None
        changed = {id: state for one in reversed(found) for id, state in one.changed.items()}
        return Latest(found[0].after.revision, found[0].after.digest.hex(), changed)

    def _clear(self) -> None:
        self._committed.clear()
        self._characters = 0
