"""Invariants of access paths: every leaf is reached once, by the codes under which it is filed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from selectroute.arrays import tables as t
from selectroute.index.build.access_paths import code_hash
from selectroute.index.errors import require
from selectroute.index.plan.prefix_keys import Prefixes, prefix_key


def verify_paths(tables: t.Tables) -> None:
    """Check tuples, codes, postings and divided leaves. Raises `InvariantError`. O(leaves and slots)."""
    firsts, used = tables.tuple_leaf, tables.slot[tables.slot >= 0]
    _verify_divided(tables)
    tuple_of_leaf = np.concatenate(([-1], np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))))
    tuple_of_leaf = np.append(tuple_of_leaf, tables.divided_tuple)
    tuples = tuple_of_leaf[used >> 32]
    posting = np.repeat(np.arange(len(tables.posting_attribute)), np.diff(tables.slot_first))
    posting = posting[tables.slot >= 0]
    pairs = tables.tuple_attributes[tuples]
    of_slot = tables.posting_attribute[posting]
    require(np.all(np.any(pairs == of_slot[:, None], axis=1)), "a posting leads to leaves of its attribute")
    place = np.searchsorted(tables.code_posting, posting, side="right") - 1
    above = np.append(np.full(len(tables.code_leaf), -1), tables.divided_tuple)[place]
    require(
        np.array_equal(tables.tuple_above[tuples], above),
        "a leaf is beneath a divided one of the tuple above",
    )
    for (first, last), filter_ in zip(pairwise(tables.slot_first), tables.posting_filter, strict=True):
        slots = tables.slot[first:last]
        bits = np.uint64(1) << (slots[slots >= 0] & 63).astype(np.uint64)
        require(np.bitwise_or.reduce(bits) == filter_, "a posting's filter has the bits of its codes")
        verify_probing(slots >= 0, code_hash(slots & 0xFFFFFFFF), "posting")


def _verify_divided(tables: t.Tables) -> None:
    """Check divided leaves, and the tuples beneath them."""
    tuples, above = len(tables.tuple_attributes), tables.tuple_above
    own = tables.divided_tuple
    require(np.all((own >= 0) & (own < tuples)), "a divided leaf is of a known tuple")
    postings = np.diff(tables.code_posting[len(tables.code_leaf) :])
    require(np.all(postings > 0), "a divided leaf has a posting")
    beneath = tables.tuple_attributes[:, 1] == t.BENEATH
    require(np.array_equal(above >= 0, beneath), "a tuple has one above it only if beneath one")
    require(np.all(above < np.arange(tuples)), "a tuple comes after the one above it")
    require(np.all(np.isin(above[beneath], own)), "a tuple above another has a divided leaf")


def verify_prefixes(tables: t.Tables) -> None:
    """Check the prefixes and their parents. Raises `InvariantError`. O(bytes × log prefixes)."""
    data = tables.prefix_bytes.tobytes()
    texts = [data[start:end] for start, end in pairwise(tables.prefix_byte_first.tolist())]
    require(tables.prefix_key.tolist() == [prefix_key(text) for text in texts], "a prefix has its key")
    for first, last in pairwise(tables.prefix_first.tolist()):
        own = texts[first:last]
        require(all(one < other for one, other in pairwise(own)), "the prefixes of an attribute ascend")
        parents = Prefixes({0: own}).arrays(1)["prefix_parent"]
        moved = np.where(parents < 0, -1, parents + first)
        require(np.array_equal(tables.prefix_parent[first:last], moved), "a parent is the longest prefix")


def verify_probing(used: t.Array, hashes: t.Array, what: str) -> None:
    """Check that from the slot of an entry's hash on, no empty slot comes before the entry's slot."""
    size = len(used)
    if not size:
        return
    require(size & (size - 1) == 0, f"a {what} has a power of two slots")
    require(2 * int(used.sum()) <= size, f"a {what} is at most half full")
    # Count the used slots up to each slot, wrapping around, so that runs without holes are differences.
    before = np.concatenate(([0], np.cumsum(np.concatenate((used, used)))))
    own = np.flatnonzero(used)
    home = (hashes[own] & np.uint64(size - 1)).astype(np.int64)
    end = np.where(own < home, own + size, own)
    require(np.all(before[end] - before[home] == end - home), f"every entry of a {what} is reached")
