"""Layout of entries in the arrays of a segment: sorted once, as columns, by leaf, group and bound.

Access paths are the leaves by the codes under which they are filed: `Tables` draws them. Intervals are
sorted by their lower ends, with an array of the upper ends and their maxima.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import CODE_MULTIPLIER
from selectroute.arrays.rows import changes, distinct_values
from selectroute.index.compile.cost_plan import COMMON
from selectroute.index.compile.dictionary import open_addressing
from selectroute.index.compile.entries import Entries, share
from selectroute.index.compile.hot_keys import OWN, Divided, alike, divide
from selectroute.index.compile.prefixes import Prefixes, prefix_filing


def access_paths(
    tuple_: t.Array, codes: t.Array, tuples: Sequence[Sequence[int]], divided: Divided, attributes: int
) -> dict[str, t.Array]:
    """Return the arrays ``tuple_…``, ``code_…``, ``posting_…``, ``slot…``, ``divided_tuple`` and
    ``prefix_leaf`` of `Tables`.

    Leaves 1, 2, … are sorted by these tuples and codes; the divided ones follow. O(leaves × log leaves).
    """
    of_tuple = np.array([(*names, t.ALONE)[:2] for names in (*tuples, *divided.beneath)], np.int64)
    of_tuple = of_tuple.reshape(-1, 2)
    of_leaf = tuple_ - 1
    number = np.append(tuple_, divided.tuple_) - 1
    codes = np.append(codes, divided.codes)
    keys = np.stack((codes >> np.uint64(32), codes & np.uint64(0xFFFFFFFF))).astype(np.int64)
    swapped = _anchored_by_second(number, keys, of_tuple)
    swapped &= of_tuple[:, 1] >= 0
    anchors = np.where(swapped, of_tuple[:, 1], of_tuple[:, 0])
    others = np.where(swapped, of_tuple[:, 0], of_tuple[:, 1])
    turned = swapped[number]
    anchor, other = anchors[number], others[number]
    code, other_code = np.where(turned, keys[::-1], keys)
    beneath = other == t.BENEATH  # under a divided leaf, whose number replaces the code of an anchor

    leaf = np.arange(1, len(number) + 1)
    of_prefix = other == t.PREFIXES
    prefix_leaf = leaf[of_prefix]  # prefixes and their leaves are in the order of attributes
    prefix_leaf = prefix_leaf[np.argsort(code[of_prefix])]
    number, anchor, other, code, other_code, leaf, beneath = (
        column[~of_prefix] for column in (number, anchor, other, code, other_code, leaf, beneath)
    )

    low = np.full(attributes, np.iinfo(np.int32).max, np.int64)
    end = np.zeros(attributes, np.int64)
    np.minimum.at(low, anchor[~beneath], code[~beneath])
    np.maximum.at(end, anchor[~beneath], code[~beneath] + 1)
    code_first = np.concatenate(([0], np.cumsum(np.maximum(end - low, 0))))
    low = np.minimum(low, end)  # 0 if an attribute has no codes
    # Divided leaves are after all codes.
    place = np.where(beneath, code_first[-1] + code, code_first[anchor] + code - low[anchor])
    other = np.where(beneath, anchor, other)

    alone = other < 0
    code_leaf = np.full(code_first[-1], -1, np.int64)
    code_leaf[place[alone]] = leaf[alone]

    places = len(code_leaf) + len(divided.codes)
    pairs = np.flatnonzero(~alone)
    pairs = pairs[np.lexsort((number[pairs], place[pairs]))]
    new = np.ones(len(pairs), np.bool_)
    new[1:] = (np.diff(place[pairs]) != 0) | (np.diff(number[pairs]) != 0)
    first = np.flatnonzero(new)
    sizes = np.left_shift(1, _bits(2 * np.diff(np.append(first, len(pairs))) - 1))
    slot_first = np.concatenate(([0], np.cumsum(sizes)))
    posting = np.cumsum(new) - 1
    table = open_addressing(code_hash(other_code[pairs]), slot_first[posting], sizes[posting], slot_first[-1])
    slots = np.full(len(table), -1, np.int64)
    used = table >= 0
    slots[used] = leaf[pairs][table[used]] << 32 | other_code[pairs][table[used]]
    return {
        "tuple_attributes": of_tuple,
        "tuple_above": np.append(np.full(len(tuples), -1), np.array(divided.above, np.int64) - 1),
        "tuple_leaf": np.searchsorted(of_leaf, np.arange(len(of_tuple) + 1)) + 1,
        "code_low": low,
        "code_first": code_first,
        "code_leaf": code_leaf,
        "code_posting": np.searchsorted(place[pairs][first], np.arange(places + 1)),
        "divided_tuple": divided.tuple_ - 1,
        "posting_attribute": other[pairs][first],
        "posting_filter": _filters(other_code[pairs], first),
        "slot_first": slot_first,
        "slot": slots,
        "prefix_leaf": prefix_leaf,
    }


def _anchored_by_second(number: t.Array, keys: t.Array, of_tuple: t.Array) -> t.Array:
    """Return for each tuple whether its second attribute has more keys, so each key has fewer messages."""
    counts = np.zeros((2, len(of_tuple)), np.int64)
    for side in (0, 1):
        distinct = distinct_values(number << 32 | keys[side]) >> 32
        counts[side] = np.bincount(distinct, minlength=len(of_tuple))
    result: t.Array = counts[1] > counts[0]
    return result


def _filters(codes: t.Array, first: t.Array) -> t.Array:
    """Return the bits of the codes from each ``first`` on, a filter against most codes without a slot."""
    bits = np.uint64(1) << (codes & 63).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, first) if len(first) else bits


def _bits(numbers: t.Array) -> t.Array:
    """Return the bit length of positive numbers."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def code_hash(codes: t.Array) -> t.Array:
    """Return the hashes of codes among the slots of a posting."""
    hashed: t.Array = (codes.astype(np.uint64) * np.uint64(CODE_MULTIPLIER)) >> np.uint64(16)
    return hashed


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
        for maxima in levels(level):
            parts.append(maxima)
            length += len(maxima)
    return {"group_high": group_high, "high": np.concatenate(parts) if parts else np.zeros(0, np.int64)}


def levels(level: t.Array) -> list[t.Array]:
    """Return upper ends, the maxima of 16 each, and so on, up to a level of at most 16."""
    all_levels = [level]
    while len(level) > t.HIGH:
        level = np.maximum.reduceat(level, np.arange(0, len(level), t.HIGH))
        all_levels.append(level)
    return all_levels


def level_slices(first: int, entries: int) -> list[slice]:
    """Return the slices of ``high`` with the levels of a group's upper ends."""
    all_slices = [slice(first, first + entries)]
    while entries > t.HIGH:
        entries = -(-entries // t.HIGH)
        all_slices.append(slice(all_slices[-1].stop, all_slices[-1].stop + entries))
    return all_slices


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
