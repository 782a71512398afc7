"""Intervals, sorted by their lower ends: the array of upper ends and their maxima."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t

_TURN = np.int64(0x7FFF_FFFF_FFFF_FFFF)


def ascending(bound: t.Array, shape: t.Array) -> t.Array:
    """Return keys that sort bounds by value: the bits of doubles, inverted for negative ones."""
    floating = shape >> t.BOUND_SHIFT & 3 != t.BOUND_LONG
    return np.where(floating & (bound < 0), bound ^ _TURN, bound)


def high_tables(shape: t.Array, entry_first: t.Array, high: t.Array) -> dict[str, t.Array]:
    """Return the arrays ``group_high`` and ``high`` for groups of these shapes; ``high`` has all entries."""
    group_high = np.full(len(shape), -1, np.int64)
    parts: list[t.Array] = []
    length = 0
    for group in np.flatnonzero(shape & t.INTERVAL):
        level = high[entry_first[group] : entry_first[group + 1]]
        if shape[group] >> t.BOUND_SHIFT & 3 != t.BOUND_LONG:
            # Both zeros become one value, so keys have the order of the values.
            level = ascending((level.view(np.float64) + 0.0).view(np.int64), shape[group])
        group_high[group] = length
        for one in levels(level):
            parts.append(one)
            length += len(one)
    return {"group_high": group_high, "high": np.concatenate(parts) if parts else np.zeros(0, np.int64)}


def levels(level: t.Array) -> list[t.Array]:
    """Return upper ends, the maxima of 16 each, and so on, up to a level of at most 16."""
    found = [level]
    while len(level) > t.HIGH:
        level = np.maximum.reduceat(level, np.arange(0, len(level), t.HIGH))
        found.append(level)
    return found


def level_slices(first: int, entries: int) -> list[slice]:
    """Return the slices of ``high`` with the levels of a group's upper ends."""
    found = [slice(first, first + entries)]
    while entries > t.HIGH:
        entries = -(-entries // t.HIGH)
        found.append(slice(found[-1].stop, found[-1].stop + entries))
    return found
