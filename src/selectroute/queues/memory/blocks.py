"""Messages of a queue in memory, packed in blocks of 8,192 by arrival.

With ten million messages, cost is mostly cache misses, a third of a microsecond each. So the messages of a
block are one array of bytes, short bodies included, which Python's garbage collector need not look at.

Dictionaries and a sorted container would be simpler. Recorded side by side (``bench/README.md``,
`queue-gets`, `sorted-dicts`), they alone take 1.0 µs for a message of a thousand, but 10 µs for one of ten
million, and 512 bytes a message beside its body. A whole get by MsgId takes 6.9 µs and 10.8 µs here, and a
message 200 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from sortedcontainers import SortedList

from selectroute.queues.message.queue_key import ARRIVALS, URGENCY
from selectroute.queues.message.record import DESCRIPTOR_FIELDS, Record

SHIFT: Final = 13
LENGTH: Final = 1 << SHIFT
"""Messages of one block."""

WITHIN: Final = LENGTH - 1

_FIELDS: Final = "<24s24s24sii?b?iqiqq"
"""Layout of a record up to its key. The body follows, with its length in the byte before it."""

_KEY: Final = DESCRIPTOR_FIELDS
"""Position of the key in a record."""

_URGENCIES: Final = Struct(_FIELDS).size - 1
"""Offset of the urgency of the first message: the last byte of its key."""

_GONE: Final = 0xFF
"""Urgency in a slot without a message: its key is negative."""

_EACH: Final = 1_000
"""Most bytes of a packed block for each of its messages: with fewer messages it is a dictionary. A block is
packed at half of that.
"""

_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long

_ROOM: Final = 255
"""Most bytes of a body that is packed: its length is one byte."""

_NO_PROPERTIES: Final = (None,)


class Block:
    """Messages by slot.

    invariant: `count` is the number of messages. The messages are in ``few`` or in ``packed``; ``outside``
    has body and properties of packed ones with properties or a longer body. ``runs`` maps each urgency to its
    slots, as the bits of a number other than 0, or to None: not yet computed, perhaps no slot. ``walked``
    says that one of them was computed.
    """

    __slots__ = (
        "_enough",
        "_form",
        "_least",
        "_room",
        "_size",
        "count",
        "few",
        "outside",
        "packed",
        "runs",
        "walked",
    )

    def __init__(self) -> None:
        self.count = 0
        self.few: dict[int, Record] | None = {}
        self.packed = bytearray()
        self.outside: list[Any] | None = None
        self.runs: dict[int, int | None] = {}
        self.walked = False
        self._shape(0)

    def _shape(self, room: int) -> None:
        """Choose the most bytes of a body that is packed."""
        self._room = room
        self._form = _form_of(room)
        self._size = self._form.size
        self._least = LENGTH * self._size // _EACH

    def add(self, slot: int, record: Record) -> None:
        """Add a message."""
        self.count += 1
        if self.few is not None:
            self.few[slot] = record
            if self.count > 2 * self._least:
                self._make(self.few)
            return
        *fields, body, properties = record
        if properties is None and len(body) <= self._room:
            self._form.pack_into(self.packed, slot * self._size, *fields, body)
        else:
            self._form.pack_into(self.packed, slot * self._size, *fields, b"")
            if self.outside is None:
                self.outside = [None] * LENGTH
            self.outside[slot] = body, properties

    def get(self, slot: int) -> Record | None:
        """Return the message in a slot."""
        if self.few is not None:
            return self.few.get(slot)
        found = self._form.unpack_from(self.packed, slot * self._size)
        if found[_KEY] < 0:
            return None
        if self.outside is not None and self.outside[slot] is not None:
            return _made(Record, found[:-1] + self.outside[slot])
        return _made(Record, found + _NO_PROPERTIES)

    def remove(self, slot: int) -> None:
        """Remove the message in a slot."""
        self.count -= 1
        if self.few is not None:
            del self.few[slot]
            return
        self.packed[slot * self._size + _URGENCIES] = _GONE
        if self.outside is not None:
            self.outside[slot] = None
        if self.count < self._least:
            self._unmake()

    def slots(self, urgency: int) -> int:
        """Return the slots of the messages with an urgency, as the bits of a number."""
        known = self.runs[urgency]
        if known is not None:
            return known
        if self.few is not None:
            chosen = [slot for slot, record in self.few.items() if record.queue_key >> URGENCY == urgency]
        else:
            urgencies = self.packed[_URGENCIES :: self._size]
            chosen = [slot for slot, own in enumerate(urgencies) if own == urgency]
        bits = bytearray(LENGTH // 8)
        for slot in chosen:
            bits[slot >> 3] |= 1 << (slot & 7)
        found = int.from_bytes(bits, "little")
        if found:
            self.runs[urgency] = found
            self.walked = True
        return found

    def _make(self, few: dict[int, Record]) -> None:
        """Pack the messages, with room for the bodies of nine of ten, if that is not too much."""
        if not self._room:
            lengths = sorted(len(record.body) for record in few.values() if record.properties is None)
            usual = lengths[len(lengths) * 9 // 10] if len(lengths) > len(few) // 2 else 0
            if 0 < usual <= _ROOM:
                self._shape(usual)
                return
        self.few = None
        self.packed = bytearray(LENGTH * self._size)
        self.packed[_URGENCIES :: self._size] = bytes((_GONE,)) * LENGTH
        self.count = 0
        for slot, record in few.items():
            self.add(slot, record)

    def _unmake(self) -> None:
        found = ((slot, self.get(slot)) for slot in range(LENGTH))
        self.few = {slot: record for slot, record in found if record is not None}
        self.packed, self.outside = bytearray(), None


@lru_cache(maxsize=_ROOM + 1)
def _form_of(room: int) -> Struct:
    """Return the layout of a message with a body of at most this length."""
    return Struct(f"{_FIELDS}{room + 1}p")


# ---- All blocks of a queue

_NUMBERS: Final = ARRIVALS >> SHIFT
"""Mask of the block number in the number of a run."""


class Blocks:
    """Messages by key, and in the order of their keys.

    The messages of a block with one urgency are a run. The numbers of the runs are sorted, and within a run
    the order is that of arrival. So adding and removing needs no search, and a block that was never walked
    through keeps no order at all.

    invariant: a block has a message; ``_runs`` has the numbers of the runs of all blocks.
    """

    __slots__ = ("_blocks", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._blocks: dict[int, Block] = {}
        self._runs: SortedList = SortedList()

    def get(self, queue_key: int) -> Record | None:
        """Return the message with a key. O(1)."""
        block = self._blocks.get((queue_key & ARRIVALS) >> SHIFT)
        record = None if block is None else block.get(queue_key & WITHIN)
        return record if record is not None and record[_KEY] == queue_key else None

    def arrived(self, arrival: int) -> Record | None:
        """Return the message of an arrival number. O(1)."""
        block = self._blocks.get(arrival >> SHIFT)
        return None if block is None else block.get(arrival & WITHIN)

    def add(self, record: Record) -> None:
        """Add a message. O(1), amortised."""
        queue_key: int = record.queue_key
        number = (queue_key & ARRIVALS) >> SHIFT
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = Block()
        block.add(queue_key & WITHIN, record)
        self.count += 1
        run = block.runs.get(queue_key >> URGENCY, 0)
        if run is not None:
            if not run:
                self._runs.add(queue_key >> SHIFT)
            block.runs[queue_key >> URGENCY] = run | 1 << (queue_key & WITHIN) if run else None

    def remove(self, queue_key: int) -> None:
        """Remove the message with a key. O(1), amortised."""
        number = (queue_key & ARRIVALS) >> SHIFT
        block = self._blocks[number]
        block.remove(queue_key & WITHIN)
        self.count -= 1
        if block.walked:
            self._leave(block, queue_key)
        if not block.count:
            del self._blocks[number]
            for urgency in block.runs:
                self._runs.remove(urgency << URGENCY - SHIFT | number)

    def _leave(self, block: Block, queue_key: int) -> None:
        """Remove a key from its run."""
        run = block.runs[queue_key >> URGENCY]
        if run is not None:
            run ^= 1 << (queue_key & WITHIN)
            if run:
                block.runs[queue_key >> URGENCY] = run
            else:
                del block.runs[queue_key >> URGENCY]
                self._runs.remove(queue_key >> SHIFT)

    def first(self) -> Record | None:
        """Return the first message. O(1), amortised."""
        while self._runs:
            run = self._runs[0]
            block, urgency = self._blocks[run & _NUMBERS], run >> URGENCY - SHIFT
            slots = block.slots(urgency)
            if slots:
                return block.get((slots & -slots).bit_length() - 1)
            del block.runs[urgency], self._runs[0]
        return None

    def walk(self, after: int = -1) -> Iterator[Record]:
        """Yield the messages behind a key, in order. They must not change meanwhile."""
        begin = after + 1
        for run in self._runs.irange(begin >> SHIFT):
            block = self._blocks[run & _NUMBERS]
            slots = block.slots(run >> URGENCY - SHIFT)
            if run == begin >> SHIFT:
                slots &= -1 << (begin & WITHIN)
            while slots:
                lowest = slots & -slots
                record = block.get(lowest.bit_length() - 1)
                assert record is not None, "a slot of a run has a message"
                yield record
                slots ^= lowest
