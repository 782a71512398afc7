"""Places by MsgId. An id that the queue has made says by itself which message it is."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from selectroute.queues.blocks import Blocks
from selectroute.queues.ids import Ids
from selectroute.queues.listed import Listed, walk
from selectroute.queues.places import ARRIVALS
from selectroute.queues.record import PLACE

PREFIX_BYTES: Final = 16
"""An id of the queue's own is this much that all of them have in common, and the arrival."""


class MsgIds:
    """Places by MsgId: of ids that a put gave a table, of the queue's own none.

    A message may be put with an id that the queue has made for another: ``borrowed`` says how many were. Then
    the id is that of several messages, and the table has all but one of them.
    """

    __slots__ = ("_blocks", "_given", "borrowed", "prefix")

    def __init__(self, prefix: bytes, blocks: Blocks) -> None:
        self.prefix = prefix
        self.borrowed = 0
        self._blocks = blocks
        self._given = Ids()

    def get(self, id: bytes) -> Listed | None:
        """Return the places of messages that may have an id, None if none has it. O(1)."""
        if not id.startswith(self.prefix):
            return self._given.get(id)
        record = self._blocks.arrived(int.from_bytes(id[PREFIX_BYTES:], "big"))
        given = self._given.get(id) if self.borrowed else None
        if record is None:
            return given
        own: int = record[PLACE]
        if given is None:
            return own
        return array("q", sorted({own, *walk(given)}))

    def add(self, id: bytes, place: int) -> None:
        """Add a message. O(1), of a shared id O(log n) of its messages."""
        if id.startswith(self.prefix):
            if int.from_bytes(id[PREFIX_BYTES:], "big") == place & ARRIVALS:
                return
            self.borrowed += 1
        self._given.add(id, place)

    def remove(self, id: bytes, place: int) -> None:
        """Take a message out. O(1), of a shared id O(log n) of its messages."""
        if id.startswith(self.prefix):
            if int.from_bytes(id[PREFIX_BYTES:], "big") == place & ARRIVALS:
                return
            self.borrowed -= 1
        self._given.remove(id, place)

    def clear(self) -> None:
        """Give the memory back that a table without places has."""
        self._given.clear()

    def walk(self) -> Iterator[tuple[int, Listed]]:
        """Yield the hash of every id that is in the table, and the places with it."""
        return self._given.walk()
