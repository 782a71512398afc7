"""Every invariant of an index and of a snapshot, asserted under a sentence. For stress tests and ``index
verify``.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import numpy as np

from selectroute.clauses.access import equalities
from selectroute.index import tables as t
from selectroute.index.dictionary import hash_strings
from selectroute.index.index import Filed, Index
from selectroute.index.intervals import level_slices
from selectroute.index.invariants import require
from selectroute.index.plan import MAX_PAIRS, Statistics
from selectroute.index.program import stack_effect
from selectroute.index.segment import Segment
from selectroute.index.snapshot import Snapshot
from selectroute.index.subscription import EXTENDED, NONE, STANDARD
from selectroute.index.tombstones import broken_tombstones
from selectroute.index.verify_paths import verify_paths, verify_prefixes, verify_probing
from selectroute.selector.dialect import DIALECTS
from selectroute.selector.fields import DERIVED, PREFIX
from selectroute.topics.levels import TOPIC

_OPERATIONS = range(t.IS_SOUND + 1)
_EFFECTS = np.array([stack_effect(operation) for operation in _OPERATIONS], np.int64)
_SETS = (t.IN, t.NOT_IN)
_PATTERNS = (t.LIKE, t.NOT_LIKE, t.LEVELS)
_READS = (t.LOAD, t.IS_NULL, t.IS_KEY, t.IS_NOT_KEY, t.CHECK_TYPE, t.HAS_TYPE, *_SETS, *_PATTERNS)

_BY_CODE = (t.IS_KEY, t.IS_NOT_KEY, *_SETS)
_BY_VALUE = (t.LOAD, *_PATTERNS)
_MODES = (*range(t.ADD, t.AS_TRUTH + 1),)
_MODE = t.VOIDS | t.POSITIVE_ZERO | t.SAME_TYPE
_FLAGS = (t.UNIFORM << 1) - 1

_ALONGSIDE = {
    "tuple_above": "tuple_attributes",
    "group_attribute": "group_flags",
    "group_high": "group_flags",
    "posting_filter": "posting_attribute",
    "prefix_parent": "prefix_leaf",
    "prefix_key": "prefix_leaf",
    "entry_bound": "entry_ordinal",
    "entry_residual": "entry_ordinal",
    "term_wanted": "term_program",
    "string_tag": "string_code",
    "number_code": "number",
    "large_float_code": "large_float",
}
"""Arrays that have an element for each one of another."""


def verify_index(index: Index) -> None:
    """Check a mutable index. Raises `InvariantError`. O(its size)."""
    filed: Counter[Filed] = Counter()
    for attributes, buckets in index._buckets.items():
        require(buckets, f"the tuple {attributes} has a bucket, or is not there")
        for keys, bucket in buckets.items():
            require(bucket, f"the key {keys} has an entry, or is not there")
            for entry in bucket:
                require(entry.attributes == attributes, "an entry lies under its own attributes")
                require(keys in set(product(*entry.keys)), "an entry lies under its own keys only")
                filed[entry] += 1
    statistics = Statistics()
    pairs: Counter[tuple[str, ...]] = Counter()
    for subscription in index:
        entries = index._filed[subscription.id]
        satisfiable = [clause for clause in subscription.clauses if equalities(clause).satisfiable]
        require([entry.clause for entry in entries] == satisfiable, "each satisfiable clause is filed")
        for entry in entries:
            copies = int(np.prod([len(keys) for keys in entry.keys], initial=1))
            require(filed.pop(entry, 0) == copies, "an entry lies under each of its keys")
            statistics.add(equalities(entry.clause))
            if len(entry.attributes) == 2:
                pairs[entry.attributes] += 1
    require(not filed, "an entry belongs to a subscription")
    require(
        set(index._filed) == set(index._subscriptions), "what is filed is registered, and the other way round"
    )
    require(statistics.counts == index.statistics.counts, "the statistics count what is filed")
    require(statistics._squares == index.statistics._squares, "the sums of squares belong to the counts")
    require(pairs == index._plan.pairs, "the plan counts the entries of each pair")
    require(len(pairs) <= MAX_PAIRS, "no more pairs are in use than the plan allows")


def verify_snapshot(snapshot: Snapshot) -> None:
    """Check all arrays of a snapshot. Raises `InvariantError`. O(its size)."""
    for segment in snapshot.segments:
        verify_segment(segment)
    rows = sum(segment.rows for segment in snapshot.segments)
    require(rows == snapshot.subscriptions.num_rows, "every ordinal has a row")
    seltypes = set(snapshot.subscriptions["seltype"].unique().to_pylist())
    require(seltypes <= {NONE, STANDARD, EXTENDED}, "the type of every selector is known")
    dialects = set(snapshot.subscriptions["dialect"].unique().to_pylist())
    require(dialects <= set(DIALECTS), "the dialect of every subscription is known")
    for sentence in broken_tombstones(snapshot):
        require(False, sentence)


def verify_segment(segment: Segment) -> None:
    """Check all arrays of a segment. Raises `InvariantError`. O(its size)."""
    tables = segment.tables
    for name, array in zip(t.Tables._fields, tables, strict=True):
        require(array.dtype == t.DTYPES[name], f"{name} is {t.DTYPES[name]}")
    _verify_attributes(segment)
    _verify_slices(tables, len(segment.attributes))
    _verify_programs(segment)
    _verify_entries(segment)
    verify_paths(tables)
    verify_prefixes(tables)
    _verify_strings(tables, len(segment.attributes))
    for name in ("number", "large_float"):
        values, firsts = getattr(tables, name), getattr(tables, f"{name}_first")
        for start, end in pairwise(firsts):
            require(np.all(np.diff(values[start:end]) > 0), f"{name} ascends within an attribute")


def _verify_attributes(segment: Segment) -> None:
    """What is read of the columns, and which messages nobody may take, is what the arrays use."""
    tables, count = segment.tables, len(segment.attributes)
    for attribute in segment.attributes:
        name = attribute.name.removeprefix(PREFIX)
        known = attribute.name.startswith(TOPIC) or not attribute.name.startswith(PREFIX) or name in DERIVED
        require(known, "a derived field is a known one")
    flags = tables.group_flags.astype(np.int64)
    require(np.all(flags <= _FLAGS), "every flag of a group is known")
    require(np.all(flags >> t.BOUND_SHIFT & 3 <= t.BOUND_FLOAT), "the bounds are longs, doubles or floats")
    require(np.all(tables.term_wanted <= 3), "what a term wants is known")
    checked = bool(np.any(flags & t.VALID_NAMES))
    require(segment.checks_names == checked, "names are checked if a group takes valid ones only")
    operation, attributes, _ = tables.step.T
    modes = attributes[np.isin(operation, _MODES)]
    require(np.all((modes >= 0) & (modes <= _MODE)), "a step computes and compares in a known way")
    by_prefix = tables.tuple_attributes[:, 1] == t.PREFIXES
    codes = [*attributes[np.isin(operation, _BY_CODE)], *tables.tuple_attributes[~by_prefix].reshape(-1)]
    values = [
        *attributes[np.isin(operation, _BY_VALUE)],
        *tables.group_attribute[flags & t.SORTED != 0],
        *np.flatnonzero(np.diff(tables.prefix_first)),
    ]
    for used, read in ((codes, "codes"), (values, "values")):
        numbers = {int(number) for number in used if 0 <= number < count}
        has = all(getattr(segment.attributes[number], read) for number in numbers)
        require(has, f"the {read} of an attribute are there where they are used")


def _verify_slices(tables: t.Tables, attributes: int) -> None:
    """Each ``…_first`` begins at 0, never descends and ends with its array."""
    slices = {
        "code_first": tables.code_leaf,
        "code_posting": tables.posting_attribute,
        "slot_first": tables.slot,
        "prefix_first": tables.prefix_leaf,
        "prefix_byte_first": tables.prefix_bytes,
        "group_first": tables.group_flags,
        "entry_first": tables.entry_ordinal,
        "term_first": tables.term_program,
        "step_first": tables.step,
        "item_first": tables.item,
        "level_first": tables.level_bytes,
        "string_slot_first": tables.string_slot,
        "string_first": tables.string_bytes,
        "number_first": tables.number,
        "large_float_first": tables.large_float,
    }
    for name, target in slices.items():
        firsts = getattr(tables, name)
        require(len(firsts) > 0 and firsts[0] == 0, f"{name} begins at 0")
        require(np.all(np.diff(firsts) >= 0), f"{name} never descends")
        require(firsts[-1] == len(target), f"{name} ends where its array does")
    for name, other in _ALONGSIDE.items():
        require(len(getattr(tables, name)) == len(getattr(tables, other)), f"{name} is as long as {other}")
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
    require(np.all(tables.tuple_attributes < attributes), "a tuple is of known attributes")
    require(np.all(tables.tuple_attributes[:, 0] >= 0), "a tuple has a first attribute")
    readers = tables.posting_attribute
    require(np.all((readers >= 0) & (readers < attributes)), "a posting reads a known attribute")
    require(
        np.all((tables.term_program >= 0) & (tables.term_program < len(tables.step_first) - 1)),
        "a term runs a program",
    )


def _verify_programs(segment: Segment) -> None:
    """A program that runs stays within the arrays and its stack, and leaves one value."""
    tables = segment.tables
    operation, attribute, argument = tables.step.T
    require(np.all((operation >= 0) & (operation < len(_OPERATIONS))), "every operation of a step is known")
    reads = attribute[np.isin(operation, _READS)]
    require(np.all((reads >= 0) & (reads < len(segment.attributes))), "a step reads a known attribute")
    constants = operation == t.CONSTANT
    tags = attribute[constants]
    require(np.all((tags >= t.BOOLEAN) & (tags <= t.DOUBLE)), "a constant is a boolean or a number")
    truths = argument[constants & (attribute == t.BOOLEAN)]
    require(np.all((truths == 0) | (truths == 1)), "a boolean constant is 0 or 1")

    items = len(tables.item_first) - 1
    used = argument[np.isin(operation, (*_SETS, *_PATTERNS))]
    require(np.all((used >= 0) & (used < items)), "a step has a known set or pattern")
    owner = np.repeat(np.arange(items), np.diff(tables.item_first))
    symbols = tables.item[np.isin(owner, argument[operation == t.LEVELS])]
    characters = tables.item[np.isin(owner, argument[np.isin(operation, (t.LIKE, t.NOT_LIKE))])]
    require(np.all((characters >= t.ANY_MANY) & (characters <= 0x10FFFF)), "a LIKE pattern is of code points")
    levels = len(tables.level_first) - 1
    require(np.all((symbols >= t.ANY_MANY) & (symbols < levels)), "a levels pattern is of known levels")
    within = (owner[1:] == owner[:-1]) & np.isin(owner[1:], argument[np.isin(operation, _SETS)])
    require(np.all(np.diff(tables.item)[within] > 0), "the codes of a set ascend")

    lengths = np.diff(tables.step_first)
    require(np.all(lengths > 0), "a program has a step")
    heights = np.cumsum(_EFFECTS[operation])
    before = np.concatenate(([0], heights))[tables.step_first[:-1]]
    heights = heights - np.repeat(before, lengths)
    require(np.all(heights >= 1), "a step has its operands on the stack")
    require(np.all(heights[tables.step_first[1:] - 1] == 1), "a program leaves one value")
    require(np.max(heights, initial=1) <= segment.depth, "no program needs a deeper stack than `depth`")


def _verify_entries(segment: Segment) -> None:
    tables = segment.tables
    ordinals = tables.entry_ordinal
    require(np.all((ordinals >= 0) & (ordinals < segment.rows)), "an entry is a subscription's")
    ranged = tables.group_attribute[tables.group_flags & t.SORTED != 0]
    require(
        np.all((ranged >= 0) & (ranged < len(segment.attributes))), "a sorted group is of a known attribute"
    )
    residuals = len(tables.term_first) - 1
    for group, flags in enumerate(tables.group_flags):
        entries = slice(tables.entry_first[group], tables.entry_first[group + 1])
        require(entries.start < entries.stop, "a group has an entry")
        residual = tables.entry_residual[entries]
        if flags & t.RESIDUAL:
            require(
                np.all((residual >= 0) & (residual < residuals)), "a residual group's entries have residuals"
            )
        else:
            require(np.all(residual == -1), "other groups' entries have none")
        uniform = bool(flags & t.RESIDUAL) and bool(np.all(residual == residual[0]))
        require(bool(flags & t.UNIFORM) == uniform, "a uniform group has one residual, any other several")
        if flags & t.SORTED:
            bounds = tables.entry_bound[entries]
            longs = flags >> t.BOUND_SHIFT & 3 == t.BOUND_LONG
            ordered = bounds if longs else bounds.view(np.float64)
            require(np.all(ordered[1:] >= ordered[:-1]), "the bounds of a sorted group ascend")
        _verify_intervals(tables, group)


def _verify_intervals(tables: t.Tables, group: int) -> None:
    """The upper ends of a group's intervals, and the maxima by which they are found."""
    first, flags = int(tables.group_high[group]), tables.group_flags[group]
    require((first >= 0) == (flags & t.INTERVAL != 0), "an interval group has upper ends, no other one has")
    if first < 0:
        return
    require(flags & t.SORTED, "intervals are sorted by their lower ends")
    slices = level_slices(first, int(tables.entry_first[group + 1] - tables.entry_first[group]))
    require(slices[-1].stop <= len(tables.high), "the upper ends lie within their array")
    for below, above in pairwise(slices):
        level = tables.high[below]
        maxima = np.maximum.reduceat(level, np.arange(0, len(level), t.HIGH))
        require(np.array_equal(maxima, tables.high[above]), "a maximum is that of the 16 below it")


def _verify_strings(tables: t.Tables, attributes: int) -> None:
    require(np.all(np.isin(tables.string_tag, (t.STRING, t.BYTES))), "a string is a string or a byte string")
    hashes = hash_strings(tables.string_bytes, tables.string_first, tables.string_tag)
    seen = np.zeros(len(tables.string_code), np.int64)
    for attribute in range(attributes):
        slots = tables.string_slot[
            tables.string_slot_first[attribute] : tables.string_slot_first[attribute + 1]
        ]
        used = slots != t.EMPTY_SLOT
        strings = (slots[used] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        require(np.all(strings < len(seen)), "a slot is of a known string")
        seen[strings] += 1
        own = np.zeros(len(slots), np.uint64)
        own[used] = hashes[strings]
        require(np.all((own ^ slots)[used] >> np.uint64(32) == 0), "a string's hash is beside it")
        verify_probing(used, own, "string table")
    require(np.all(seen == 1), "every string has one slot")
