"""Short strings: a second table of the constants of up to eight bytes, which a lookup finds without a branch.

Of strings of one length up to eight bytes, no two have the same hash: it multiplies by odd numbers and folds,
both of which can be undone. So hash and length stand for the string. And the table is perfect: each bucket of
constants has a multiplier that sends them to slots of their own, so that there is one slot to compare::

    bucket = hash & …        multiplier[bucket] = 5      slot[hash * 5 …] = hash, length << 32 | code

It is made from the segment when that is first matched.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import hash_strings
from selectroute.arrays.segment import Segment
from selectroute.match.compiled import compiled, inlined

LONGEST: Final = 8
"""Bytes of the longest short string: one word of the hash."""

_TRIES: Final = 1 << 14
"""Multipliers that are tried for a bucket; most need fewer than ten."""

_MADE: Final = "_short_strings"
"""Attribute of a segment: its table."""

_EMPTY = np.uint64(t.EMPTY_SLOT)
_HALF, _ONE = np.uint64(32), np.uint64(1)


class ShortStrings(NamedTuple):
    """Tables by attribute, each with a power of two slots, at most half of them taken, and a quarter as many
    buckets; none for an attribute without short strings, or where no multiplier was found.
    """

    first: t.Int64  # [attributes + 1], number of the first slot
    slot: t.UInt64  # [2 x slots]: hash, and length << 32 | code; or EMPTY_SLOT
    multiplier: t.UInt16  # [slots / 4]


def short_strings(segment: Segment) -> ShortStrings:
    """Return the tables of a segment. O(strings), once."""
    made: ShortStrings | None = segment.__dict__.get(_MADE)
    if made is None:
        made = segment.__dict__[_MADE] = _tables(segment.tables)
    return made


def _tables(tables: t.Tables) -> ShortStrings:
    used = np.flatnonzero(tables.string_slot != _EMPTY)
    strings = (tables.string_slot[used] & np.uint64(t.MOST_STRINGS)).astype(np.int64)
    sizes = np.diff(tables.string_first)
    short = (sizes[strings] <= LONGEST) & (tables.string_tag[strings] == t.STRING)
    strings, used = strings[short], used[short]
    sizes = sizes[strings]
    owners = np.searchsorted(tables.string_slot_first, used, side="right") - 1
    ends = np.cumsum(sizes)
    octets = np.repeat(tables.string_first[strings] - ends + sizes, sizes) + np.arange(sizes.sum())
    tags = np.full(len(strings), t.STRING, np.uint8)
    hashes = hash_strings(tables.string_bytes[octets], np.append(0, ends), tags)
    metas = sizes.astype(np.uint64) << _HALF | tables.string_code[strings].astype(np.uint32)
    slots, multipliers, first = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint16)], [0]
    for attribute in range(len(tables.string_slot_first) - 1):
        own = np.flatnonzero(owners == attribute) if len(owners) else owners
        if len(own):
            rooms = 4 << max(int(len(own) - 1).bit_length() - 1, 0)
            own = own[np.argsort(hashes[own] & np.uint64(rooms // 4 - 1), kind="stable")]
            slot, multiplier = np.full(2 * rooms, _EMPTY, np.uint64), np.ones(rooms // 4, np.uint16)
            if fill(hashes[own], metas[own], slot, multiplier):
                slots.append(slot)
                multipliers.append(multiplier)
        first.append(sum(map(len, slots)) // 2)
    return ShortStrings(np.array(first, np.int64), np.concatenate(slots), np.concatenate(multipliers))


@compiled
def fill(hashes, metas, slot, multiplier):
    """Fill a table, with strings in the order of their buckets. Returns False if a bucket fits nowhere."""
    mask = np.uint64(len(multiplier) - 1)
    first = 0
    while first < len(hashes):
        bucket = hashes[first] & mask
        last = first
        while last < len(hashes) and hashes[last] & mask == bucket:
            last += 1
        fits = False
        for attempt in range(_TRIES):
            factor = np.uint64(2 * attempt + 1)
            fits = True
            for k in range(first, last):
                at = place_of(hashes[k], factor, len(slot))
                if slot[at + 1] != _EMPTY:
                    fits = False
                    for other in range(first, k):  # undo
                        slot[place_of(hashes[other], factor, len(slot)) + 1] = _EMPTY
                    break
                slot[at], slot[at + 1] = hashes[k], metas[k]
            if fits:
                multiplier[bucket] = factor
                break
        if not fits:
            return False
        first = last
    return True


@inlined
def place_of(hashed, factor, words):
    """Return the place of a hash among the ``words`` of a table's slots."""
    return np.int64((hashed * factor >> _HALF << _ONE) & np.uint64(words - 1))
