"""Segment of a snapshot: the subscriptions that one call of the kernel matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from selectroute.arrays.rows import distinct_values
from selectroute.arrays.tables import (
    FLAG_BITS,
    INTERVAL,
    LIKE,
    NOT_LIKE,
    REPEATED,
    RESIDUAL,
    SORTED,
    Array,
    Tables,
    as_array,
)
from selectroute.selector.fields import DERIVED, PREFIX, SYNONYMS
from selectroute.topics.filter import TOPIC

LEAF_FLAGS, LEAF_ATTRIBUTE, LEAF_ENTRIES = (1 << FLAG_BITS) - 1, FLAG_BITS, 40
"""Parts of a word of `Segment.leaf_groups`: a mask of the group's flags, and the first bits of its attribute
and of its number of entries::

    63   62        40 39         16 15      0
    0   | entries    | attribute   | flags   |
"""

ATTRIBUTE_LIMIT = 1 << LEAF_ENTRIES - LEAF_ATTRIBUTE
"""The least number of an attribute that does not fit into a word."""

ENTRY_LIMIT = 1 << 63 - LEAF_ENTRIES
"""The least number of entries that does not fit into a word."""

CROWDED = 16
"""Residuals of a leaf with LIKE on one attribute from which it pays to find equal strings of a batch."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Property or derived field that the snapshot reads, and how.

    ``codes``: its values are looked up among the constants; ``values``: ranges and programs read them;
    ``byte_strings``: the dialects of all its readers have byte strings, so a binary column is a property.
    """

    name: str
    codes: bool
    values: bool
    byte_strings: bool

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that it is read from: the topic string, or the names of a field that has several."""
        if self.name.startswith(TOPIC):
            return (TOPIC,)
        if not self.name.startswith(PREFIX):
            return (self.name,)
        own = self.name.removeprefix(PREFIX)
        others = dict.fromkeys(name for source in DERIVED[own] for name in source.names)
        return (own, *others) if own in SYNONYMS else tuple(others)


@dataclass(frozen=True, eq=False)
class Segment:
    """Flat arrays of some subscriptions, which executors map into memory without unpickling.

    ``rows`` is the number of subscriptions; an entry's ordinal counts from the first of the segment.
    ``depth`` is the deepest stack that a program needs, ``scanned`` counts the clauses on the scan list by
    their reason. ``checks_names``: some selectors match no message whose property names break a rule.
    ``removed`` are the tombstones of a delta: ordinals of the snapshot, int32, ascending, all below those of
    the segment itself. They do not affect matching this segment alone.
    """

    tables: Tables
    attributes: tuple[Attribute, ...]
    depth: int
    checks_names: bool
    scanned: Mapping[str, int]
    rows: int
    removed: Array = field(default_factory=lambda: np.zeros(0, np.int32))

    @cached_property
    def plain(self) -> bool:
        """True if no entry has a residual, no group has intervals, no subscription has several clauses, and
        the scan list is empty. O(groups), once.
        """
        others = np.any(self.tables.group_flags & (RESIDUAL | REPEATED | INTERVAL))
        return not others and not self.tables.group_first[1]

    @cached_property
    def leaf_groups(self) -> Array:
        """Group of each leaf, if all are `plain`: in one cache line what the tables have in four.

        int64[leaves, 2]: the group's first entry, and a word of its flags, attribute and number of entries.
        For a leaf without a group or with several, or if the numbers do not fit, it is the number of its
        first group and ``~groups``. Without rows if not all groups are plain. O(leaves), once; 16 bytes a
        leaf, in each process.
        """
        tables = self.tables
        if not self.plain:
            return np.zeros((0, 2), np.int64)
        groups = np.diff(tables.group_first)
        made = np.column_stack((tables.group_first[:-1], ~groups)).astype(np.int64)
        leaf = np.flatnonzero(groups == 1)
        group = tables.group_first[leaf]
        start = tables.entry_first[group]
        entries = tables.entry_first[group + 1] - start
        attribute = tables.group_attribute[group].astype(np.int64)
        word = entries << LEAF_ENTRIES | attribute << LEAF_ATTRIBUTE | tables.group_flags[group]
        fits = (entries < ENTRY_LIMIT) & (attribute < ATTRIBUTE_LIMIT)
        made[leaf[fits]] = np.column_stack((start, word))[fits]
        return made

    @cached_property
    def repeats(self) -> bool:
        """True if a subscription has several clauses. O(groups), once."""
        return bool(np.any(self.tables.group_flags & REPEATED))

    @cached_property
    def ranged(self) -> Array:
        """Mask of the attributes whose ranges sort a group, bool[attributes]. O(groups), once."""
        mask = np.zeros(len(self.attributes), np.bool_)
        mask[self.tables.group_attribute[self.tables.group_flags & SORTED != 0]] = True
        return mask

    @cached_property
    def prefixing(self) -> Array:
        """Attributes with prefixes, int64[n]. O(attributes), once."""
        return np.flatnonzero(np.diff(self.tables.prefix_first))

    @cached_property
    def like_patterns(self) -> tuple[Array, Array]:
        """Patterns of LIKE, numbered for each attribute: int32[steps], -1 for steps other than LIKE; and the
        number of patterns of each attribute, int64[attributes]. O(steps), once.
        """
        operations, attributes, patterns = self.tables.step.T
        steps = np.flatnonzero((operations == LIKE) | (operations == NOT_LIKE))
        distinct, places = np.unique(attributes[steps] << 32 | patterns[steps], return_inverse=True)
        counts = np.bincount(distinct >> 32, minlength=len(self.attributes))
        numbers = np.full(len(operations), -1, np.int32)
        numbers[steps] = places - (np.cumsum(counts) - counts)[attributes[steps]]
        return numbers, counts

    @cached_property
    def crowded_patterns(self) -> list[int]:
        """Attributes with at least `CROWDED` residuals with LIKE in some leaf. O(entries x log), once."""
        tables = self.tables
        numbers, _ = self.like_patterns
        steps = np.flatnonzero(numbers >= 0)
        if len(steps) < CROWDED:
            return []
        of_program = np.full(len(tables.step_first) - 1, -1, np.int64)
        of_program[np.searchsorted(tables.step_first, steps, side="right") - 1] = tables.step[steps, 1]
        of_term = of_program[tables.term_program]
        terms = np.flatnonzero(of_term >= 0)
        of_residual = np.full(len(tables.term_first) - 1, -1, np.int64)
        of_residual[np.searchsorted(tables.term_first, terms, side="right") - 1] = of_term[terms]
        entries = np.flatnonzero(tables.entry_residual >= 0)
        entries = entries[of_residual[tables.entry_residual[entries]] >= 0]
        leaves = np.searchsorted(tables.entry_first[tables.group_first], entries, side="right") - 1
        pairs = distinct_values(leaves << 32 | tables.entry_residual[entries])
        asked = (pairs >> 32) * len(self.attributes) + of_residual[pairs & 0xFFFFFFFF]
        leaf_attributes, counts = np.unique(asked, return_counts=True)
        return np.unique(leaf_attributes[counts >= CROWDED] % len(self.attributes)).tolist()  # type: ignore[no-any-return]

    @cached_property
    def scan_terms(self) -> tuple[Array, int]:
        """Numbers of equal terms in the residuals of the scan list: int32[terms], a number for each term that
        occurs several times, else -1; and the count of numbers. Without such residuals, int32[0].
        """
        tables = self.tables
        residuals = distinct_values(tables.entry_residual[: tables.entry_first[tables.group_first[1]]])
        residuals = residuals[residuals >= 0]
        if not len(residuals):
            return np.zeros(0, np.int32), 0
        terms = np.concatenate([np.arange(tables.term_first[n], tables.term_first[n + 1]) for n in residuals])
        keys = tables.term_program[terms].astype(np.int64) << 1 | tables.term_wanted[terms] & 1
        _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
        several = counts > 1
        numbers = np.full(len(tables.term_program), -1, np.int32)
        numbers[terms] = np.where(several, np.cumsum(several) - 1, -1)[places]
        return numbers, int(several.sum())

    @cached_property
    def single_terms(self) -> tuple[Array, Array, Array]:
        """Arrays by which `judge` runs program i as residual i: int32[programs + 1], counting from 0, stands
        for ``entry_residual``, ``term_first`` and ``term_program``; uint8[programs] of ones or zeros for
        ``term_wanted``.
        """
        programs = len(self.tables.step_first) - 1
        return (
            as_array("term_first", np.arange(programs + 1)),
            as_array("term_wanted", np.ones(programs)),
            as_array("term_wanted", np.zeros(programs)),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.tables) + int(self.removed.nbytes)
