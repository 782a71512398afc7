"""Entries of a segment as columns, before they are laid out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t


class Entries(NamedTuple):
    """Unordered entries of a segment: one for each combination of a clause's keys.

    ``tuple_`` int64[n] is 0 on the scan list, else 1 + the tuple of attributes; ``codes`` uint64[n] packs the
    keys, ``first << 32 | second``; ``shape`` int64[n] is the attribute of the range, above the flags of the
    group; ``bound`` int64[n], ``residual`` and ``ordinal`` int32[n] are as in `Tables`. ``high`` int64[n] is
    the second bound, of the same kind, of entries whose shape is `INTERVAL`; 0 of others.
    """

    tuple_: t.Array
    codes: t.Array
    shape: t.Array
    bound: t.Array
    residual: t.Array
    ordinal: t.Array
    high: t.Array


ENTRY_TYPES = (np.int64, np.uint64, np.int64, np.int64, np.int32, np.int32, np.int64)
"""Element types of the columns of `Entries`."""


def changes(*columns: t.Array) -> t.Array:
    """Return a mask of the rows that differ from the row before, and of the first row."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def numbered(*columns: t.Array) -> tuple[t.Array, t.Array]:
    """Return a row of each distinct row of these columns, in the order of the last one, then the one before,
    and so on; and the number of each row's distinct row, int64.
    """
    order = np.lexsort(columns)
    new = changes(*(column[order] for column in columns))
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def distinct(first: t.Array, second: t.Array) -> tuple[t.Array, t.Array]:
    """Return the distinct pairs of two columns, sorted, int64[pairs, 2], and the number of each row's pair.

    ``numpy.unique(…, axis=0)`` gives the same, but compares rows as records, which takes ten times as long
    and holds the GIL: three seconds for a million rows (2 cores, numpy 2).
    """
    shown, number = numbered(second, first)
    return np.stack((first[shown], second[shown]), axis=1), number
