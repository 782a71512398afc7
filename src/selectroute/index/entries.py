"""Clauses to the entries of a segment: the keys each is filed under, its range, and what is left to judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from selectroute.clauses.access import Equalities, Key, prefixed, scan_reason
from selectroute.clauses.predicate import Clause, Literal
from selectroute.index import tables as t
from selectroute.index.cost import CostPlan
from selectroute.index.dictionary import Dictionary, dictionary_tables
from selectroute.index.entry_columns import Entries, joined
from selectroute.index.index import file_clause
from selectroute.index.layout import lay_out
from selectroute.index.plan import SCAN, Attributes
from selectroute.index.program import Programs
from selectroute.index.ranges import bound_of, chosen_range, name_of
from selectroute.index.segment import Attribute, Segment


class Placed(NamedTuple):
    """Where a clause is filed: path, keys, the shape of its entries, its range, and what is left to judge."""

    tuple_: int
    path: Attributes
    attributes: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    shape: int
    ranged: Literal | None
    high: Literal | None
    rest: tuple[Literal, ...]


@dataclass(slots=True)
class Writer:
    """Collects the entries of a segment, clause by clause, with the constants and programs that they need."""

    plan: CostPlan
    attributes: dict[str, int] = field(default_factory=dict)
    dictionaries: list[Dictionary] = field(default_factory=list)
    tuples: dict[Attributes, int] = field(default_factory=lambda: {SCAN: 0})
    scanned: Counter[str] = field(default_factory=Counter)
    ranged: set[int] = field(default_factory=set)
    coded: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)  # read by a dialect without byte strings
    byte_strings: bool = False  # the dialect of the subscription that is being added has them
    checks_names: bool = False
    programs: Programs = field(init=False)
    # the columns of the entries
    tuple_: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    residual: list[int] = field(default_factory=list)
    ordinal: list[int] = field(default_factory=list)
    blocks: list[Entries] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = Programs(self.attribute, self.code)

    def attribute(self, name: str) -> int:
        """The number of an attribute, a new one if it has none yet."""
        number = self.attributes.setdefault(name, len(self.attributes))
        if number == len(self.dictionaries):
            self.dictionaries.append(Dictionary())
        if not self.byte_strings:
            self.plain.add(number)
        return number

    def code(self, attribute: int, key: Key) -> int:
        """The code of a key, a new one if it has none yet."""
        self.coded.add(attribute)
        return self.dictionaries[attribute].code(key)

    def key_column(self, attribute: int, keys: pa.Array) -> t.Array:
        """The codes of distinct strings, int32; single keys of the attribute come before."""
        self.coded.add(attribute)
        return self.dictionaries[attribute].add_column(keys)

    def place(self, clause: Clause, found: Equalities, clauses: int) -> Placed:
        """Say where a clause is filed, and all that differ from it in their constants only.

        ``clauses`` is how many the subscription has.
        """
        path = self.plan.path(found, clauses)
        self.checks_names = self.checks_names or clause.valid_names
        filed = file_clause("", clause, found, path)
        attributes = tuple(self.attribute(name) for name in path)
        flags = (t.REPEATED if clauses > 1 else 0) | (t.VALID_NAMES if clause.valid_names else 0)
        attribute, rest = 0, filed.residual
        ranged = high = None
        chosen = chosen_range(rest)
        if chosen is not None:
            ranged, high, range_flags = chosen
            rest = tuple(literal for literal in rest if literal is not ranged and literal is not high)
            attribute = self.attribute(name_of(ranged))
            self.ranged.add(attribute)
            flags |= range_flags
        if rest:
            flags |= t.RESIDUAL
        number = self.tuples.setdefault(path, len(self.tuples))
        shape = attribute << t.FLAG_BITS | flags
        return Placed(number, path, attributes, filed.keys, shape, ranged, high, rest)

    def count_scanned(self, clause: Clause, placed: Placed, rest: Sequence[Literal], count: int = 1) -> None:
        """Count clauses that every message visits; `rest` is what they leave to judge."""
        if placed.path == SCAN and not prefixed(rest):
            self.scanned[scan_reason(clause)] += count

    def add(self, ordinal: int, clause: Clause, found: Equalities, clauses: int) -> None:
        """One entry for each combination of the clause's keys; a message finds at most one of them."""
        placed = self.place(clause, found, clauses)
        self.count_scanned(clause, placed, placed.rest)
        key_codes = [
            [self.code(attribute, key) for key in keys]
            for attribute, keys in zip(placed.attributes, placed.keys, strict=True)
        ]
        bound = 0 if placed.ranged is None else bound_of(placed.ranged)
        high = 0 if placed.high is None else bound_of(placed.high)
        residual = self.programs.residual(placed.rest) if placed.rest else -1
        for codes in product(*key_codes):
            first, second = (*codes, 0, 0)[:2]
            self.tuple_.append(placed.tuple_)
            self.codes.append(first << 32 | second)
            self.shape.append(placed.shape)
            self.bound.append(bound)
            self.high.append(high)
            self.residual.append(residual)
            self.ordinal.append(ordinal)

    def add_entries(self, entries: Entries) -> None:
        """Add entries that were made as columns."""
        self.blocks.append(entries)

    def segment(self, rows: int) -> Segment:
        """Lay the entries out: a segment of ``rows`` subscriptions."""
        single = Entries(
            tuple_=np.array(self.tuple_, np.int64),
            codes=np.array(self.codes, np.uint64),
            shape=np.array(self.shape, np.int64),
            bound=np.array(self.bound, np.int64),
            residual=np.array(self.residual, np.int32),
            ordinal=np.array(self.ordinal, np.int32),
            high=np.array(self.high, np.int64),
        )
        entries = joined([single, *self.blocks])
        self.blocks.clear()
        tuples = [[self.attributes[name] for name in path] for path in self.tuples if path]
        others = {**self.programs.arrays(), **dictionary_tables(self.dictionaries)}
        lanes = self.programs.lanes | self.ranged
        attributes = tuple(
            Attribute(
                name=name,
                codes=number in self.coded,
                values=number in lanes,
                byte_strings=number not in self.plain,
            )
            for name, number in self.attributes.items()
        )
        return Segment(
            tables=lay_out(entries, tuples, others),
            attributes=attributes,
            depth=self.programs.depth,
            checks_names=self.checks_names,
            scanned=dict(self.scanned),
            rows=rows,
        )
