"""Access paths: the leaves by the codes under which they are filed. `Tables` draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import CODE_MULTIPLIER, distinct_values
from selectroute.index.build.dictionary import open_addressing
from selectroute.index.build.hot_keys import Divided


def access_paths(
    tuple_: t.Array, codes: t.Array, tuples: Sequence[Sequence[int]], divided: Divided, attributes: int
) -> dict[str, t.Array]:
    """Return the arrays ``tuple_…``, ``code_…``, ``posting_…``, ``slot…``, ``divided_tuple`` and
    ``prefix_leaf`` of `Tables`.

    Leaves 1, 2, … are sorted by these tuples and codes; the divided ones follow. O(leaves × log leaves).
    """
    of_tuple = np.array([(*one, t.ALONE)[:2] for one in (*tuples, *divided.beneath)], np.int64).reshape(-1, 2)
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
