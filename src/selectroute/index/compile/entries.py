"""Entries of a build: the filed clauses as columns, and the sharing of those that are equal.

Subscriptions with the same selector and topic filter have one entry, expanded at delivery::

    entries      90        91      92            each is searched and judged once
    first        200       203     204     …     `ordinal_first`
    ordinals     3 5 12    7       40 …          `entry_ordinal`: who gets the message

A subscription with several clauses is emitted once for a message, which the first subscription of an entry
stands for. So entries with a flag `REPEATED` are shared only by subscriptions that share all such entries.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.rows import changes, distinct_pairs, distinct_values, numbered, slices


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


WORTH: Final = 2
"""Entries for each distinct one from which on sharing saves memory and time: it costs a place to look up."""

_MOST_CLAUSES: Final = 64
"""Entries of a subscription with several clauses up to which it is compared with others."""

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)

_SHIFT: Final = np.uint64(29)


class Shared(NamedTuple):
    """Subscriptions of the distinct entries: those of entry i are ``ordinals[first[i] : first[i + 1]]``,
    distinct and ascending; int64[n + 1] and int32[total].
    """

    first: t.Array
    ordinals: t.Array

    def placed(self, numbers: t.Array) -> tuple[t.Array, t.Array]:
        """Return `ordinal_first` and `entry_ordinal` of entries with these numbers, in their order."""
        counts = np.diff(self.first)[numbers]
        return np.append(0, np.cumsum(counts)), self.ordinals[slices(self.first[numbers], counts)]


def share(entries: Entries) -> tuple[Entries, Shared | None]:
    """Return the distinct entries, each with its number as its ordinal, and their subscriptions; or the
    entries as they are, and None, if few are alike. O(entries × log entries).
    """
    keys = [column for name, column in entries._asdict().items() if name != "ordinal"]
    ordinal = entries.ordinal
    count = len(ordinal)
    if not count or _distinct_count(keys) * WORTH > count:
        return entries, None
    number = _apart(numbered(*keys)[1], entries)
    order = np.lexsort((ordinal, number))
    # A subscription with the same clause twice is one of those that share the entry.
    order = order[changes(number[order], ordinal[order])]
    first = np.flatnonzero(changes(number[order]))
    if len(first) * WORTH > len(order):
        return entries, None
    kept = order[first]
    ordinals = np.arange(len(kept), dtype=np.int32)
    distinct_ = Entries(*(column[kept] for column in entries))._replace(ordinal=ordinals)
    return distinct_, Shared(np.append(first, len(order)), ordinal[order])


def _distinct_count(columns: list[t.Array]) -> int:
    """Return about how many rows are distinct, by their hashes: a tenth of the time of sorting them."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes = (hashes ^ column.astype(np.int64).view(np.uint64)) * _MIX
        hashes ^= hashes >> _SHIFT
    return len(distinct_values(hashes))


def _apart(number: t.Array, entries: Entries) -> t.Array:
    """Return the numbers of equal entries, with different ones for `REPEATED` entries of subscriptions that
    do not have the same entries.
    """
    rows = np.flatnonzero(entries.shape & t.REPEATED)
    if not len(rows):
        return number
    rows = rows[np.lexsort((number[rows], entries.ordinal[rows]))]
    starts = np.flatnonzero(changes(entries.ordinal[rows]))
    counts = np.diff(starts, append=len(rows))
    alike = np.zeros(len(starts), np.int64)  # of each subscription: the number of its list of entries so far
    for place in range(min(int(counts.max()), _MOST_CLAUSES)):
        has = counts > place
        at_place = np.full(len(starts), -1, np.int64)
        at_place[has] = number[rows[starts[has] + place]]
        alike = distinct_pairs(alike, at_place)[1]
    many = np.flatnonzero(counts > _MOST_CLAUSES)
    alike[many] = len(starts) + np.arange(len(many))
    kind = np.zeros(len(number), np.int64)
    kind[rows] = 1 + np.repeat(alike, counts)
    return distinct_pairs(number, kind)[1]
