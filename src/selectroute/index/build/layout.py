"""Layout of entries in the arrays of a segment: sorted once, as columns, by leaf, group and bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import changes
from selectroute.index.build.access_paths import access_paths
from selectroute.index.build.entry_columns import Entries
from selectroute.index.build.hot_keys import OWN, alike, divide
from selectroute.index.build.intervals import ascending, high_tables
from selectroute.index.build.sharing import share
from selectroute.index.plan.cost import COMMON
from selectroute.index.plan.prefix_keys import Prefixes, prefix_filing


def lay_out(entries: Entries, tuples: Sequence[Sequence[int]], others: Mapping[str, t.Array]) -> t.Tables:
    """Sort the entries into leaves and groups, and return all arrays. O(entries × log entries).

    ``tuples`` are the attributes of tuple 1, 2, …; ``others`` are the arrays of programs and constants.
    Entries that are alike are shared, those on the scan list with a prefix are filed under the prefix, and
    hot keys are divided.
    """
    attributes = len(others["number_first"]) - 1
    entries, shared = share(entries)
    entries, tuples, others, prefixes = _by_prefix(entries, [*tuples], {**others}, attributes)
    entries, divided = divide(entries, tuples, others)
    # A residual shared by many entries of a leaf is a group; otherwise equal ones are neighbours, unless
    # bounds order the entries. Neighbours are judged once.
    common = _common_residuals(entries)
    order = np.lexsort(
        (entries.residual, ascending(entries.bound, entries.shape), common, entries.shape, entries.codes,
         entries.tuple_)
    )  # fmt: skip
    tuple_, codes, shape = entries.tuple_[order], entries.codes[order], entries.shape[order]
    residual = entries.residual[order]
    new_leaf = changes(tuple_, codes)
    new_group = new_leaf | changes(shape, common[order])
    keyed, group_starts = np.flatnonzero(new_leaf & (tuple_ > 0) & (tuple_ < OWN)), np.flatnonzero(new_group)
    # Leaf 0, the scan list, sorts first and divided leaves last, with or without entries.
    own = np.searchsorted(tuple_, OWN)
    in_divided = own + np.searchsorted(codes[own:], np.arange(len(divided.codes), dtype=np.uint64))
    group_first = np.searchsorted(group_starts, np.concatenate(([0], keyed, in_divided)))
    entry_first = np.concatenate((group_starts, [len(order)]))
    numbers = entries.ordinal[order]
    ordinal_first, entry_ordinal = (np.zeros(0), numbers) if shared is None else shared.placed(numbers)
    arrays: dict[str, object] = {
        **access_paths(tuple_[keyed], codes[keyed], tuples, divided, attributes),
        "group_first": np.append(group_first, len(group_starts)),
        "group_flags": shape[group_starts] & (1 << t.FLAG_BITS) - 1 | _uniform(residual, group_starts),
        "group_attribute": shape[group_starts] >> t.FLAG_BITS,
        "entry_first": entry_first,
        "entry_bound": entries.bound[order],
        "entry_residual": residual,
        "entry_ordinal": entry_ordinal,
        "ordinal_first": ordinal_first,
        **prefixes.arrays(attributes),
        **high_tables(shape[group_starts], entry_first, entries.high[order]),
        **others,
        "term_wanted": others["term_wanted"] | _shared(entries.residual, others) << 1,
    }
    return t.Tables(**{name: t.as_array(name, value) for name, value in arrays.items()})


def _by_prefix(
    entries: Entries, tuples: list[Sequence[int]], others: dict[str, t.Array], attributes: int
) -> tuple[Entries, list[Sequence[int]], dict[str, t.Array], Prefixes]:
    """Return entries, tuples and programs with the prefixes of the scan list moved to tuples of their own."""
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


def _common_residuals(entries: Entries) -> t.Array:
    """Return the residual of each entry if it is common in the leaf and shape, else -1."""
    common = np.full(len(entries.residual), -1, np.int32)
    rows = np.flatnonzero(entries.residual >= 0)
    columns = (entries.residual, entries.shape, entries.codes, entries.tuple_)
    many = rows[alike(*(column[rows] for column in columns)) >= COMMON]
    common[many] = entries.residual[many]
    return common


def _uniform(residual: t.Array, group_starts: t.Array) -> t.Array:
    """Return the flag `UNIFORM` for each group whose entries have one residual."""
    if not len(group_starts):
        return group_starts
    least, most = np.minimum.reduceat(residual, group_starts), np.maximum.reduceat(residual, group_starts)
    return np.where((least == most) & (least >= 0), t.UNIFORM, 0)


def _shared(residual: t.Array, others: Mapping[str, t.Array]) -> t.Array:
    """Return 1 for each term whose program is shared by entries: the kernel memoizes it per message."""
    programs, first = others["term_program"], others["term_first"]
    entries = np.bincount(residual[residual >= 0], minlength=len(first) - 1)
    users = np.bincount(programs, np.repeat(entries, np.diff(first)), minlength=0)
    shared: t.Array = (users > 1)[programs].astype(np.uint8)
    return shared
