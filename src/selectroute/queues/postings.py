"""Messages by a key that several may share, each list of them in the order of the queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import Any, Final

from sortedcontainers import SortedKeyList

from selectroute.queues.message import Message

_MANY: Final = 64
"""More messages than this under one key are in a sorted container, where each still is found quickly."""

_FEW: Final = 16
"""As few again are a plain list, which is a hundredth of that in size."""

_PLACE: Final = attrgetter("place")

Listed = Message | list[Message] | Any
"""What one key has: a message by itself, a sorted list, or a SortedKeyList (which has no types)."""


class Postings:
    """Messages by key. Nearly every id is that of one message, which needs no list."""

    __slots__ = ("_listed",)

    def __init__(self) -> None:
        self._listed: dict[Hashable, Listed] = {}

    def get(self, key: Hashable) -> Listed | None:
        """Return what has the key: one message by itself or several in order, None for nothing. O(1)."""
        return self._listed.get(key)

    def add(self, key: Hashable, message: Message) -> None:
        """Add a message. O(log n) of the messages with this key."""
        listed = self._listed.setdefault(key, message)
        if listed is message:
            return
        if isinstance(listed, Message):
            self._listed[key] = sorted((listed, message), key=_PLACE)
        elif isinstance(listed, list):
            if listed[-1].place < message.place:
                listed.append(message)
            else:
                insort(listed, message, key=_PLACE)
            if len(listed) > _MANY:
                self._listed[key] = SortedKeyList(listed, key=_PLACE)
        else:
            listed.add(message)

    def remove(self, key: Hashable, message: Message) -> None:
        """Take a message out that was added with this key. O(log n) of the messages with this key."""
        listed = self._listed[key]
        if isinstance(listed, Message):
            del self._listed[key]
            return
        if isinstance(listed, list):
            del listed[0 if listed[0] is message else bisect_left(listed, message.place, key=_PLACE)]
            if len(listed) == 1:
                self._listed[key] = listed[0]
            return
        listed.remove(message)
        if len(listed) == _FEW:
            self._listed[key] = list(listed)


def size_of(listed: Listed) -> int:
    """Return how many messages these are."""
    return 1 if isinstance(listed, Message) else len(listed)


def walk(listed: Listed, after: int = -1) -> Iterator[Message]:
    """Yield the messages behind a place, in order. They must not change meanwhile."""
    if isinstance(listed, Message):
        if listed.place > after:
            yield listed
    elif after < 0:
        yield from listed
    elif isinstance(listed, list):
        yield from listed[bisect_left(listed, after + 1, key=_PLACE) :]
    else:
        yield from listed.irange_key(after + 1)
