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
