"""Merging of the matches of several segments, without removed subscriptions."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import take_array

Found = tuple[t.Array, t.Array]
"""Offsets int64[rows + 1] and ordinals int32[total]."""

_DE_BRUIJN = 0x03F79D71B4CB0A89
_MULTIPLIER, _TOP = np.uint64(_DE_BRUIJN), np.uint64(58)
_PLACES = np.zeros(64, np.uint64)
_PLACES[[(_DE_BRUIJN << place) % 2**64 >> 58 for place in range(64)]] = range(64)
"""Position of a word's only bit, by the top bits of the product with a de Bruijn number."""


def empty_matches(rows: int) -> Found:
    """Return no matches for each of `rows` rows."""
    return np.zeros(rows + 1, np.int64), np.zeros(0, np.int32)


def merge_segments(
    runs: t.Array, offsets: t.Array, entry_ordinal: t.Array, first: int, dead: t.Array | None, others: Found
) -> Found:
    """Return the matches of one segment, as `kernel.emit` but without dead entries, and after them the others
    of each row.

    ``first`` is the segment's first ordinal. ``dead`` is uint64[words], bit ``entry & 63`` of word ``entry >>
    6``, see `Snapshot.dead_entries`. ``others`` are the matches in later segments; they are copied, so the
    largest segment, the base, is merged last: its matches are written once.
    """
    if not len(runs):
        return others
    ordinals = take_array(int(offsets[-1]) + len(others[1]))
    joined = np.zeros_like(offsets)
    words = _NONE_DEAD if dead is None else dead
    used = _copy_rows(runs, offsets, entry_ordinal, first, words, *others, joined, ordinals)
    return joined, ordinals[:used]


_NONE_DEAD = np.zeros(0, np.uint64)


@compiled
def _copy_rows(runs, offsets, source, first, dead, side_offsets, side, joined, target):
    """Copy the live ordinals of all rows; return their number.

    For each 64 entries: if none is dead, they are part of a longer copy; if one is, it splits the copy; else
    each entry is tested.
    """
    # Unsigned indexes: for a signed one numba tests each time whether it counts from the end.
    unit, six, none = np.uint64(1), np.uint64(6), np.uint64(0)
    shift = np.int32(first)
    at = none
    number = 0
    for row in range(len(offsets) - 1):
        left = offsets[row + 1] - offsets[row]
        while left > 0:
            start, end = np.uint64(runs[number, 0]), np.uint64(runs[number, 1])
            number += 1
            left -= np.int64(end - start)
            begin = start  # of the entries still to be copied
            if len(dead) == 0:
                start = end
            while start < end:
                index = start >> six
                stop = min(end, (index + unit) << six)
                word = dead[index]
                if word == none:
                    pass
                elif word & (word - unit) == none:
                    entry = (index << six) + _PLACES[(word * _MULTIPLIER) >> _TOP]
                    if start <= entry < stop:
                        at = _copy(source, begin, entry, shift, target, at)
                        begin = entry + unit
                else:
                    at = _copy(source, begin, start, shift, target, at)
                    for entry in range(start, stop):
                        # Always written, and kept if live: a branch would be mispredicted too often.
                        target[at] = source[entry] + shift
                        at += unit - (word >> (entry & np.uint64(63)) & unit)
                    begin = stop
                start = stop
            at = _copy(source, begin, end, shift, target, at)
        at = _copy(
            side, np.uint64(side_offsets[row]), np.uint64(side_offsets[row + 1]), np.int32(0), target, at
        )
        joined[row + 1] = at
    return at


@inlined
def _copy(source, start, end, shift, target, at):
    count = end - start
    for k in range(count):
        target[at + k] = source[start + k] + shift
    return at + count
