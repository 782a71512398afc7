"""Hash table from ids of 24 bytes to queue keys, with neither ids nor objects in it.

A dictionary of ten million ids has five cache misses for each one that is added or removed: its table, its
entries, the key, the value, and the allocator's lists. This table has one: a slot is a queue key and the hash
of an id, sixteen bytes of an array.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from selectroute.queues.memory.postings import Listed, Rows, with_key, without_key

_FIRST: Final = 256
"""Slots of a new table, which has one shard."""

_SLOTS: Final = 8_192
"""Slots of every shard, once there are several; dividing one takes two milliseconds."""

_FARTHEST: Final = 2 * 16
"""Longest probe: a shard that needs more is too full, at a load of about 40 %."""

_SELDOM: Final = 127
"""Mask of a hash: one removal in 128 checks whether its shard can be merged with its other half."""

_SAMPLE: Final = 2 * 512
"""Numbers of the shard that this check samples first."""


class Ids:
    """Queue keys by the hash of an id. Operations are O(1), amortised, and take a few milliseconds at most.

    Ids with the same 64-bit hash share a list: a lookup compares the messages with the id.
    (Python's hash of bytes has a secret seed, so collisions cannot be constructed.)

    The lower bits of the hash choose the shard; of several numbers in a row that choose the same one, it
    takes the bits that tell them apart when it is divided (extendible hashing). Within a shard a key is in
    the slot that other bits of its hash choose, or in one of those behind it, without a gap (linear probing).

    invariant: an even item of a shard is a key, 0 for none, or below 0 the number of a list, inverted; the
    odd one behind it is the hash. A shard has gaps. A list has two keys or more: an even number is twice
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
        """Return the keys of messages that may have an id, None if none has it. O(1)."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = hashed >> 32 & last
        while found := shard[slot]:
            if shard[slot + 1] == hashed:
                return found if found > 0 else self._listed(found)
            slot = slot + 2 & last
        return None

    def add(self, id: bytes, queue_key: int) -> None:
        """Add the key, not 0, of a message with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = first = hashed >> 32 & last
        if found := shard[slot]:
            while found:
                if shard[slot + 1] == hashed:
                    shard[slot] = self._shared(found, queue_key)
                    return
                slot = slot + 2 & last
                found = shard[slot]
            if slot - first & last > _FARTHEST:
                self._grow(hashed & self._mask)
                self.add(id, queue_key)
                return
        shard[slot] = queue_key
        shard[slot + 1] = hashed

    def remove(self, id: bytes, queue_key: int) -> None:
        """Remove a key that was added with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        slot = hashed >> 32 & last
        while (found := shard[slot]) != queue_key:
            if shard[slot + 1] == hashed and found < 0:
                shard[slot] = self._left(found, queue_key)
                return
            if not found:
                raise KeyError(queue_key)
            slot = slot + 2 & last
        # Entries behind the gap that a probe would no longer reach move into it.
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
        """Free the memory of an empty table."""
        if self._last > 2 * _FIRST:
            self._begin()

    def walk(self) -> Iterator[tuple[int, Listed]]:
        """Yield every hash and the keys with it, in no order."""
        for shard in {id(shard): shard for shard in self._shards}.values():
            for slot in range(0, len(shard), 2):
                if found := shard[slot]:
                    yield shard[slot + 1], found if found > 0 else self._listed(found)

    def _listed(self, found: int) -> Listed:
        """Return the keys of a list."""
        number = ~found
        return self._lists[number >> 1] if number & 1 else self._rows.keys(number >> 1)

    def _shared(self, found: int, queue_key: int) -> int:
        """Return the content of a slot with one more key."""
        number = ~found
        if found > 0:
            return ~(self._rows.make(found, queue_key) << 1)
        if number & 1:
            self._lists[number >> 1] = with_key(self._lists[number >> 1], queue_key)
            return found
        if self._rows.add(number >> 1, queue_key):
            return found
        listed = with_key(self._rows.keys(number >> 1), queue_key)
        self._rows.drop(number >> 1)
        if self._free:
            number = self._free.pop()
            self._lists[number] = listed
        else:
            number = len(self._lists)
            self._lists.append(listed)
        return ~(number << 1 | 1)

    def _left(self, found: int, queue_key: int) -> int:
        """Return the content of a slot whose list has one key less."""
        number = ~found
        if not number & 1:
            return self._rows.remove(number >> 1, queue_key) or found
        listed = self._lists[number >> 1] = without_key(self._lists[number >> 1], queue_key)
        if type(listed) is not int:
            return found
        self._lists[number >> 1] = None
        self._free.append(number >> 1)
        return listed

    def _grow(self, chosen: int) -> None:
        """Double the only shard, or divide the chosen one."""
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
        """Merge a shard with its other half, if both are nearly empty."""
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
        """Return the highest bit of a hash that tells a shard from its other half, 0 for the only shard."""
        shard, bit = self._shards[chosen], self._mask + 1 >> 1
        while bit and self._shards[chosen ^ bit] is shard:
            bit >>= 1
        return bit


def _taken(shard: array[int]) -> int:
    """Return the number of slots taken in a shard."""
    return len(shard) // 2 - shard[::2].count(0)


def _empty(slots: int) -> array[int]:
    return array("q", bytes(16 * slots))


def _fill(shard: array[int], low: array[int], high: array[int], bit: int) -> None:
    """Copy a shard into two, by a bit of the hashes."""
    last = len(low) - 2
    each = iter(shard.tolist())
    for found, hashed in zip(each, each, strict=True):
        if found:
            half = high if hashed & bit else low
            slot = hashed >> 32 & last
            while half[slot]:
                slot = slot + 2 & last
            half[slot], half[slot + 1] = found, hashed
