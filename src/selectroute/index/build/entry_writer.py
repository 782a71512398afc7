"""Writer of a segment's entries: the keys of each clause, its range, and the residual to judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Attribute, Segment
from selectroute.clauses.access import Equalities, Key, prefixed, scan_reason
from selectroute.clauses.predicate import Clause, Literal
from selectroute.index.build.compile_residual import Programs
from selectroute.index.build.dictionary import AttributeCodes, dictionary_tables
from selectroute.index.build.entry_columns import ENTRY_TYPES, Entries
from selectroute.index.build.layout import lay_out
from selectroute.index.plan.access_key import SCAN, Attributes, file_clause
from selectroute.index.plan.cost import CostPlan
from selectroute.index.plan.sort_range import bound_of, chosen_range, name_of


class FiledEntry(NamedTuple):
    """Filing of a clause: path, keys, the shape of its entries, its range, and the residual literals."""

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
    """Collector of the entries of a segment, clause by clause, with their constants and programs."""

    plan: CostPlan
    attributes: AttributeCodes = field(default_factory=AttributeCodes)
    tuples: dict[Attributes, int] = field(default_factory=lambda: {SCAN: 0})
    scanned: Counter[str] = field(default_factory=Counter)
    ranged: set[int] = field(default_factory=set)
    checks_names: bool = False
    programs: Programs = field(init=False)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    """Entries one by one, with the fields of `Entries`."""
    blocks: list[Entries] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = Programs(self.attributes)

    def place(self, clause: Clause, found: Equalities, clauses: int) -> FiledEntry:
        """Return the filing of a clause, the same for all clauses that only differ in constants.

        ``clauses`` is the number of clauses of the subscription.
        """
        path = self.plan.path(found, clauses)
        self.checks_names = self.checks_names or clause.valid_names
        filed = file_clause("", clause, found, path)
        attributes = tuple(self.attributes.number(name) for name in path)
        flags = (t.REPEATED if clauses > 1 else 0) | (t.VALID_NAMES if clause.valid_names else 0)
        attribute, rest = 0, filed.residual
        ranged = high = None
        chosen = chosen_range(rest)
        if chosen is not None:
            ranged, high, range_flags = chosen
            rest = tuple(literal for literal in rest if literal is not ranged and literal is not high)
            attribute = self.attributes.number(name_of(ranged))
            self.ranged.add(attribute)
            flags |= range_flags
        if rest:
            flags |= t.RESIDUAL
        number = self.tuples.setdefault(path, len(self.tuples))
        shape = attribute << t.FLAG_BITS | flags
        return FiledEntry(number, path, attributes, filed.keys, shape, ranged, high, rest)

    def count_scanned(
        self, clause: Clause, placed: FiledEntry, rest: Sequence[Literal], count: int = 1
    ) -> None:
        """Count clauses on the scan list; `rest` are their residual literals."""
        if placed.path == SCAN and not prefixed(rest):
            self.scanned[scan_reason(clause)] += count

    def add(self, ordinal: int, clause: Clause, found: Equalities, clauses: int) -> None:
        """Add an entry for each combination of the clause's keys; a message finds at most one entry."""
        placed = self.place(clause, found, clauses)
        self.count_scanned(clause, placed, placed.rest)
        key_codes = [
            [self.attributes.code(attribute, key) for key in keys]
            for attribute, keys in zip(placed.attributes, placed.keys, strict=True)
        ]
        bound = 0 if placed.ranged is None else bound_of(placed.ranged)
        high = 0 if placed.high is None else bound_of(placed.high)
        residual = self.programs.residual(placed.rest) if placed.rest else -1
        for codes in product(*key_codes):
            first, second = (*codes, 0, 0)[:2]
            code = first << 32 | second
            self.rows.append((placed.tuple_, code, placed.shape, bound, residual, ordinal, high))

    def segment(self, rows: int) -> Segment:
        """Return the entries as a segment of ``rows`` subscriptions."""
        columns = np.array(self.rows, np.int64).reshape(-1, len(ENTRY_TYPES)).T
        single = Entries(*(one.astype(kind) for one, kind in zip(columns, ENTRY_TYPES, strict=True)))
        entries = Entries(*map(np.concatenate, zip(single, *self.blocks, strict=True)))
        self.blocks.clear()
        tuples = [[self.attributes.numbers[name] for name in path] for path in self.tuples if path]
        others = {**self.programs.arrays(), **dictionary_tables(self.attributes.dictionaries)}
        lanes = self.programs.lanes | self.ranged
        attributes = tuple(
            Attribute(
                name=name,
                codes=number in self.attributes.coded,
                values=number in lanes,
                byte_strings=number not in self.attributes.plain,
            )
            for name, number in self.attributes.numbers.items()
        )
        return Segment(
            tables=lay_out(entries, tuples, others),
            attributes=attributes,
            depth=self.programs.depth,
            checks_names=self.checks_names,
            scanned=dict(self.scanned),
            rows=rows,
        )
