"""Entries of a segment as columns, before they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t


class Entries(NamedTuple):
    """Entries of a segment, in no order: one for each combination of a clause's keys.

    ``tuple_`` int64[n] is 0 on the scan list, else 1 + the tuple of attributes; ``codes`` uint64[n] packs the
    keys, ``first << 32 | second``; ``shape`` int64[n] is the attribute of the range, above the flags of the
    group; ``bound`` int64[n], ``residual`` and ``ordinal`` int32[n] are as in `Tables`. ``high`` int64[n] is
    the second bound of entries whose shape is `INTERVAL`, of the same kind; None where there are none.
    """

    tuple_: t.Array
    codes: t.Array
    shape: t.Array
    bound: t.Array
    residual: t.Array
    ordinal: t.Array
    high: t.Array | None = None


def joined(blocks: Sequence[Entries]) -> Entries:
    """Entries in one: those without upper ends have zeros there, if others have some."""
    if all(block.high is None for block in blocks):
        blocks = [block._replace(high=np.zeros(0, np.int64)) for block in blocks]
    else:
        blocks = [
            block._replace(high=np.zeros(len(block.bound), np.int64)) if block.high is None else block
            for block in blocks
        ]
    return Entries(*map(np.concatenate, zip(*blocks, strict=True)))


def changes(*columns: t.Array) -> t.Array:
    """True where a row differs from the row before, and at the first."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def distinct(first: t.Array, second: t.Array) -> tuple[t.Array, t.Array]:
    """Return the different pairs of two columns in their order, int64[pairs, 2], and of each row which one it
    is.

    ``numpy.unique(…, axis=0)`` gives the same. It compares rows as records, which takes ten times as long,
    and lets no other thread run meanwhile: three seconds of a million rows (2 cores, numpy 2).
    """
    order = np.lexsort((second, first))
    new = changes(first[order], second[order])
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    shown = order[new]
    return np.stack((first[shown], second[shown]), axis=1), number
