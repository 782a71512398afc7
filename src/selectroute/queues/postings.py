"""Places by a key that several may share."""

from __future__ import annotations

from collections.abc import Hashable

from selectroute.queues.listed import Listed, with_place, without_place


class Postings:
    """Places by key: a plain dictionary, which holds every key."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: dict[Hashable, Listed] = {}

    def get(self, key: Hashable) -> Listed | None:
        """Return the places with a key, None for none. O(1)."""
        return self._listed.get(key)

    def add(self, key: Hashable, place: int) -> None:
        """Add a place. O(log n) of those with this key."""
        listed = self._listed.get(key)
        self._listed[key] = place if listed is None else with_place(listed, place)

    def remove(self, key: Hashable, place: int) -> None:
        """Take a place out that was added with this key. O(log n) of those with this key."""
        listed = self._listed[key]
        if listed == place:
            del self._listed[key]
        else:
            self._listed[key] = without_place(listed, place)
