"""Messages by a key that several may share, those of one key in the order of the queue."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import dropwhile
from typing import Any, Final

from sortedcontainers import SortedDict

from selectroute.queues.record import PLACE, Record

_MANY: Final = 64
"""More messages than this under one key are in a sorted container, where each still is found quickly."""

_FEW: Final = 16
"""As few again are in a plain dictionary, which is a tenth of that in size."""

Listed = Any
"""What one key has: a message by itself, a tuple; a dictionary of some by place, which is kept sorted; or a
SortedDict of many, which has no types.
"""


class Postings:
    """Messages by key. Nearly every id is that of one message, which needs no list."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: dict[Hashable, Listed] = {}

    def get(self, key: Hashable) -> Listed | None:
        """Return what has the key: one message by itself or several by place, None for nothing. O(1)."""
        return self._listed.get(key)

    def add(self, key: Hashable, record: Record) -> None:
        """Add a message. O(log n) of the messages with this key."""
        listed = self._listed.setdefault(key, record)
        if listed is record:
            return
        place = record[PLACE]
        if type(listed) is tuple:
            other = listed[PLACE]
            self._listed[key] = (
                {other: listed, place: record} if other < place else {place: record, other: listed}
            )
        elif type(listed) is dict:
            in_order = next(reversed(listed)) < place
            listed[place] = record
            if len(listed) > _MANY:
                self._listed[key] = SortedDict(listed)
            elif not in_order:
                self._listed[key] = dict(sorted(listed.items()))
        else:
            listed[place] = record

    def remove(self, key: Hashable, record: Record) -> None:
        """Take a message out that was added with this key. O(log n) of the messages with this key."""
        listed = self._listed[key]
        if listed is record:
            del self._listed[key]
            return
        del listed[record[PLACE]]
        if len(listed) == 1:
            self._listed[key] = next(iter(listed.values()))
        elif len(listed) == _FEW and type(listed) is not dict:
            self._listed[key] = dict(listed.items())


def first_of(listed: Listed) -> Record:
    """Return the first of these messages."""
    found: Record = listed if type(listed) is tuple else listed[next(iter(listed))]
    return found


def size_of(listed: Listed) -> int:
    """Return how many messages these are."""
    return 1 if type(listed) is tuple else len(listed)


def walk(listed: Listed, after: int = -1) -> Iterator[Record]:
    """Yield the messages behind a place, in order. They must not change meanwhile."""
    if type(listed) is tuple:
        if listed[PLACE] > after:
            yield listed
    elif after < 0:
        yield from listed.values()
    elif type(listed) is dict:
        yield from dropwhile(lambda record: record[PLACE] <= after, listed.values())
    else:
        for place in listed.irange(after + 1):
            yield listed[place]
