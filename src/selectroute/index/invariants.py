"""Invariants of a snapshot, each with a sentence: some when a segment is read from a file, all on demand.

The kernel reads and writes by address without checks. A SHA-256 proves that a file is the one that was
written, not that its writer was honest or free of bugs. So the checks of `SAFETY` keep the kernel inside its
arrays, and its loops finite: a manipulated folder may give wrong matches, but no invalid memory access and no
endless loop. With those of `MEANING`, which rely on them, the matches are right; they are for stress tests
and ``index verify``.

All are O(size of the arrays); those of safety have no Python loops over them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import hash_strings
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.index.compile.layout import code_hash, level_slices
from selectroute.index.compile.prefixes import Prefixes, prefix_key
from selectroute.index.compile.residuals import stack_effect
from selectroute.index.errors import require
from selectroute.index.specification import COLUMNS
from selectroute.selector.dialect import DIALECTS, EXTENDED, NONE, STANDARD
from selectroute.selector.fields import DERIVED, PREFIX
from selectroute.topics.filter import TOPIC, derivation

_OPERATIONS = t.IS_SOUND + 1
_EFFECTS = np.array([stack_effect(operation) for operation in range(_OPERATIONS)], np.int64)
_SETS = (t.IN, t.NOT_IN)
_PATTERNS = (t.LIKE, t.NOT_LIKE, t.LEVELS)
_BY_CODE = (t.IS_KEY, t.IS_NOT_KEY, *_SETS)
_BY_VALUE = (t.LOAD, *_PATTERNS)
_FLAGS = (t.UNIFORM << 1) - 1


def check_safety(segment: Segment) -> None:
    """Check all assumptions of the kernel about a segment. Raises `InvariantError`.

    O(size of the arrays), without Python loops over them.
    """
    for check in SAFETY:
        check(segment)


def check_subscriptions(table: pa.Table) -> None:
    """Check a table of subscriptions. Raises `InvariantError` or ArrowInvalid. O(bytes)."""
    require(tuple(table.column_names) == COLUMNS, f"its columns are {', '.join(COLUMNS)}")
    for name, column in zip(COLUMNS, table.columns, strict=True):
        require(column.type == pa.string(), f"{name} is a string, not a {column.type}")
    table.validate(full=True)
    require(not table["id"].null_count, "id is never NULL")
    for name, values in (("dialect", DIALECTS), ("seltype", (NONE, STANDARD, EXTENDED))):
        known = set(table[name].unique().to_pylist()) <= set(values)
        require(known, f"{name} is never NULL, and one of {', '.join(sorted(values))}")


def verify_segment(segment: Segment) -> None:
    """Check all arrays of a segment. Raises `InvariantError`. O(size of the arrays)."""
    for check in SAFETY + MEANING:
        check(segment)


def verify_snapshot(snapshot: SnapshotState) -> None:
    """Check all arrays of a snapshot. Raises `InvariantError`. O(size of the arrays)."""
    for segment in snapshot.segments:
        verify_segment(segment)
    rows = sum(segment.rows for segment in snapshot.segments)
    require(rows == snapshot.subscriptions.num_rows, "every ordinal has a row")
    check_subscriptions(snapshot.subscriptions)
    check_tombstones(snapshot)
    removed = [segment.removed for segment in snapshot.segments]
    require(all(np.all(np.diff(array) > 0) for array in removed), "tombstones ascend")
    every = np.concatenate(removed)
    require(len(np.unique(every)) == len(every), "an ordinal is removed once")
    live = np.ones(snapshot.firsts[-1], np.bool_) if snapshot.dead is None else ~snapshot.dead
    ids = snapshot.ids.to_arrow().filter(pa.array(live))
    require(len(ids.unique()) == len(ids), "an id belongs to one subscription")


def check_tombstones(snapshot: SnapshotState) -> None:
    """Check what keeps readers inside the array of dead ordinals, when a snapshot is opened. O(tombstones).

    Raises `InvariantError`.
    """
    removed = [segment.removed for segment in snapshot.segments]
    require(all(array.dtype == np.int32 for array in removed), "tombstones are int32")
    for array, first in zip(removed, snapshot.firsts.tolist(), strict=False):
        require(_within(array, first), "a segment removes ordinals before its own")


# -- safety


def _check_forms(segment: Segment) -> None:
    """Check types, shapes and lengths of the arrays, as `Tables` declares them.

    Offsets begin at 0, never descend and end with their array.
    """
    counts, offsets = {"attribute": len(segment.attributes)}, []
    for name, array in zip(t.Tables._fields, segment.tables, strict=True):
        require(array.dtype == t.DTYPES[name], f"{name} is {t.DTYPES[name]}")
        shape = t.SHAPES.get(name, (-1,))
        require(array.ndim == len(shape) and array.shape[1:] == shape[1:], f"{name} has its shape")
        require(array.flags.c_contiguous and array.flags.aligned, f"{name} is contiguous and aligned")
        counted = t.COUNTED.get(name)
        if isinstance(counted, t.Offsets):
            offsets.append((name, array, *counted))
        elif counted:
            holds = counts.setdefault(counted, len(array)) == len(array)
            require(holds, f"{name} has one for each {counted}")
    for name, firsts, each, of in offsets:
        require(len(firsts) > 0, f"{name} has offsets")
        count = sum(counts.get(thing, len(firsts) - 1) for thing in each.split(" and "))
        require(len(firsts) == count + 1, f"{name} has a slice for each {each}")
        require(np.all(firsts[1:] >= firsts[:-1]), f"{name} never descends")
        if of is not None:
            require(firsts[0] == 0 and firsts[-1] == counts[of], f"{name} has a place for each {of}")


def _check_sharing(tables: t.Tables) -> None:
    """Check the lists of subscriptions that share an entry."""
    entries, firsts = len(tables.entry_bound), tables.ordinal_first
    if not len(firsts):
        require(len(tables.entry_ordinal) == entries, "an entry that is not shared has one subscription")
        return
    require(len(firsts) == entries + 1 and firsts[0] == 0, "ordinal_first has a slice for each entry")
    require(np.all(firsts[1:] > firsts[:-1]), "a shared entry has a subscription")
    require(firsts[-1] == len(tables.entry_ordinal), "ordinal_first ends where entry_ordinal does")


def _check_entries(segment: Segment) -> None:
    """Check entries, groups, residuals and upper ends."""
    tables = segment.tables
    require(_within(tables.entry_ordinal, segment.rows), "an entry belongs to a subscription")
    _check_sharing(tables)
    flags = tables.group_flags.astype(np.int64)
    sizes = np.diff(tables.entry_first)
    require(np.all(sizes > 0), "a group has an entry")
    require(np.all(flags <= _FLAGS), "every flag of a group is known")
    require(np.all(flags >> t.BOUND_SHIFT & 3 <= t.BOUND_FLOAT), "the bounds are longs, doubles or floats")
    ranged = tables.group_attribute[flags & t.SORTED != 0]
    require(_within(ranged, len(segment.attributes)), "a sorted group is of a known attribute")

    residual = np.repeat(flags & t.RESIDUAL != 0, sizes)
    residuals = len(tables.term_first) - 1
    require(_within(tables.entry_residual[residual], residuals), "a residual group's entries have residuals")
    require(np.all(tables.entry_residual[~residual] == -1), "other groups' entries have none")
    uniform = flags[flags & t.UNIFORM != 0]
    require(np.all(uniform & t.RESIDUAL), "a uniform group has one residual")

    interval = flags & t.INTERVAL != 0
    has_high = tables.group_high >= 0
    require(np.array_equal(interval, has_high), "an interval group has upper ends, no other one has")
    require(np.all(flags[interval] & t.SORTED), "intervals are sorted by their lower ends")
    level = sizes[interval]
    end = tables.group_high[interval].astype(np.int64) + level
    while np.any(level > t.HIGH):
        level = np.where(level > t.HIGH, -(-level // t.HIGH), 0)
        end += level
    require(np.all(end <= len(tables.high)), "the upper ends are within their array")


def _check_programs(segment: Segment) -> None:
    """Check that a program stays within the arrays and its stack, and leaves one value."""
    tables, attributes = segment.tables, len(segment.attributes)
    require(_within(tables.term_program, len(tables.step_first) - 1), "a term runs a program")
    require(np.all(tables.term_wanted <= 3), "the wanted truth of a term is known")
    operation, attribute, argument = (np.ascontiguousarray(column) for column in tables.step.T)
    require(_within(operation, _OPERATIONS), "every operation of a step is known")
    reads = attribute[_are(operation, _BY_CODE, _BY_VALUE, (t.IS_NULL, t.CHECK_TYPE, t.HAS_TYPE))]
    require(_within(reads, attributes), "a step reads a known attribute")
    constants = operation == t.CONSTANT
    tags = attribute[constants]
    require(np.all((tags >= t.BOOLEAN) & (tags <= t.DOUBLE)), "a constant is a boolean or a number")
    truths = argument[constants & (attribute == t.BOOLEAN)]
    require(np.all((truths == 0) | (truths == 1)), "a boolean constant is 0 or 1")
    modes = attribute[(operation >= t.ADD) & (operation <= t.AS_TRUTH)]
    mode = t.VOIDS | t.POSITIVE_ZERO | t.SAME_TYPE
    require(np.all((modes >= 0) & (modes <= mode)), "a step computes and compares in a known way")

    items = len(tables.item_first) - 1
    require(_within(argument[_are(operation, _SETS, _PATTERNS)], items), "a step has a known set or pattern")
    sizes = np.diff(tables.item_first)

    def items_of(*operations: int) -> t.Array:
        asked = np.zeros(items, np.bool_)
        asked[argument[_are(operation, operations)]] = True
        chosen: t.Array = tables.item[np.repeat(asked, sizes)]
        return chosen

    characters = items_of(t.LIKE, t.NOT_LIKE)
    require(np.all((characters >= t.ANY_MANY) & (characters <= 0x10FFFF)), "a LIKE pattern is of code points")
    symbols, levels = items_of(t.LEVELS), len(tables.level_first) - 1
    require(np.all((symbols >= t.ANY_MANY) & (symbols < levels)), "a levels pattern is of known levels")

    lengths = np.diff(tables.step_first)
    require(np.all(lengths > 0), "a program has a step")
    heights = np.cumsum(_EFFECTS[operation])
    before = np.concatenate(([0], heights))[tables.step_first[:-1]]
    heights = heights - np.repeat(before, lengths)
    require(np.all(heights >= 1), "a step has its operands on the stack")
    require(np.all(heights[tables.step_first[1:] - 1] == 1), "a program leaves one value")
    require(np.max(heights, initial=0) <= segment.depth, "no program needs a deeper stack than `depth`")
    require(segment.depth <= len(operation) + 2, "all steps together are at least as many as `depth`")


def _check_access_paths(segment: Segment) -> None:
    """Check that every leaf has one key, so that no search is circular, and each table a free slot."""
    tables, attributes = segment.tables, len(segment.attributes)
    leaves = len(tables.group_first) - 1
    require(leaves >= 1, "leaf 0 is the scan list")
    firsts = tables.tuple_leaf
    require(
        firsts[0] == 1 and firsts[-1] == leaves - len(tables.divided_tuple),
        "after the scan list are the tuples' leaves and divided ones",
    )
    require(np.all(tables.code_low >= 0), "the keys of an attribute are codes")
    require(_within(tables.posting_attribute, attributes), "a posting reads a known attribute")
    pairs = tables.tuple_attributes
    require(np.all(pairs < attributes), "a tuple is of known attributes")
    require(np.all(pairs[:, 0] >= 0), "a tuple has a first attribute")

    used = tables.slot >= 0
    of_slots = tables.slot[used] >> 32
    codes = tables.code_leaf[tables.code_leaf >= 0]
    paths = np.zeros(leaves, np.int64)
    for filed in (codes, of_slots, tables.prefix_leaf):
        require(_within(filed, leaves), "a key leads to a known leaf")
        paths += np.bincount(filed, minlength=leaves)
    require(paths[0] == 0 and np.all(paths[1:] == 1), "every other leaf has one key")

    _check_probing(tables.slot_first, ~used, "posting", empty=False)
    strings = tables.string_slot_first
    _check_probing(strings, tables.string_slot == t.EMPTY_SLOT, "string table", empty=True)

    parents, numbers = tables.prefix_parent, np.arange(len(tables.prefix_parent))
    require(np.all((parents >= -1) & (parents < numbers)), "a prefix comes after its parent")


def _check_probing(firsts: t.Array, free: t.Array, what: str, empty: bool) -> None:
    """Check that hash tables have a power of two slots, at least one free; no slots only if `empty`."""
    sizes = np.diff(firsts)
    require(empty or np.all(sizes > 0), f"a {what} has a slot")
    require(np.all(sizes & (sizes - 1) == 0), f"a {what} has a power of two slots")
    counted = np.concatenate(([0], np.cumsum(free)))[firsts]
    require(np.all((np.diff(counted) > 0) | (sizes == 0)), f"a {what} has a free slot")


def _check_dictionaries(segment: Segment) -> None:
    tables = segment.tables
    used = tables.string_slot[tables.string_slot != t.EMPTY_SLOT] & np.uint64(0xFFFFFFFF)
    require(_within(used.astype(np.int64), len(tables.string_code)), "a slot is of a known string")
    tags = tables.string_tag
    require(np.all((tags == t.STRING) | (tags == t.BYTES)), "a string is a string or a byte string")


def _check_attributes(segment: Segment) -> None:
    """Check the attributes, and the check of names, against the arrays."""
    tables, count = segment.tables, len(segment.attributes)
    names = [attribute.name for attribute in segment.attributes]
    require(len(set(names)) == count, "every attribute occurs once")
    require(all(map(_is_readable, names)), "a derived field is a known one")
    checked = bool(np.any(tables.group_flags & np.uint16(t.VALID_NAMES)))
    require(segment.checks_names == checked, "names are checked if and only if a group needs it")
    operation, attribute, _ = tables.step.T
    by_prefix = tables.tuple_attributes[:, 1] == t.PREFIXES
    codes = (attribute[_are(operation, _BY_CODE)], tables.tuple_attributes[~by_prefix].reshape(-1))
    values = (
        attribute[_are(operation, _BY_VALUE)],
        tables.group_attribute[tables.group_flags & np.uint16(t.SORTED) != 0],
        np.flatnonzero(np.diff(tables.prefix_first)),
    )
    for parts, read in ((codes, "codes"), (values, "values")):
        used = np.zeros(count, np.bool_)
        for part in parts:
            used[part[part >= 0]] = True
        has = np.array([getattr(attribute, read) for attribute in segment.attributes], np.bool_)
        require(np.all(has[used]), f"an attribute has {read} if they are used")


def _is_readable(name: str) -> bool:
    """Return whether an attribute of this name can be read from a batch of messages."""
    if name.startswith(TOPIC):
        return name == TOPIC or (len(name) < 32 and derivation(name) is not None)
    return not name.startswith(PREFIX) or name.removeprefix(PREFIX) in DERIVED


def _within(numbers: t.Array, count: int) -> bool:
    """Return whether all numbers are at least 0 and below ``count``."""
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < count)


def _are(operation: t.Array, *kinds: tuple[int, ...]) -> t.Array:
    """Return which steps have these operations, by a lookup table, which is faster than ``np.isin``."""
    table = np.zeros(_OPERATIONS, np.bool_)
    table[[each for kind in kinds for each in kind]] = True
    belongs: t.Array = table[operation]
    return belongs


SAFETY: Final = (
    _check_forms,
    _check_entries,
    _check_programs,
    _check_access_paths,
    _check_dictionaries,
    _check_attributes,
)
"""Checks of what keeps the kernel inside its arrays."""


# -- meaning


def _ascends(values: t.Array, firsts: t.Array) -> bool:
    """Return whether values ascend within each slice."""
    ascends = np.append(values[1:] > values[:-1], True)
    ascends[firsts[firsts > 0] - 1] = True  # the last of a slice
    return bool(np.all(ascends))


def _check_order(segment: Segment) -> None:
    """Check the order of searched arrays, and of the subscriptions that share an entry."""
    tables = segment.tables
    require(_ascends(tables.number, tables.number_first), "number ascends within an attribute")
    require(_ascends(tables.large_float, tables.large_float_first), "large_float ascends within an attribute")
    shared = len(tables.ordinal_first) == 0 or _ascends(tables.entry_ordinal, tables.ordinal_first)
    require(shared, "the subscriptions of a shared entry ascend")
    sets = tables.step[_are(tables.step[:, 0], _SETS), 2]
    for start, end in zip(tables.item_first[sets], tables.item_first[sets + 1], strict=True):
        require(np.all(np.diff(tables.item[start:end]) > 0), "the codes of a set ascend")


def _check_groups(segment: Segment) -> None:
    """Check the entries of groups."""
    tables = segment.tables
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
            for below, above in pairwise(level_slices(int(tables.group_high[group]), len(residual))):
                level = tables.high[below]
                maxima = np.maximum.reduceat(level, np.arange(0, len(level), t.HIGH))
                require(np.array_equal(maxima, tables.high[above]), "a maximum is that of the 16 below it")


def _check_postings(segment: Segment) -> None:
    """Check that every leaf is reached by the codes under which it is filed."""
    tables = segment.tables
    used = tables.slot >= 0
    tuple_of_leaf = np.repeat(np.arange(len(tables.tuple_attributes)), np.diff(tables.tuple_leaf))
    tuples = np.concatenate(([-1], tuple_of_leaf, tables.divided_tuple))[tables.slot[used] >> 32]
    posting = np.repeat(np.arange(len(tables.posting_attribute)), np.diff(tables.slot_first))[used]
    reads = tables.tuple_attributes[tuples] == tables.posting_attribute[posting][:, None]
    require(np.all(np.any(reads, axis=1)), "a posting leads to leaves of its attribute")
    place = np.searchsorted(tables.code_posting, posting, side="right") - 1
    above = np.append(np.full(len(tables.code_leaf), -1), tables.divided_tuple)[place]
    beneath = np.array_equal(tables.tuple_above[tuples], above)
    require(beneath, "a leaf is beneath a divided one of the tuple above")
    bits = np.where(used, np.uint64(1) << (tables.slot & 63).astype(np.uint64), np.uint64(0))
    filters = np.bitwise_or.reduceat(bits, tables.slot_first[:-1]) if len(bits) else bits
    require(np.array_equal(filters, tables.posting_filter), "a posting's filter has the bits of its codes")
    _check_reached(tables.slot_first, used, code_hash(tables.slot & 0xFFFFFFFF), "posting")


def _check_divided(segment: Segment) -> None:
    """Check divided leaves, and the tuples beneath them."""
    tables = segment.tables
    tuples, above, own = len(tables.tuple_attributes), tables.tuple_above, tables.divided_tuple
    require(_within(own, tuples), "a divided leaf is of a known tuple")
    postings = np.diff(tables.code_posting[len(tables.code_leaf) :])
    require(np.all(postings > 0), "a divided leaf has a posting")
    beneath = tables.tuple_attributes[:, 1] == t.BENEATH
    require(np.array_equal(above >= 0, beneath), "a tuple has one above it only if beneath one")
    require(np.all(above < np.arange(tuples)), "a tuple comes after the one above it")
    require(np.all(np.isin(above[beneath], own)), "a tuple above another has a divided leaf")


def _check_prefixes(segment: Segment) -> None:
    """Check the prefixes and their parents. O(bytes × log prefixes)."""
    tables = segment.tables
    data = tables.prefix_bytes.tobytes()
    texts = [data[start:end] for start, end in pairwise(tables.prefix_byte_first.tolist())]
    require(tables.prefix_key.tolist() == [prefix_key(text) for text in texts], "a prefix has its key")
    for first, last in pairwise(tables.prefix_first.tolist()):
        own = texts[first:last]
        require(all(prefix < other for prefix, other in pairwise(own)), "the prefixes of an attribute ascend")
        parents = Prefixes({0: own}).arrays(1)["prefix_parent"]
        moved = np.where(parents < 0, -1, parents + first)
        require(np.array_equal(tables.prefix_parent[first:last], moved), "a parent is the longest prefix")


def _check_strings(segment: Segment) -> None:
    """Check that every string is reached by its hash."""
    tables = segment.tables
    used = tables.string_slot != t.EMPTY_SLOT
    strings = (tables.string_slot[used] & np.uint64(t.MOST_STRINGS)).astype(np.int64)
    hashes = np.zeros(len(used), np.uint64)
    hashes[used] = hash_strings(tables.string_bytes, tables.string_first, tables.string_tag)[strings]
    same = (hashes ^ tables.string_slot)[used] >> np.uint64(32) == 0
    require(np.all(same), "a slot has the hash of its string")
    _check_reached(tables.string_slot_first, used, hashes, "string table")
    once = np.bincount(strings, minlength=len(tables.string_code)) == 1
    require(np.all(once), "every string has one slot")


def _check_reached(firsts: t.Array, used: t.Array, hashes: t.Array, what: str) -> None:
    """Check in each hash table that from the slot of an entry's hash on, no empty slot comes before it."""
    for start, end in pairwise(firsts.tolist()):
        size, taken = end - start, used[start:end]
        require(2 * int(taken.sum()) <= size, f"a {what} is at most half full")
        # Count the used slots up to each slot, wrapping around, so that runs without holes are differences.
        before = np.concatenate(([0], np.cumsum(np.concatenate((taken, taken)))))
        own = np.flatnonzero(taken)
        home = (hashes[start:end][own] & np.uint64(max(size - 1, 0))).astype(np.int64)
        last = np.where(own < home, own + size, own)
        require(np.all(before[last] - before[home] == last - home), f"every entry of a {what} is reached")


MEANING: Final = (
    _check_order,
    _check_groups,
    _check_divided,
    _check_postings,
    _check_prefixes,
    _check_strings,
)
"""Checks of what makes the matches right, after those of `SAFETY`."""
