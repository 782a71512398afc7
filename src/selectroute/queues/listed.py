"""Places that share something, in order: one by itself, a few in an array, many in a sorted container."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Final

from sortedcontainers import SortedList

_MANY: Final = 1_024
"""More places than this are in a sorted container; an array moves all behind one that comes or goes."""

_FEW: Final = 256
"""As few again are in an array, eight bytes a place."""

Listed = Any
"""A place, which is no list; an array of places; or a SortedList, which has no types."""


def with_place(listed: Listed, place: int) -> Listed:
    """Return what has one more place; a list is changed. O(log n) of many."""
    if type(listed) is int:
        return array("q", (listed, place) if listed < place else (place, listed))
    if type(listed) is array:
        if place > listed[-1]:
            listed.append(place)
        else:
            insort(listed, place)
        return SortedList(listed) if len(listed) > _MANY else listed
    listed.add(place)
    return listed


def without_place(listed: Listed, place: int) -> Listed:
    """Return what has one place less, of two or more; a list is changed. O(log n) of many."""
    if type(listed) is array:
        del listed[bisect_left(listed, place)]
        return listed[0] if len(listed) == 1 else listed
    listed.remove(place)
    return array("q", listed) if len(listed) == _FEW else listed


def first_of(listed: Listed) -> int:
    """Return the first of some places."""
    found: int = listed if type(listed) is int else listed[0]
    return found


def size_of(listed: Listed) -> int:
    """Return how many places these are."""
    return 1 if type(listed) is int else len(listed)


def walk(listed: Listed, after: int = -1) -> Iterator[int]:
    """Yield the places behind a place, in order. They must not change meanwhile."""
    if type(listed) is int:
        if listed > after:
            yield listed
    elif type(listed) is array:
        for index in range(bisect_right(listed, after), len(listed)):
            yield listed[index]
    else:
        yield from listed.irange(after + 1)
