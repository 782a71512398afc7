"""Selectors of waiting calls, which come and go: the newest in an index, the others in snapshots.

An `Index` takes a selector in microseconds, but its matching costs more the more selectors it has; a snapshot
matches a message in some ten microseconds whatever it has, but is built at once. So the index is emptied into
a snapshot when it has grown, and small snapshots are merged, as in a log-structured merge tree::

    index      up to 1,024 selectors
    snapshots  each at least twice as large as the next, or 16,384 and more
"""

from __future__ import annotations

from typing import Final

from selectroute.index.index import Index
from selectroute.index.snapshot import Snapshot, build_snapshot
from selectroute.selector.message import Message
from selectroute.selector.selector import Selector

NEWEST: Final = 1_024
"""Selectors in the index."""

LARGE: Final = 16_384
"""Selectors from which a snapshot is not merged with others: no call waits longer for a merge."""


class _Level:
    """Snapshot of some selectors, of which others may have left since."""

    __slots__ = ("live", "snapshot")

    def __init__(self, selectors: dict[str, Selector]) -> None:
        self.snapshot: Snapshot = build_snapshot(
            (name, selector, None) for name, selector in selectors.items()
        )
        self.live = selectors


class WaitingSelectors:
    """Selectors by their names, and those that a message satisfies. Not safe for threads."""

    def __init__(self) -> None:
        self._newest = Index()
        self._selectors: dict[str, Selector] = {}
        self._levels: list[_Level] = []

    def __bool__(self) -> bool:
        return bool(self._selectors or self._levels)

    def add(self, name: str, selector: Selector) -> None:
        """Add a selector under a name that is not in use. O(its size), but for merges."""
        self._newest.add(name, selector)
        self._selectors[name] = selector
        if len(self._newest) >= NEWEST:
            self._merge()

    def remove(self, name: str) -> None:
        """Remove a selector. O(its size), and O(snapshots)."""
        if self._selectors.pop(name, None) is not None:
            self._newest.remove(name)
            return
        for level in self._levels:
            if level.live.pop(name, None) is not None:
                if not level.live:
                    self._levels.remove(level)
                return

    def match(self, message: Message) -> list[str]:
        """Return the names of the selectors that a message satisfies, each once."""
        matched = self._newest.match(message) if self._selectors else []
        for level in self._levels:
            matched += [name for name in level.snapshot.match_one(message).ids() if name in level.live]
        return matched

    def _merge(self) -> None:
        """Move the newest selectors to a snapshot, with those of snapshots that are not much larger."""
        merged = self._selectors
        while self._levels and len(self._levels[-1].live) < min(2 * len(merged), LARGE):
            merged = self._levels.pop().live | merged
        self._levels.append(_Level(merged))
        self._newest, self._selectors = Index(), {}
