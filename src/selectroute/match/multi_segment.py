"""Several segments: their matches side by side, without what was removed since."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_pool import take_array
from selectroute.match.compiled import compiled, inlined

Found = tuple[t.Array, t.Array]
"""Offsets int64[rows + 1] and ordinals int32[total]."""

_DE_BRUIJN = 0x03F79D71B4CB0A89
_MULTIPLIER, _TOP = np.uint64(_DE_BRUIJN), np.uint64(58)
_PLACES = np.zeros(64, np.uint64)
_PLACES[[(_DE_BRUIJN << place) % 2**64 >> 58 for place in range(64)]] = range(64)
"""The place of a word's only bit, by the top bits of its product with a number that has all patterns."""


def empty_matches(rows: int) -> Found:
    """No matches in so many rows."""
    return np.zeros(rows + 1, np.int64), np.zeros(0, np.int32)


def merge_segments(
    runs: t.Array, offsets: t.Array, entry_ordinal: t.Array, first: int, dead: t.Array | None, beside: Found
) -> Found:
    """Return what `kernel.emit` gives for one segment, without dead entries, and in each row what is beside
    it.

    ``first`` is the segment's first ordinal. ``dead`` is uint64[words], bit ``entry & 63`` of word ``entry >>
    6``, see `Snapshot.dead_entries`. ``beside`` are the matches in the segments behind this one; they are
    copied, which is why the largest segment comes last: those of the base are written once.
    """
    if not len(runs):
        return beside
    ordinals = take_array(int(offsets[-1]) + len(beside[1]))
    joined = np.zeros_like(offsets)
    words = _NONE_DEAD if dead is None else dead
    used = _copy_rows(runs, offsets, entry_ordinal, first, words, *beside, joined, ordinals)
    return joined, ordinals[:used]


_NONE_DEAD = np.zeros(0, np.uint64)


@compiled
def _copy_rows(runs, offsets, source, first, dead, side_offsets, side, joined, target):
    """Returns how many ordinals there are.

    Of 64 entries none is dead, and they are part of a longer copy; or one, that ends this copy and begins
    another; or each is looked at.
    """
    # Unsigned indexes: at a signed one numba asks each time whether it counts from the end.
    one, six, none = np.uint64(1), np.uint64(6), np.uint64(0)
    shift = np.int32(first)
    at = none
    number = 0
    for row in range(len(offsets) - 1):
        left = offsets[row + 1] - offsets[row]
        while left > 0:
            start, end = np.uint64(runs[number, 0]), np.uint64(runs[number, 1])
            number += 1
            left -= np.int64(end - start)
            begin = start  # of those that are still to be copied
            if len(dead) == 0:
                start = end
            while start < end:
                index = start >> six
                stop = min(end, (index + one) << six)
                word = dead[index]
                if word == none:
                    pass
                elif word & (word - one) == none:
                    entry = (index << six) + _PLACES[(word * _MULTIPLIER) >> _TOP]
                    if start <= entry < stop:
                        at = _copy(source, begin, entry, shift, target, at)
                        begin = entry + one
                else:
                    at = _copy(source, begin, start, shift, target, at)
                    for entry in range(start, stop):
                        # Written always, and kept if it lives: a branch would be guessed wrong too often.
                        target[at] = source[entry] + shift
                        at += one - (word >> (entry & np.uint64(63)) & one)
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
