"""Lists of queue keys: of the messages that share an id or other values."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from typing import Any, Final

from sortedcontainers import SortedList

_WIDTH: Final = 16
"""Numbers in a row: the count of its keys, then the keys in order."""

LONGEST: Final = _WIDTH - 1
"""Most keys in a row."""

_SHIFT: Final = 12
_WITHIN: Final = (1 << _SHIFT) - 1
"""Mask of the row within its array."""


class Rows:
    """Short lists of keys, by number: rows of large arrays, so that a list costs no object.

    A list has 2 to `LONGEST` keys. Each operation is O(1).
    """

    __slots__ = ("_arrays", "_count", "_free")

    def __init__(self) -> None:
        self._arrays: list[array[int]] = []
        self._free: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count - len(self._free)

    def make(self, one: int, other: int) -> int:
        """Make a list of two keys and return its number."""
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

    def keys(self, number: int) -> array[int]:
        """Return the keys of a list."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        return row[at + 1 : at + 1 + row[at]]

    def add(self, number: int, queue_key: int) -> bool:
        """Add a key. Returns False, and adds nothing, if the row is full."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        if count == LONGEST:
            return False
        if queue_key > row[at + count]:
            row[at + count + 1] = queue_key
        else:
            queue_keys = row[at + 1 : at + 1 + count]
            insort(queue_keys, queue_key)
            row[at + 1 : at + 2 + count] = queue_keys
        row[at] = count + 1
        return True

    def remove(self, number: int, queue_key: int) -> int:
        """Remove a key. Returns 0; or the only key left, and then the list is dropped."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        queue_keys = row[at + 1 : at + 1 + count]
        queue_keys.remove(queue_key)
        if count == 2:
            self._free.append(number)
            return queue_keys[0]
        row[at] = count - 1
        row[at + 1 : at + count] = queue_keys
        return 0

    def drop(self, number: int) -> None:
        """Drop a list."""
        self._free.append(number)


# ---- Keys in order: one by itself, a few in an array, many in a sorted container

_MANY: Final = 1_024
"""Most keys in an array, where adding or removing one moves all behind it; more are in a sorted container."""

_FEW: Final = 256
"""Keys left of a sorted container when it becomes an array again, eight bytes a key."""

Listed = Any
"""A single key, an array of keys, or a SortedList (which has no types)."""


def with_key(listed: Listed, queue_key: int) -> Listed:
    """Return the keys and one more; a list is changed in place. O(log n) of many."""
    if type(listed) is int:
        return array("q", (listed, queue_key) if listed < queue_key else (queue_key, listed))
    if type(listed) is array:
        if queue_key > listed[-1]:
            listed.append(queue_key)
        else:
            insort(listed, queue_key)
        return SortedList(listed) if len(listed) > _MANY else listed
    listed.add(queue_key)
    return listed


def without_key(listed: Listed, queue_key: int) -> Listed:
    """Return two or more keys without one of them; a list is changed in place. O(log n) of many."""
    if type(listed) is array:
        del listed[bisect_left(listed, queue_key)]
        return listed[0] if len(listed) == 1 else listed
    listed.remove(queue_key)
    return array("q", listed) if len(listed) == _FEW else listed


def first_of(listed: Listed) -> int:
    """Return the first key."""
    found: int = listed if type(listed) is int else listed[0]
    return found


def size_of(listed: Listed) -> int:
    """Return the number of keys."""
    return 1 if type(listed) is int else len(listed)


def walk(listed: Listed, after: int = -1) -> Iterator[int]:
    """Yield the keys behind a key, in order. They must not change meanwhile."""
    if type(listed) is int:
        if listed > after:
            yield listed
    elif type(listed) is array:
        for index in range(bisect_right(listed, after), len(listed)):
            yield listed[index]
    else:
        yield from listed.irange(after + 1)


# ---- Keys by a value that several messages may share


class Postings:
    """Queue keys by the values that messages have: an index, as a dictionary."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: dict[Hashable, Listed] = {}

    def get(self, value: Hashable) -> Listed | None:
        """Return the keys of messages with a value, None for none. O(1)."""
        return self._listed.get(value)

    def add(self, value: Hashable, queue_key: int) -> None:
        """Add the key of a message with a value. O(log n) of those with this value."""
        listed = self._listed.get(value)
        self._listed[value] = queue_key if listed is None else with_key(listed, queue_key)

    def remove(self, value: Hashable, queue_key: int) -> None:
        """Remove a key that was added with this value. O(log n) of those with this value."""
        listed = self._listed[value]
        if listed == queue_key:
            del self._listed[value]
        else:
            self._listed[value] = without_key(listed, queue_key)
