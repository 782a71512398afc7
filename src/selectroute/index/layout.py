"""Entries to the arrays of a segment: sorted once, as columns, so that the entries of a leaf are contiguous,
within it those of a group, and within that the bounds ascend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from selectroute.index import tables as t
from selectroute.index.access_paths import access_paths
from selectroute.index.intervals import ascending, high_tables
from selectroute.index.prefixes import Prefixes, prefix_filing


class Entries(NamedTuple):
    """The entries of a segment, in no order: one for each combination of a clause's keys.

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


def lay_out(entries: Entries, tuples: Sequence[Sequence[int]], others: Mapping[str, t.Array]) -> t.Tables:
    """Sort the entries into leaves and groups, and lay down all arrays. O(entries × log entries).

    ``tuples`` are the attributes of tuple 1, 2, …; ``others`` are the arrays of programs and constants.
    Entries on the scan list that have a prefix are filed under that.
    """
    attributes = len(others["number_first"]) - 1
    entries, tuples, others, prefixes = _by_prefix(entries, [*tuples], {**others}, attributes)
    # A residual that many entries of a leaf have makes a group; else equal ones are neighbours where no bound
    # orders the entries. Neighbours are judged once.
    common = _common_residuals(entries)
    order = np.lexsort(
        (entries.residual, ascending(entries.bound, entries.shape), common, entries.shape, entries.codes,
         entries.tuple_)
    )  # fmt: skip
    tuple_, codes, shape = entries.tuple_[order], entries.codes[order], entries.shape[order]
    residual = entries.residual[order]
    new_leaf = changes(tuple_, codes)
    new_group = new_leaf | changes(shape, common[order])
    leaf_starts, group_starts = np.flatnonzero(new_leaf), np.flatnonzero(new_group)
    groups_before = np.searchsorted(group_starts, leaf_starts)
    # Leaf 0 is the scan list, with or without entries: tuple 0 sorts first where it has any.
    scan = len(tuple_) > 0 and tuple_[0] == 0
    group_first = np.concatenate((groups_before if scan else np.r_[0, groups_before], [len(group_starts)]))
    keyed = leaf_starts[1:] if scan else leaf_starts
    entry_first = np.concatenate((group_starts, [len(order)]))
    high = entries.high[order] if entries.high is not None and len(entries.high) else np.zeros(0, np.int64)
    arrays: dict[str, object] = {
        **access_paths(tuple_[keyed], codes[keyed], tuples, attributes),
        "group_first": group_first,
        "group_flags": shape[group_starts] & (1 << t.FLAG_BITS) - 1 | _uniform(residual, group_starts),
        "group_attribute": shape[group_starts] >> t.FLAG_BITS,
        "entry_first": entry_first,
        "entry_bound": entries.bound[order],
        "entry_residual": residual,
        "entry_ordinal": entries.ordinal[order],
        **prefixes.arrays(attributes),
        **high_tables(shape[group_starts], entry_first, high),
        **others,
        "term_wanted": others["term_wanted"] | _shared(entries.residual, others) << 1,
    }
    return t.Tables(**{name: t.as_array(name, value) for name, value in arrays.items()})


def _by_prefix(
    entries: Entries, tuples: list[Sequence[int]], others: dict[str, t.Array], attributes: int
) -> tuple[Entries, list[Sequence[int]], dict[str, t.Array], Prefixes]:
    """Entries, tuples and programs after what the scan list has of prefixes is moved to tuples of its own."""
    rows = np.flatnonzero((entries.tuple_ == 0) & (entries.residual >= 0))
    filing = prefix_filing(np.unique(entries.residual[rows]).tolist(), others)
    distinct: dict[int, set[bytes]] = {}
    for attribute, prefix in zip(filing.attribute, filing.prefix, strict=True):
        distinct.setdefault(attribute, set()).add(prefix)
    prefixes = Prefixes({attribute: sorted(texts) for attribute, texts in distinct.items()})
    if not filing.residual:
        return entries, tuples, others, prefixes
    first = prefixes.first(attributes)
    rank = {
        (attribute, prefix): int(first[attribute]) + i
        for attribute, texts in prefixes.of_attribute.items()
        for i, prefix in enumerate(texts)
    }
    own = {attribute: len(tuples) + 1 + i for i, attribute in enumerate(prefixes.of_attribute)}
    tuples += [(attribute, t.PREFIXES) for attribute in own]
    place = np.searchsorted(filing.residual, entries.residual[rows])
    known = np.append(filing.residual, -1)[place] == entries.residual[rows]
    rows, place = rows[known], place[known]
    numbers = [rank[key] for key in zip(filing.attribute, filing.prefix, strict=True)]
    left = np.array(filing.left, np.int32)[place]
    tuple_, codes, residual, shape = (
        column.copy() for column in (entries.tuple_, entries.codes, entries.residual, entries.shape)
    )
    tuple_[rows] = np.array([own[attribute] for attribute in filing.attribute])[place]
    codes[rows] = np.array(numbers, np.uint64)[place] << np.uint64(32)
    residual[rows] = left
    shape[rows] &= np.where(left < 0, ~t.RESIDUAL, -1)
    moved = entries._replace(tuple_=tuple_, codes=codes, residual=residual, shape=shape)
    return moved, tuples, others, prefixes


COMMON = 8
"""So many entries of a leaf with one residual are a group of their own: one search, one residual to judge."""


def _common_residuals(entries: Entries) -> t.Array:
    """The residual of each entry that many of its leaf and shape have, else -1."""
    common = np.full(len(entries.residual), -1, np.int32)
    rows = np.flatnonzero(entries.residual >= 0)
    columns = [entries.residual[rows], entries.shape[rows], entries.codes[rows], entries.tuple_[rows]]
    order = np.lexsort(columns)
    run = np.cumsum(changes(*(column[order] for column in columns))) - 1
    many = np.bincount(run, minlength=1)[run] >= COMMON
    common[rows[order[many]]] = columns[0][order[many]]
    return common


def _uniform(residual: t.Array, group_starts: t.Array) -> t.Array:
    """The flag `UNIFORM` for each group whose entries have one residual."""
    if not len(group_starts):
        return group_starts
    least, most = np.minimum.reduceat(residual, group_starts), np.maximum.reduceat(residual, group_starts)
    return np.where((least == most) & (least >= 0), t.UNIFORM, 0)


def _shared(residual: t.Array, others: Mapping[str, t.Array]) -> t.Array:
    """1 for each term whose program several entries have: it is worth remembering within a message."""
    programs, first = others["term_program"], others["term_first"]
    entries = np.bincount(residual[residual >= 0], minlength=len(first) - 1)
    users = np.bincount(programs, np.repeat(entries, np.diff(first)), minlength=0)
    shared: t.Array = (users > 1)[programs].astype(np.uint8)
    return shared


def changes(*columns: t.Array) -> t.Array:
    """True where a row differs from the row before, and at the first."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result
