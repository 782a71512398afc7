"""Rows of arrays: their changes, their numbers, their distinct values, and slices of them."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.tables import Array


def changes(*columns: Array) -> Array:
    """Return a mask of the rows that differ from the row before, and of the first row."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def numbered(*columns: Array) -> tuple[Array, Array]:
    """Return a row of each distinct row of these columns, in the order of the last one, then the one before,
    and so on; and the number of each row's distinct row, int64.
    """
    order = np.lexsort(columns)
    new = changes(*(column[order] for column in columns))
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def distinct_pairs(first: Array, second: Array) -> tuple[Array, Array]:
    """Return the distinct pairs of two columns, sorted, int64[pairs, 2], and the number of each row's pair.

    ``numpy.unique(…, axis=0)`` gives the same, but compares rows as records, which takes ten times as long
    and holds the GIL: three seconds for a million rows (2 cores, numpy 2).
    """
    shown, number = numbered(second, first)
    return np.stack((first[shown], second[shown]), axis=1), number


def distinct_values(values: Array) -> Array:
    """Return the distinct values of an array, ascending. O(values × log values).

    ``numpy.unique`` gives the same, but fills a hash table from NumPy 2.3 on, which takes a hundred times as
    long for millions of different values.
    """
    ordered = np.sort(values)
    result: Array = ordered[changes(ordered)]
    return result


def slices(first: t.Array, count: t.Array) -> t.Array:
    """Return the concatenated indices of the slices that begin at ``first`` and have ``count`` elements."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))
