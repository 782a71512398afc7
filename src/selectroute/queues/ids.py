"""Places by an id of 24 bytes: a hash table that has neither ids nor objects in it.

A dictionary of ten million ids goes to five places in memory for each of them that comes or goes: its table,
its entries, the key, the value, and where the memory of these two is given back. This one goes to one: a slot
is a place and the hash of an id, sixteen bytes of an array.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from selectroute.queues.listed import Listed, with_place, without_place
from selectroute.queues.rows import Rows

_FIRST: Final = 256
"""Slots of the first shard to begin with."""

_SLOTS: Final = 8_192
"""Slots of every shard, once there are several: it is divided in two milliseconds, and nothing else grows."""

_FARTHEST: Final = 2 * 16
"""A shard with a place so far behind its slot is too full: about where four of ten slots are taken."""

_SELDOM: Final = 127
"""Of so many ids that go, and one more, one has its shard looked at, whether that may be one with another."""

_SAMPLE: Final = 2 * 512
"""How much of it is looked at first."""


class Ids:
    """Places by the hash of an id. Every operation is O(1), amortised, and takes a few milliseconds at most.

    Of two ids that have one hash, of 64 bits, the places are together: whoever looks up an id compares the
    messages with it. (Python's hash of bytes has a secret key; so nobody can look for such ids.)

    The lower bits of the hash choose the shard; of several numbers in a row that choose the same one, it
    takes the bits that tell them apart when it is divided (extendible hashing). Within a shard a place is in
    the slot that other bits of its hash choose, or in one of those behind it, without a gap (linear probing).

    invariant: an even item of a shard is a place, 0 for none, or below 0 the number of a list, inverted; the
    odd one behind it is the hash. A shard has gaps. A list has two places or more: an even number is twice
    that of a row, an odd one that of a longer list.
    """

    __slots__ = ("_free", "_last", "_lists", "_mask", "_rows", "_shards")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._shards: list[array[int]] = [_empty(_FIRST)]
        self._mask = 0
        self._last = 2 * _FIRST - 2
        self._rows = Rows()
        self._lists: list[Listed] = []
        self._free: list[int] = []

    def get(self, id: bytes) -> Listed | None:
        """Return the places of messages that may have an id, None if none has it. O(1)."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = hashed >> 32 & last
        while found := shard[slot]:
            if shard[slot + 1] == hashed:
                return found if found > 0 else self._listed(found)
            slot = slot + 2 & last
        return None

    def add(self, id: bytes, place: int) -> None:
        """Add the place, not 0, of a message with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = first = hashed >> 32 & last
        if found := shard[slot]:
            while found:
                if shard[slot + 1] == hashed:
                    shard[slot] = self._shared(found, place)
                    return
                slot = slot + 2 & last
                found = shard[slot]
            if slot - first & last > _FARTHEST:
                self._grow(hashed & self._mask)
                self.add(id, place)
                return
        shard[slot] = place
        shard[slot + 1] = hashed

    def remove(self, id: bytes, place: int) -> None:
        """Take a place out that was added with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = hashed >> 32 & last
        while (found := shard[slot]) != place:
            if shard[slot + 1] == hashed and found < 0:
                shard[slot] = self._left(found, place)
                return
            if not found:
                raise KeyError(place)
            slot = slot + 2 & last
        # What stands behind and would be found no more across the gap moves into it.
        gap = slot
        while found := shard[slot := slot + 2 & last]:
            other = shard[slot + 1]
            if (slot - (other >> 32 & last) & last) >= (slot - gap & last):
                shard[gap], shard[gap + 1] = found, other
                gap = slot
        shard[gap] = 0
        if not hashed >> 48 & _SELDOM:
            self._shrink(hashed & self._mask)

    def clear(self) -> None:
        """Give the memory back that a table without places has."""
        if self._last > 2 * _FIRST:
            self._begin()

    def walk(self) -> Iterator[tuple[int, Listed]]:
        """Yield every hash and the places with it, in no order."""
        for shard in {id(shard): shard for shard in self._shards}.values():
            for slot in range(0, len(shard), 2):
                if found := shard[slot]:
                    yield shard[slot + 1], found if found > 0 else self._listed(found)

    def _listed(self, found: int) -> Listed:
        """The places of a list."""
        number = ~found
        return self._lists[number >> 1] if number & 1 else self._rows.places(number >> 1)

    def _shared(self, found: int, place: int) -> int:
        """What stands in a slot that has one more place."""
        number = ~found
        if found > 0:
            return ~(self._rows.make(found, place) << 1)
        if number & 1:
            self._lists[number >> 1] = with_place(self._lists[number >> 1], place)
            return found
        if self._rows.add(number >> 1, place):
            return found
        listed = with_place(self._rows.places(number >> 1), place)
        self._rows.drop(number >> 1)
        if self._free:
            number = self._free.pop()
            self._lists[number] = listed
        else:
            number = len(self._lists)
            self._lists.append(listed)
        return ~(number << 1 | 1)

    def _left(self, found: int, place: int) -> int:
        """What stands in a slot of a list that has one place less."""
        number = ~found
        if not number & 1:
            return self._rows.remove(number >> 1, place) or found
        listed = self._lists[number >> 1] = without_place(self._lists[number >> 1], place)
        if type(listed) is not int:
            return found
        self._lists[number >> 1] = None
        self._free.append(number >> 1)
        return listed

    def _grow(self, chosen: int) -> None:
        """Make the only shard larger, or divide the one that is chosen."""
        shard = self._shards[chosen]
        if len(shard) < 2 * _SLOTS:
            larger = _empty(len(shard))
            _fill(shard, larger, larger, 0)
            self._shards, self._last = [larger], 2 * len(shard) - 2
            return
        # The bit that tells the halves apart is the first that does not tell this shard from any other.
        bit = 2 * self._last_bit(chosen) or 1
        if bit > self._mask:
            self._shards += self._shards
            self._mask = 2 * self._mask + 1
        halves = _empty(_SLOTS), _empty(_SLOTS)
        _fill(shard, halves[0], halves[1], bit)
        for number in range(chosen & bit - 1, len(self._shards), bit):
            self._shards[number] = halves[bool(number & bit)]

    def _shrink(self, chosen: int) -> None:
        """Make one shard of two that were one, if they have few places left."""
        if 8 * _taken(self._shards[chosen][:_SAMPLE]) > _SAMPLE // 2:
            return
        bit = self._last_bit(chosen)
        shard, other = self._shards[chosen], self._shards[chosen ^ bit]
        if not bit or self._last_bit(chosen ^ bit) != bit or _taken(shard) + _taken(other) > _SLOTS // 8:
            return
        one = _empty(_SLOTS)
        for half in (shard, other):
            _fill(half, one, one, 0)
        for number in range(chosen & bit - 1, len(self._shards), bit):
            self._shards[number] = one

    def _last_bit(self, chosen: int) -> int:
        """The highest bit of a hash that tells a shard from another, 0 for the only one."""
        shard, bit = self._shards[chosen], self._mask + 1 >> 1
        while bit and self._shards[chosen ^ bit] is shard:
            bit >>= 1
        return bit


def _taken(shard: array[int]) -> int:
    """How many slots of a shard are taken."""
    return len(shard) // 2 - shard[::2].count(0)


def _empty(slots: int) -> array[int]:
    return array("q", bytes(16 * slots))


def _fill(shard: array[int], low: array[int], high: array[int], bit: int) -> None:
    """Put what is in a shard into new ones, by a bit of its hash."""
    last = len(low) - 2
    each = iter(shard.tolist())
    for found, hashed in zip(each, each, strict=True):
        if found:
            half = high if hashed & bit else low
            slot = hashed >> 32 & last
            while half[slot]:
                slot = slot + 2 & last
            half[slot], half[slot + 1] = found, hashed
