"""Postings of the messages that share an id or other values: their queue keys, with a part of a number."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from typing import Any, Final

from sortedcontainers import SortedList

from selectroute.queues.message.record import Record

NUMBER_BITS: Final = 3
"""Bits of the MsgSeqNumber in a posting: those that a key of 60 bits leaves of a positive signed number."""

NUMBERS: Final = (1 << NUMBER_BITS) - 1
"""Mask of the MsgSeqNumber in a posting."""


def posting_of(record: Record) -> int:
    """Return the posting of a message: its key, then the lowest bits of its MsgSeqNumber.

    Postings sort as their keys do. Of the messages of a group, only those that may have a number are read.
    """
    return record.queue_key << NUMBER_BITS | record.msg_seq_number & NUMBERS


_WIDTH: Final = 16
"""Numbers in a row: the count of its postings, then these in order."""

LONGEST: Final = _WIDTH - 1
"""Most postings in a row."""

_SHIFT: Final = 12
_WITHIN: Final = (1 << _SHIFT) - 1
"""Mask of the row within its array."""


class Rows:
    """Short lists, by number: rows of large arrays, so that a list costs no object.

    A list has 2 to `LONGEST` postings. Each operation is O(1).
    """

    __slots__ = ("_arrays", "_count", "_free")

    def __init__(self) -> None:
        self._arrays: list[array[int]] = []
        self._free: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count - len(self._free)

    def make(self, one: int, other: int) -> int:
        """Make a list of two postings and return its number."""
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

    def listed(self, number: int) -> array[int]:
        """Return the postings of a list."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        return row[at + 1 : at + 1 + row[at]]

    def add(self, number: int, posting: int) -> bool:
        """Add a posting. Returns False, and adds nothing, if the row is full."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        if count == LONGEST:
            return False
        if posting > row[at + count]:
            row[at + count + 1] = posting
        else:
            postings = row[at + 1 : at + 1 + count]
            insort(postings, posting)
            row[at + 1 : at + 2 + count] = postings
        row[at] = count + 1
        return True

    def remove(self, number: int, posting: int) -> int:
        """Remove a posting. Returns 0; or the only one left, and then the list is dropped."""
        row, at = self._arrays[number >> _SHIFT], (number & _WITHIN) * _WIDTH
        count = row[at]
        postings = row[at + 1 : at + 1 + count]
        postings.remove(posting)
        if count == 2:
            self._free.append(number)
            return postings[0]
        row[at] = count - 1
        row[at + 1 : at + count] = postings
        return 0

    def drop(self, number: int) -> None:
        """Drop a list."""
        self._free.append(number)


# ---- Postings in order: one by itself, a few in an array, many in a sorted container

_MANY: Final = 1_024
"""Most postings in an array, where adding or removing one moves all behind it; more are in a SortedList."""

_FEW: Final = 256
"""Postings left of a sorted container when it becomes an array again, eight bytes each."""

Listed = Any
"""A single posting, an array of them, or a SortedList (which has no types)."""


def with_posting(listed: Listed, posting: int) -> Listed:
    """Return the postings and one more; a list is changed in place. O(log n) of many."""
    if type(listed) is int:
        return array("q", (listed, posting) if listed < posting else (posting, listed))
    if type(listed) is array:
        if posting > listed[-1]:
            listed.append(posting)
        else:
            insort(listed, posting)
        return SortedList(listed) if len(listed) > _MANY else listed
    listed.add(posting)
    return listed


def without_posting(listed: Listed, posting: int) -> Listed:
    """Return two or more postings without one of them; a list is changed in place. O(log n) of many."""
    if type(listed) is array:
        del listed[bisect_left(listed, posting)]
        return listed[0] if len(listed) == 1 else listed
    listed.remove(posting)
    return array("q", listed) if len(listed) == _FEW else listed


def size_of(listed: Listed) -> int:
    """Return the number of postings."""
    return 1 if type(listed) is int else len(listed)


def walk(listed: Listed, after: int = -1) -> Iterator[int]:
    """Yield the postings behind one, in order. They must not change meanwhile."""
    if type(listed) is int:
        if listed > after:
            yield listed
    elif type(listed) is array:
        for index in range(bisect_right(listed, after), len(listed)):
            yield listed[index]
    else:
        yield from listed.irange(after + 1)


def with_number(listed: Listed, msg_seq_number: int) -> array[int]:
    """Return those of several postings that may be of messages with a MsgSeqNumber."""
    bits = msg_seq_number & NUMBERS
    return array("q", [posting for posting in listed if posting & NUMBERS == bits])


# ---- Postings by a value that several messages may share


class Postings:
    """Postings by the values that messages have: an index, as a dictionary."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: dict[Hashable, Listed] = {}

    def get(self, value: Hashable) -> Listed | None:
        """Return the postings of messages with a value, None for none. O(1)."""
        return self._listed.get(value)

    def add(self, value: Hashable, posting: int) -> None:
        """Add the posting of a message with a value. O(log n) of those with this value."""
        listed = self._listed.get(value)
        self._listed[value] = posting if listed is None else with_posting(listed, posting)

    def remove(self, value: Hashable, posting: int) -> None:
        """Remove a posting that was added with this value. O(log n) of those with this value."""
        listed = self._listed[value]
        if listed == posting:
            del self._listed[value]
        else:
            self._listed[value] = without_posting(listed, posting)
