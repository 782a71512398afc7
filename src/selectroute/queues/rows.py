"""Short lists of places, such as those of a group of messages: rows of large arrays, and no objects."""

from __future__ import annotations

from array import array
from bisect import insort
from typing import Final

_WIDTH: Final = 16
"""Numbers of a row: how many places it has, and these in order."""

LONGEST: Final = _WIDTH - 1
"""Places of a row, at most."""

_SHIFT: Final = 12
_WITHIN: Final = (1 << _SHIFT) - 1
"""Rows of one array."""


class Rows:
    """Lists of 2 to `LONGEST` places by their numbers. Each operation is O(1)."""

    __slots__ = ("_arrays", "_count", "_free")

    def __init__(self) -> None:
        self._arrays: list[array[int]] = []
        self._free: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count - len(self._free)

    def make(self, one: int, other: int) -> int:
        """Make a list of two places and return its number."""
        if self._free:
            number = self._free.pop()
        else:
            number = self._count
            self._count += 1
            if number >> _SHIFT == len(self._arrays):
                self._arrays.append(array("q", bytes(8 * _WIDTH << _SHIFT)))
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        row[at] = 2
        row[at + 1], row[at + 2] = (one, other) if one < other else (other, one)
        return number

    def places(self, number: int) -> array[int]:
        """Return the places of a list."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        return row[at + 1 : at + 1 + row[at]]

    def add(self, number: int, place: int) -> bool:
        """Add a place; return whether there was room for it."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        if count == LONGEST:
            return False
        if place > row[at + count]:
            row[at + count + 1] = place
        else:
            places = row[at + 1 : at + 1 + count]
            insort(places, place)
            row[at + 1 : at + 2 + count] = places
        row[at] = count + 1
        return True

    def remove(self, number: int, place: int) -> int:
        """Take a place out. Return 0, or the place that is left by itself: then the list is no more."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        places = row[at + 1 : at + 1 + count]
        places.remove(place)
        if count == 2:
            self._free.append(number)
            return places[0]
        row[at] = count - 1
        row[at + 1 : at + count] = places
        return 0

    def drop(self, number: int) -> None:
        """Forget a list."""
        self._free.append(number)
