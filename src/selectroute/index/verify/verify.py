"""Invariants of a snapshot, each with a sentence. For stress tests and ``index verify``."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import hash_strings
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.index.build.intervals import level_slices
from selectroute.index.errors import require
from selectroute.index.folder.memory_safety import check_memory_safety, check_tombstones
from selectroute.index.verify.access_paths import verify_paths, verify_prefixes, verify_probing
from selectroute.selector.dialect import DIALECTS
from selectroute.selector.selector_type import EXTENDED, NONE, STANDARD


def verify_snapshot(snapshot: SnapshotState) -> None:
    """Check all arrays of a snapshot. Raises `InvariantError`. O(size of the arrays)."""
    for segment in snapshot.segments:
        verify_segment(segment)
    rows = sum(segment.rows for segment in snapshot.segments)
    require(rows == snapshot.subscriptions.num_rows, "every ordinal has a row")
    seltypes = set(snapshot.subscriptions["seltype"].unique().to_pylist())
    require(seltypes <= {NONE, STANDARD, EXTENDED}, "the type of every selector is known")
    dialects = set(snapshot.subscriptions["dialect"].unique().to_pylist())
    require(dialects <= set(DIALECTS), "the dialect of every subscription is known")
    _verify_tombstones(snapshot)


def _verify_tombstones(snapshot: SnapshotState) -> None:
    """Check the tombstones of all segments."""
    check_tombstones(snapshot)
    removed = [segment.removed for segment in snapshot.segments]
    for array in removed:
        require(np.all(np.diff(array) > 0), "tombstones ascend")
    every = np.concatenate(removed)
    require(len(np.unique(every)) == len(every), "an ordinal is removed once")
    live = np.ones(snapshot.firsts[-1], np.bool_) if snapshot.dead is None else ~snapshot.dead
    ids = snapshot.ids.to_arrow().filter(pa.array(live))
    require(len(ids.unique()) == len(ids), "an id belongs to one subscription")


def verify_segment(segment: Segment) -> None:
    """Check all arrays of a segment. Raises `InvariantError`. O(size of the arrays)."""
    check_memory_safety(segment)
    tables = segment.tables
    _verify_sets(tables)
    _verify_entries(tables)
    verify_paths(tables)
    verify_prefixes(tables)
    _verify_strings(tables, len(segment.attributes))
    for name in ("number", "large_float"):
        values, firsts = getattr(tables, name), getattr(tables, f"{name}_first")
        for start, end in pairwise(firsts):
            require(np.all(np.diff(values[start:end]) > 0), f"{name} ascends within an attribute")


def _verify_sets(tables: t.Tables) -> None:
    items = len(tables.item_first) - 1
    owner = np.repeat(np.arange(items), np.diff(tables.item_first))
    sets = tables.step[np.isin(tables.step[:, 0], (t.IN, t.NOT_IN)), 2]
    within = (owner[1:] == owner[:-1]) & np.isin(owner[1:], sets)
    require(np.all(np.diff(tables.item)[within] > 0), "the codes of a set ascend")


def _verify_entries(tables: t.Tables) -> None:
    if len(tables.ordinal_first):
        ascends = np.diff(tables.entry_ordinal) > 0
        ascends[tables.ordinal_first[1:-1] - 1] = True  # where the next entry begins
        require(np.all(ascends), "the subscriptions of a shared entry ascend")
    for group, flags in enumerate(tables.group_flags):
        entries = slice(tables.entry_first[group], tables.entry_first[group + 1])
        residual = tables.entry_residual[entries]
        uniform = bool(flags & t.RESIDUAL) and bool(np.all(residual == residual[0]))
        require(bool(flags & t.UNIFORM) == uniform, "a uniform group has one residual, any other several")
        if flags & t.SORTED:
            bounds = tables.entry_bound[entries]
            longs = flags >> t.BOUND_SHIFT & 3 == t.BOUND_LONG
            ordered = bounds if longs else bounds.view(np.float64)
            require(np.all(ordered[1:] >= ordered[:-1]), "the bounds of a sorted group ascend")
        if flags & t.INTERVAL:
            _verify_intervals(tables, group)


def _verify_intervals(tables: t.Tables, group: int) -> None:
    """Check the maxima of the upper ends of a group's intervals."""
    entries = int(tables.entry_first[group + 1] - tables.entry_first[group])
    for below, above in pairwise(level_slices(int(tables.group_high[group]), entries)):
        level = tables.high[below]
        maxima = np.maximum.reduceat(level, np.arange(0, len(level), t.HIGH))
        require(np.array_equal(maxima, tables.high[above]), "a maximum is that of the 16 below it")


def _verify_strings(tables: t.Tables, attributes: int) -> None:
    hashes = hash_strings(tables.string_bytes, tables.string_first, tables.string_tag)
    seen = np.zeros(len(tables.string_code), np.int64)
    for attribute in range(attributes):
        slots = tables.string_slot[
            tables.string_slot_first[attribute] : tables.string_slot_first[attribute + 1]
        ]
        used = slots != t.EMPTY_SLOT
        strings = (slots[used] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        seen[strings] += 1
        own = np.zeros(len(slots), np.uint64)
        own[used] = hashes[strings]
        require(np.all((own ^ slots)[used] >> np.uint64(32) == 0), "a slot has the hash of its string")
        verify_probing(used, own, "string table")
    require(np.all(seen == 1), "every string has one slot")
