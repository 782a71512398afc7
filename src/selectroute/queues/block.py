"""8,192 messages of a queue in memory that arrived one after the other, packed.

Ten million messages are mostly a matter of how many places in memory a call goes to: each is a wait of a
third of a microsecond. So the messages of a block are one array of bytes, short bodies with them. What is
packed is no object for Python's collector of cycles to look at, either.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final

from selectroute.queues.places import URGENCY
from selectroute.queues.record import BODY, PLACE, PROPERTIES, Record

SHIFT: Final = 13
LENGTH: Final = 1 << SHIFT
"""Messages of one block."""

WITHIN: Final = LENGTH - 1

_FIELDS: Final = "<24s24s24sii?b?iqiqqix"
"""A record up to its place, its form, and what it takes to a multiple of eight."""

_SIZE: Final = Struct(_FIELDS).size
_URGENCIES: Final = _SIZE - 6
"""Where the urgency of the first message stands: in the last byte of its place."""

_FORM: Final = BODY
_FORMS: Final = _SIZE - 5
"""Where the form stands: 0 for no message, 1 for one whose body and properties are outside, else two more
than the bytes of its body.
"""

_form = Struct("<i")
_NONE: Final = _form.pack(0)
_OUTSIDE: Final = 1

_EACH: Final = 1_000
"""Bytes of a packed block for each of its messages, at most: with fewer messages it is a dictionary. It is
made when it takes half of that.
"""

_ROOM: Final = 256
"""Bytes of a body that is packed, at most."""


class Block:
    """Messages by slot. ``runs`` has the urgencies that they have.

    invariant: `count` is the number of messages. The messages are in ``few``, or else in ``packed``, and
    ``outside`` has the body and the properties of those that have properties, or no room. Of each urgency
    ``runs`` has the slots, as the bits of a number that is not 0, or None: then nobody has asked, and there
    may be none. ``walked`` says that somebody has asked for some of them.
    """

    __slots__ = ("_enough", "_form", "_room", "count", "few", "outside", "packed", "runs", "walked")

    def __init__(self) -> None:
        self.count = 0
        self.few: dict[int, Record] | None = {}
        self.packed = bytearray()
        self.outside: list[Any] = []
        self.runs: dict[int, int | None] = {}
        self.walked = False
        self._form, self._room = _form_of(0), 0
        self._enough = 2 * LENGTH * _SIZE // _EACH

    def add(self, slot: int, record: Record) -> None:
        """Add a message."""
        self.count += 1
        if self.few is not None:
            self.few[slot] = record
            if self.count > self._enough:
                self._make(self.few)
            return
        *fields, body, properties = record
        form, at = self._form, slot * self._form.size
        if properties is None and len(body) <= self._room:
            form.pack_into(self.packed, at, *fields, len(body) + 2, body)
        else:
            form.pack_into(self.packed, at, *fields, _OUTSIDE, b"")
            if not self.outside:
                self.outside = [None] * LENGTH
            self.outside[slot] = body, properties

    def get(self, slot: int) -> Record | None:
        """Return the message in a slot."""
        if self.few is not None:
            return self.few.get(slot)
        found: Record = self._form.unpack_from(self.packed, slot * self._form.size)
        form = found[_FORM]
        if form > _OUTSIDE:
            content = found[-1][: form - 2], None
            return found[:_FORM] + content
        return found[:_FORM] + self.outside[slot] if form else None

    def remove(self, slot: int) -> None:
        """Take the message in a slot out."""
        self.count -= 1
        if self.few is not None:
            del self.few[slot]
            return
        at = slot * self._form.size + _FORMS
        self.packed[at : at + 4] = _NONE
        if self.outside:
            self.outside[slot] = None
        if self.count * _EACH < len(self.packed):
            self._unmake()

    def slots(self, urgency: int) -> int:
        """Return the slots of the messages with an urgency, as the bits of a number."""
        known = self.runs[urgency]
        if known is not None:
            return known
        if self.few is not None:
            chosen = [slot for slot, record in self.few.items() if record[PLACE] >> URGENCY == urgency]
        else:
            size = self._form.size
            each = zip(
                self.packed[_URGENCIES::size],
                self.packed[_FORMS::size],
                self.packed[_FORMS + 1 :: size],
                strict=True,
            )
            chosen = [slot for slot, (own, low, high) in enumerate(each) if own == urgency and low | high]
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
            lengths = sorted(len(record[BODY]) for record in few.values() if record[PROPERTIES] is None)
            usual = lengths[len(lengths) * 9 // 10] if len(lengths) > len(few) // 2 else 0
            if 0 < usual <= _ROOM:
                self._room = (usual + 7) // 8 * 8
                self._form = _form_of(self._room)
                self._enough = 2 * LENGTH * self._form.size // _EACH
                return
        self.few = None
        self.packed = bytearray(LENGTH * self._form.size)
        self.count = 0
        for slot, record in few.items():
            self.add(slot, record)

    def _unmake(self) -> None:
        found = ((slot, self.get(slot)) for slot in range(LENGTH))
        self.few = {slot: record for slot, record in found if record is not None}
        self.packed, self.outside = bytearray(), []


@lru_cache(maxsize=_ROOM)
def _form_of(room: int) -> Struct:
    """How a message is packed with room for a body."""
    return Struct(f"{_FIELDS}{room}s")
