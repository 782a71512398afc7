"""Invariants that keep the kernel inside its arrays, and its loops finite.

The kernel reads and writes by address without checks. A SHA-256 proves that a file is the one that was
written, not that its writer was honest or free of bugs. So these invariants are checked whenever a segment is
read from a file: a manipulated folder may give wrong matches, but no invalid memory access and no endless
loop.

All checks are vectorized, O(size of the arrays). The invariants of meaning, such as the order of bounds, are
in ``verify``, which calls this module first.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.index.build.compile_residual import stack_effect
from selectroute.index.errors import require
from selectroute.selector.fields import DERIVED, PREFIX
from selectroute.topics.levels import TOPIC, derivation

_OPERATIONS = t.IS_SOUND + 1
_EFFECTS = np.array([stack_effect(operation) for operation in range(_OPERATIONS)], np.int64)
_SETS = (t.IN, t.NOT_IN)
_PATTERNS = (t.LIKE, t.NOT_LIKE, t.LEVELS)
_BY_CODE = (t.IS_KEY, t.IS_NOT_KEY, *_SETS)
_BY_VALUE = (t.LOAD, *_PATTERNS)
_FLAGS = (t.UNIFORM << 1) - 1

_ALONGSIDE = {
    "tuple_above": "tuple_attributes",
    "group_attribute": "group_flags",
    "group_high": "group_flags",
    "posting_filter": "posting_attribute",
    "prefix_parent": "prefix_leaf",
    "prefix_key": "prefix_leaf",
    "entry_residual": "entry_bound",
    "term_wanted": "term_program",
    "string_tag": "string_code",
    "number_code": "number",
    "large_float_code": "large_float",
}
"""Arrays with an element for each element of another array."""

_SLICES = {
    "code_first": "code_leaf",
    "code_posting": "posting_attribute",
    "slot_first": "slot",
    "prefix_first": "prefix_leaf",
    "prefix_byte_first": "prefix_bytes",
    "group_first": "group_flags",
    "entry_first": "entry_bound",
    "term_first": "term_program",
    "step_first": "step",
    "item_first": "item",
    "level_first": "level_bytes",
    "string_slot_first": "string_slot",
    "string_first": "string_bytes",
    "number_first": "number",
    "large_float_first": "large_float",
}
"""Arrays of offsets, and the array that they slice."""


def check_memory_safety(segment: Segment) -> None:
    """Check all assumptions of the kernel about a segment. Raises `InvariantError`.

    O(size of the arrays), without Python loops over them.
    """
    tables, attributes = segment.tables, len(segment.attributes)
    for name, array in zip(t.Tables._fields, tables, strict=True):
        require(array.dtype == t.DTYPES[name], f"{name} is {t.DTYPES[name]}")
        shape = t.SHAPES.get(name, (-1,))
        require(array.ndim == len(shape) and array.shape[1:] == shape[1:], f"{name} has its shape")
        require(array.flags.c_contiguous and array.flags.aligned, f"{name} is contiguous and aligned")
    for name, other in _ALONGSIDE.items():
        require(len(getattr(tables, name)) == len(getattr(tables, other)), f"{name} is as long as {other}")
    _check_slices(tables, attributes)
    _check_entries(segment)
    _check_programs(segment)
    _check_access_paths(tables, attributes)
    _check_dictionaries(tables)
    _check_attributes(segment)


def check_tombstones(snapshot: SnapshotState) -> None:
    """Check what keeps readers inside the array of dead ordinals, when a snapshot is opened. O(tombstones).

    Raises `InvariantError`.
    """
    removed = [segment.removed for segment in snapshot.segments]
    require(all(array.dtype == np.int32 for array in removed), "tombstones are int32")
    for array, first in zip(removed, snapshot.firsts.tolist(), strict=False):
        placed = not len(array) or 0 <= array.min() <= array.max() < first
        require(placed, "a segment removes ordinals before its own")


def _check_slices(tables: t.Tables, attributes: int) -> None:
    """Check that each ``…_first`` begins at 0, never descends and ends with its array."""
    for name, target in _SLICES.items():
        firsts = getattr(tables, name)
        require(len(firsts) > 0 and firsts[0] == 0, f"{name} begins at 0")
        require(np.all(firsts[1:] >= firsts[:-1]), f"{name} never descends")
        require(firsts[-1] == len(getattr(tables, target)), f"{name} ends where its array does")
    counts = {
        "tuple_leaf": (len(tables.tuple_attributes), "tuple"),
        "code_first": (attributes, "attribute"),
        "code_posting": (len(tables.code_leaf) + len(tables.divided_tuple), "code and divided leaf"),
        "slot_first": (len(tables.posting_attribute), "posting"),
        "entry_first": (len(tables.group_flags), "group"),
        "prefix_first": (attributes, "attribute"),
        "prefix_byte_first": (len(tables.prefix_leaf), "prefix"),
        "string_first": (len(tables.string_code), "string"),
        "string_slot_first": (attributes, "attribute"),
        "number_first": (attributes, "attribute"),
        "large_float_first": (attributes, "attribute"),
    }
    for name, (count, what) in counts.items():
        require(len(getattr(tables, name)) == count + 1, f"{name} has a slice for each {what}")
    require(len(tables.code_low) == attributes, "code_low has a code for each attribute")


def _check_sharing(tables: t.Tables) -> None:
    """Check who shares the entries."""
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
        found: t.Array = tables.item[np.repeat(asked, sizes)]
        return found

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


def _check_access_paths(tables: t.Tables, attributes: int) -> None:
    """Check that every leaf has one key, so that no search is circular, and each table a free slot."""
    leaves = len(tables.group_first) - 1
    require(leaves >= 1, "leaf 0 is the scan list")
    firsts = tables.tuple_leaf
    require(
        firsts[0] == 1 and firsts[-1] == leaves - len(tables.divided_tuple),
        "after the scan list are the tuples' leaves and divided ones",
    )
    require(np.all(firsts[1:] >= firsts[:-1]), "the leaves of a tuple are neighbours")
    require(np.all(tables.code_low >= 0), "the keys of an attribute are codes")
    require(_within(tables.posting_attribute, attributes), "a posting reads a known attribute")
    pairs = tables.tuple_attributes
    require(np.all(pairs < attributes), "a tuple is of known attributes")
    require(np.all(pairs[:, 0] >= 0), "a tuple has a first attribute")

    used = tables.slot >= 0
    of_slots = tables.slot[used] >> 32
    codes = tables.code_leaf[tables.code_leaf >= 0]
    found = np.zeros(leaves, np.int64)
    for filed in (codes, of_slots, tables.prefix_leaf):
        require(_within(filed, leaves), "a key leads to a known leaf")
        found += np.bincount(filed, minlength=leaves)
    require(found[0] == 0 and np.all(found[1:] == 1), "every other leaf has one key")

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


def _check_dictionaries(tables: t.Tables) -> None:
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
        has = np.array([getattr(one, read) for one in segment.attributes], np.bool_)
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
    table[[one for kind in kinds for one in kind]] = True
    found: t.Array = table[operation]
    return found
