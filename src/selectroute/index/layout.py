"""Entries to the arrays of a segment: sorted once, as columns, so that the entries of a leaf are contiguous,
within it those of a group, and within that the bounds ascend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from selectroute.index import tables as t
from selectroute.index.dictionary import open_addressing

PAIR_MULTIPLIER = 0x9E3779B97F4A7C15
"""Spreads a pair of codes over the slots of its hash table; the kernel computes the same."""


class Entries(NamedTuple):
    """The entries of a segment, in no order: one for each combination of a clause's keys.

    ``tuple_`` int64[n] is 0 on the scan list, else 1 + the tuple of attributes; ``codes`` uint64[n] packs the
    keys, ``first << 32 | second``; ``shape`` int64[n] is the attribute of the range, above the flags of the
    group; ``bound`` int64[n], ``residual`` and ``ordinal`` int32[n] are as in `Tables`.
    """

    tuple_: t.Array
    codes: t.Array
    shape: t.Array
    bound: t.Array
    residual: t.Array
    ordinal: t.Array


def lay_out(entries: Entries, tuples: Sequence[Sequence[int]], others: Mapping[str, t.Array]) -> t.Tables:
    """Sort the entries into leaves and groups, and lay down all arrays. O(entries × log entries).

    ``tuples`` are the attributes of tuple 1, 2, …; ``others`` are the arrays of programs and constants.
    """
    # Equal residuals are neighbours where no bound orders the entries, and are then judged once.
    order = np.lexsort(
        (entries.residual, _ascending(entries.bound, entries.shape), entries.shape, entries.codes,
         entries.tuple_)
    )  # fmt: skip
    tuple_, codes, shape = entries.tuple_[order], entries.codes[order], entries.shape[order]
    new_leaf = _changes(tuple_, codes)
    new_group = new_leaf | _changes(shape)
    leaf_starts, group_starts = np.flatnonzero(new_leaf), np.flatnonzero(new_group)
    groups_before = np.searchsorted(group_starts, leaf_starts)
    # Leaf 0 is the scan list, with or without entries: tuple 0 sorts first where it has any.
    scan = len(tuple_) > 0 and tuple_[0] == 0
    group_first = np.concatenate((groups_before if scan else np.r_[0, groups_before], [len(group_starts)]))
    keyed = leaf_starts[1:] if scan else leaf_starts
    arrays: dict[str, object] = {
        "tuple_attributes": [(*attributes, -1, -1)[:2] for attributes in tuples],
        **_slots(tuple_[keyed], codes[keyed], len(tuples)),
        "group_first": group_first,
        "group_flags": shape[group_starts] & (1 << t.FLAG_BITS) - 1,
        "group_attribute": shape[group_starts] >> t.FLAG_BITS,
        "entry_first": np.concatenate((group_starts, [len(order)])),
        "entry_bound": entries.bound[order],
        "entry_residual": entries.residual[order],
        "entry_ordinal": entries.ordinal[order],
        **others,
    }
    return t.Tables(**{name: t.as_array(name, value) for name, value in arrays.items()})


def _ascending(bound: t.Array, shape: t.Array) -> t.Array:
    """Keys that sort bounds by value: of a double's bits, those of negative numbers are turned over."""
    floating = shape >> t.BOUND_SHIFT & 3 != t.BOUND_LONG
    return np.where(floating & (bound < 0), bound ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bound)


def _changes(*columns: t.Array) -> t.Array:
    """True where a row differs from the row before, and at the first."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def _slots(tuple_: t.Array, codes: t.Array, tuples: int) -> dict[str, t.Array]:
    """The hash tables of all tuples; leaf i + 1 is row i, because leaf 0 is the scan list."""
    first, slot_codes, slot_leaf = [0], [], []
    bounds = np.searchsorted(tuple_, np.arange(1, tuples + 2))
    for start, end in pairwise(bounds):
        table = open_addressing(pair_hash(codes[start:end]))
        slot_codes.append(np.where(table >= 0, codes[start:end][table], np.uint64(0)))
        slot_leaf.append(np.where(table >= 0, table + start + 1, -1))
        first.append(first[-1] + len(table))
    return {
        "slot_first": np.array(first),
        "slot_codes": np.concatenate(slot_codes) if slot_codes else np.zeros(0),
        "slot_leaf": np.concatenate(slot_leaf) if slot_leaf else np.zeros(0),
    }


def pair_hash(codes: t.Array) -> t.Array:
    """The hashes of packed pairs of codes."""
    product_ = codes * np.uint64(PAIR_MULTIPLIER)
    hashed: t.Array = product_ ^ product_ >> np.uint64(32)
    return hashed
