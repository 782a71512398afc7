"""Hash table from ids of 24 bytes to postings, with neither ids nor objects in it.

A dictionary of ten million ids has five cache misses for each one that is added or removed: its table, its
entries, the key, the value, and the allocator's lists. This table has one: a slot is a posting and the hash
of an id, sixteen bytes of an array. Where ids have many postings, as those of groups do, a slot is 128 bytes
and has up to fifteen, so that there is no second miss for the list.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Final

from selectroute.queues.memory.postings import LONGEST, Listed, Rows, size_of, with_posting, without_posting

_FIRST: Final = 256
"""Slots of a new table, which has one shard."""

_SLOTS: Final = 8_192
"""Slots of every narrow shard, once there are several; dividing one takes two milliseconds. Wide ones have
the same length, and thus 1,024 slots.
"""

_WIDTH: Final = 16
"""Numbers in a wide slot: a hash, and up to `LONGEST` postings."""

_FARTHEST: Final = 2 * 16
"""Longest probe: a narrow shard that needs more is too full, at a load of about 40 %."""

_FARTHEST_WIDE: Final = _WIDTH * 32
"""Longest probe in a wide shard, which is at a load of about 60 % then."""

_SELDOM: Final = 127
"""Mask of a hash: one removal in 128 checks whether its shard can be merged with its other half."""

_SAMPLE: Final = 2 * 512
"""Numbers of the shard that this check samples first."""

_MANY: Final = 6
"""Average number of postings of an id from which a shard becomes wide; at half of that it becomes narrow.
With fewer, a wide slot would be mostly empty, and take more memory than it saves time.
"""

_SOME: Final = 256
"""Ids that this average is taken of."""

_GAP: Final = array("q", bytes(8 * _WIDTH))


class _Wide(array):  # type: ignore[type-arg]  # takes none before Python 3.12
    """Shard of wide slots."""

    __slots__ = ()


class Ids:
    """Postings by the hash of an id. Operations are O(1), amortised, and take a few milliseconds at most.

    Ids with the same 64-bit hash share a slot: a lookup compares the messages with the id.
    (Python's hash of bytes has a secret seed, so collisions cannot be constructed.)

    The lower bits of the hash choose the shard; of several numbers in a row that choose the same one, it
    takes the bits that tell them apart when it is divided (extendible hashing). Within a shard an id has the
    slot that other bits of its hash choose, or one of those behind it, without a gap (linear probing).
    Several shards have the same length. The slots of one have one of two forms::

        narrow  posting or ~list, hash
        wide    hash, posting or ~list, further postings in order, zeros

    A table begins narrow and becomes wide while it is small, if its ids have many postings. A wide shard that
    fills up with ids that have few becomes narrow again.

    invariant: a slot without an id has 0 for its posting, and a wide one zeros behind that. A shard has such
    slots. A list has two postings or more. An even number of a list is twice that of a row; an odd one is
    that of a longer list, which alone a wide slot may have.
    """

    __slots__ = ("_free", "_last", "_lists", "_mask", "_rows", "_shards")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._shards: list[array[int]] = [array("q", bytes(16 * _FIRST))]
        self._mask = 0
        self._last = 2 * _FIRST - 2
        self._rows = Rows()
        self._lists: list[Listed] = []
        self._free: list[int] = []

    def get(self, id: bytes) -> Listed | None:
        """Return the postings of messages that may have an id, None if none has it. O(1)."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        if type(shard) is _Wide:
            return self._in_wide(shard, hashed)
        slot = hashed >> 32 & last
        while found := shard[slot]:
            if shard[slot + 1] == hashed:
                return found if found > 0 else self._listed(found)
            slot = slot + 2 & last
        return None

    def add(self, id: bytes, posting: int) -> None:
        """Add the posting, not 0, of a message with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        if type(shard) is _Wide:
            self._add_to_wide(shard, id, hashed, posting)
            return
        slot = first = hashed >> 32 & last
        if found := shard[slot]:
            while found:
                if shard[slot + 1] == hashed:
                    shard[slot] = self._shared(found, posting)
                    return
                slot = slot + 2 & last
                found = shard[slot]
            if slot - first & last > _FARTHEST:
                self._grow(hashed & self._mask)
                self.add(id, posting)
                return
        shard[slot] = posting
        shard[slot + 1] = hashed

    def remove(self, id: bytes, posting: int) -> None:
        """Remove a posting that was added with an id. O(1), of a shared id O(log n) of its messages."""
        hashed = hash(id)
        shard, last = self._shards[hashed & self._mask], self._last
        if type(shard) is _Wide:
            self._remove_from_wide(shard, hashed, posting)
            return
        slot = hashed >> 32 & last
        while (found := shard[slot]) != posting:
            if shard[slot + 1] == hashed and found < 0:
                shard[slot] = self._left(found, posting)
                return
            if not found:
                raise KeyError(posting)
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
        """Yield every hash and the postings with it, in no order."""
        for shard in {id(shard): shard for shard in self._shards}.values():
            yield from self._entries(shard)

    # ---- wide slots

    def _in_wide(self, shard: array[int], hashed: int) -> Listed | None:
        """See `get`."""
        last = self._last & -_WIDTH
        slot = hashed >> 32 & last
        while found := shard[slot + 1]:
            if shard[slot] == hashed:
                if found < 0:
                    return self._listed(found)
                return _row(shard, slot) if shard[slot + 2] else found
            slot = slot + _WIDTH & last
        return None

    def _add_to_wide(self, shard: array[int], id: bytes, hashed: int, posting: int) -> None:
        """See `add`."""
        last = self._last & -_WIDTH
        slot = first = hashed >> 32 & last
        while found := shard[slot + 1]:
            if shard[slot] == hashed:
                break
            slot = slot + _WIDTH & last
        if not found:
            if slot - first & last > _FARTHEST_WIDE:
                self._grow(hashed & self._mask)
                self.add(id, posting)
                return
            shard[slot], shard[slot + 1] = hashed, posting
        elif found < 0:
            shard[slot + 1] = self._shared(found, posting)
        else:
            row = _row(shard, slot)
            count = len(row)
            if count == LONGEST:
                shard[slot : slot + _WIDTH] = _GAP
                shard[slot], shard[slot + 1] = hashed, self._long_list(with_posting(row, posting))
            elif posting > row[-1]:
                shard[slot + 1 + count] = posting
            else:
                row.insert(bisect_left(row, posting), posting)
                shard[slot + 1 : slot + 2 + count] = row

    def _remove_from_wide(self, shard: array[int], hashed: int, posting: int) -> None:
        """See `remove`."""
        last = self._last & -_WIDTH
        slot = hashed >> 32 & last
        while shard[slot] != hashed or not shard[slot + 1]:
            if not shard[slot + 1]:
                raise KeyError(posting)
            slot = slot + _WIDTH & last
        found = shard[slot + 1]
        if found < 0:
            shard[slot + 1] = self._left(found, posting)
            return
        row = shard[slot + 1 : slot + _WIDTH]
        row.remove(posting)
        row.append(0)
        shard[slot + 1 : slot + _WIDTH] = row
        if row[0]:
            return
        gap = slot
        while shard[(slot := slot + _WIDTH & last) + 1]:
            if (slot - (shard[slot] >> 32 & last) & last) >= (slot - gap & last):
                shard[gap : gap + _WIDTH] = shard[slot : slot + _WIDTH]
                gap = slot
        shard[gap : gap + _WIDTH] = _GAP
        if not hashed >> 48 & _SELDOM:
            self._shrink(hashed & self._mask)

    # ---- lists

    def _listed(self, found: int) -> Listed:
        """Return the postings of a list."""
        number = ~found
        return self._lists[number >> 1] if number & 1 else self._rows.listed(number >> 1)

    def _long_list(self, listed: Listed) -> int:
        """Store a list that is too long for a row, and return the content of its slot."""
        if self._free:
            number = self._free.pop()
            self._lists[number] = listed
        else:
            number = len(self._lists)
            self._lists.append(listed)
        return ~(number << 1 | 1)

    def _shared(self, found: int, posting: int) -> int:
        """Return the content of a slot with one more posting."""
        number = ~found
        if found > 0:
            return ~(self._rows.make(found, posting) << 1)
        if number & 1:
            self._lists[number >> 1] = with_posting(self._lists[number >> 1], posting)
            return found
        if self._rows.add(number >> 1, posting):
            return found
        listed = with_posting(self._rows.listed(number >> 1), posting)
        self._rows.drop(number >> 1)
        return self._long_list(listed)

    def _left(self, found: int, posting: int) -> int:
        """Return the content of a slot whose list has one posting less."""
        number = ~found
        if not number & 1:
            return self._rows.remove(number >> 1, posting) or found
        listed = self._lists[number >> 1] = without_posting(self._lists[number >> 1], posting)
        if type(listed) is not int:
            return found
        self._lists[number >> 1] = None
        self._free.append(number >> 1)
        return listed

    # ---- shards

    def _grow(self, chosen: int) -> None:
        """Make room in a shard that is too full: slots of the other form, or more of them."""
        shard = self._shards[chosen]
        wide, taken = type(shard) is _Wide, _taken(shard, _width(shard))
        if not wide and 4 * _WIDTH * taken <= 2 * _SLOTS and self._average(shard) >= _MANY:
            self._copy(chosen, _Wide)
        elif wide and self._average(shard) < _MANY / 2:
            self._copy(chosen, array)
        elif len(shard) < 2 * _SLOTS:
            self._double()
        else:
            self._divide(chosen)

    def _average(self, shard: array[int]) -> float:
        """Return the postings of an id in a shard, on an average of some of the ids."""
        sizes = [size_of(listed) for _, listed in islice(self._entries(shard), _SOME)]
        return sum(sizes) / len(sizes)

    def _double(self) -> None:
        """Double the only shard."""
        (shard,) = self._shards
        self._last = 2 * len(shard) - 2
        larger = _empty(type(shard), 2 * len(shard))
        _fill(shard, larger, larger, 0)
        self._shards = [larger]

    def _divide(self, chosen: int) -> None:
        """Divide a shard."""
        shard = self._shards[chosen]
        # The bit that tells the halves apart is the first that does not tell this shard from any other.
        bit = 2 * self._last_bit(chosen) or 1
        if bit > self._mask:
            self._shards += self._shards
            self._mask = 2 * self._mask + 1
        halves = _empty(type(shard), len(shard)), _empty(type(shard), len(shard))
        _fill(shard, halves[0], halves[1], bit)
        for number in range(chosen & bit - 1, len(self._shards), bit):
            self._shards[number] = halves[bool(number & bit)]

    def _shrink(self, chosen: int) -> None:
        """Merge a shard with its other half, if both are nearly empty."""
        shard = self._shards[chosen]
        width = _width(shard)
        if 8 * width * _taken(shard[:_SAMPLE], width) > _SAMPLE:
            return
        bit = self._last_bit(chosen)
        if not bit or self._last_bit(chosen ^ bit) != bit:
            return
        other = self._shards[chosen ^ bit]
        if 8 * width * (_taken(shard, width) + _taken(other, _width(other))) > len(shard):
            return
        if type(other) is not type(shard):
            other = self._copy(chosen ^ bit, type(shard))
        one = _empty(type(shard), len(shard))
        for half in (shard, other):
            _fill(half, one, one, 0)
        for number in range(chosen & bit - 1, len(self._shards), bit):
            self._shards[number] = one

    def _copy(self, chosen: int, kind: type[array[int]]) -> array[int]:
        """Replace a shard by one of the other form with the same entries, and return that."""
        shard, copy = self._shards[chosen], _empty(kind, 2 * _SLOTS)
        step = 2 * self._last_bit(chosen) or 1
        for number in range(chosen & step - 1, len(self._shards), step):
            self._shards[number] = copy
        self._last = 2 * _SLOTS - 2
        last = 2 * _SLOTS - _width(copy)
        for slot in range(0, len(shard), _width(shard)):
            if kind is not _Wide and (found := shard[slot + 1]):
                at = shard[slot] >> 32 & last
                while copy[at]:
                    at = at + 2 & last
                if found > 0:
                    for posting in _row(shard, slot)[1:]:
                        found = self._shared(found, posting)
                copy[at], copy[at + 1] = found, shard[slot]
            elif kind is _Wide and (found := shard[slot]):
                at = shard[slot + 1] >> 32 & last
                while copy[at + 1]:
                    at = at + _WIDTH & last
                copy[at], copy[at + 1] = shard[slot + 1], found
                if found < 0 and not ~found & 1:
                    row = self._rows.listed(~found >> 1)
                    self._rows.drop(~found >> 1)
                    copy[at + 1 : at + 1 + len(row)] = row
        return copy

    def _last_bit(self, chosen: int) -> int:
        """Return the highest bit of a hash that tells a shard from its other half, 0 for the only shard."""
        shard, bit = self._shards[chosen], self._mask + 1 >> 1
        while bit and self._shards[chosen ^ bit] is shard:
            bit >>= 1
        return bit

    def _entries(self, shard: array[int]) -> Iterator[tuple[int, Listed]]:
        """Yield every hash in a shard and the postings with it."""
        wide = type(shard) is _Wide
        for slot in range(0, len(shard), _width(shard)):
            found, hashed = (shard[slot + 1], shard[slot]) if wide else (shard[slot], shard[slot + 1])
            if found < 0:
                yield hashed, self._listed(found)
            elif found:
                yield hashed, _row(shard, slot) if wide and shard[slot + 2] else found


def _empty(kind: type[array[int]], numbers: int) -> array[int]:
    return kind("q", bytes(8 * numbers))


def _width(shard: array[int]) -> int:
    return _WIDTH if type(shard) is _Wide else 2


def _row(shard: array[int], slot: int) -> array[int]:
    """Return the postings in a wide slot."""
    row = shard[slot + 1 : slot + _WIDTH]
    if not row[-1]:
        del row[row.index(0) :]
    return row


def _taken(shard: array[int], width: int) -> int:
    """Return the number of slots taken in a shard or a part of one."""
    return len(shard) // width - shard[width > 2 :: width].count(0)


def _fill(shard: array[int], low: array[int], high: array[int], bit: int) -> None:
    """Copy a shard into two of its kind, by a bit of the hashes."""
    if type(shard) is _Wide:
        last = len(low) - _WIDTH
        for slot in range(0, len(shard), _WIDTH):
            if shard[slot + 1]:
                half, at = high if shard[slot] & bit else low, shard[slot] >> 32 & last
                while half[at + 1]:
                    at = at + _WIDTH & last
                half[at : at + _WIDTH] = shard[slot : slot + _WIDTH]
        return
    last = len(low) - 2
    each = iter(shard.tolist())
    for found, hashed in zip(each, each, strict=True):
        if found:
            half = high if hashed & bit else low
            slot = hashed >> 32 & last
            while half[slot]:
                slot = slot + 2 & last
            half[slot], half[slot + 1] = found, hashed
