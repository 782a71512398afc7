"""Filing of subscriptions as entries: the keys of each clause, its range, and the residual to judge.

Groups of one shape are filed column by column, others one by one. Entries are columns until they are laid
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.arrays.rows import changes
from selectroute.arrays.segment import Attribute, Segment
from selectroute.clauses.access import Equalities, Key, equalities, literal_keys, prefixed, scan_reason
from selectroute.clauses.predicate import Clause, ClauseLiteral, Test
from selectroute.index.compile.cost_plan import CostPlan, Preference, preference_of
from selectroute.index.compile.dictionary import AttributeCodes, dictionary_tables
from selectroute.index.compile.entries import ENTRY_TYPES, Entries
from selectroute.index.compile.keys import SCAN, Attributes, KeyStatistics, file_clause
from selectroute.index.compile.layout import lay_out
from selectroute.index.compile.residuals import Programs, bits_of
from selectroute.index.compile.shapes import ShapeGroup, Slot
from selectroute.index.specification import IndexedSubscription
from selectroute.selector.dialect import dialect
from selectroute.selector.values import VOID, Float, Long, Number, Value


class Placement(NamedTuple):
    """Filing of a clause: path, keys, the shape of its entries, its range, and the residual literals."""

    tuple_: int
    path: Attributes
    attributes: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    shape: int
    ranged: ClauseLiteral | None
    high: ClauseLiteral | None
    rest: tuple[ClauseLiteral, ...]


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

    def place(self, clause: Clause, equal: Equalities, clauses: int) -> Placement:
        """Return the filing of a clause, the same for all clauses that only differ in constants.

        ``clauses`` is the number of clauses of the subscription.
        """
        path = self.plan.path(equal, clauses)
        self.checks_names = self.checks_names or clause.valid_names
        filed = file_clause("", clause, equal, path)
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
        return Placement(number, path, attributes, filed.keys, shape, ranged, high, rest)

    def count_scanned(
        self, clause: Clause, placed: Placement, rest: Sequence[ClauseLiteral], count: int = 1
    ) -> None:
        """Count clauses on the scan list; `rest` are their residual literals."""
        if placed.path == SCAN and not prefixed(rest):
            self.scanned[scan_reason(clause)] += count

    def add(self, ordinal: int, clause: Clause, equal: Equalities, clauses: int) -> None:
        """Add an entry for each combination of the clause's keys; a message finds at most one entry."""
        placed = self.place(clause, equal, clauses)
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
        single = Entries(*(column.astype(kind) for column, kind in zip(columns, ENTRY_TYPES, strict=True)))
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


Keys: TypeAlias = Sequence[t.Array] | Sequence[int]
"""Codes of an attribute's keys: a column for each, or one number if all rows have the same."""


class _FiledGroup(NamedTuple):
    """Clause of a group, with the equalities under which it can be filed."""

    group: ShapeGroup
    clause: Clause
    equalities: Equalities
    clauses: int


def file_groups(groups: Iterable[ShapeGroup], singles: Iterable[tuple[int, IndexedSubscription]]) -> Writer:
    """Return a writer with the entries of all subscriptions; ``singles`` are (ordinal, subscription)."""
    filed = list(_clauses(groups))
    keys = _KeyColumns(filed)
    statistics = KeyStatistics()
    keys.count(statistics)
    alone = [(row, subscription.dialect, _satisfiable(subscription.clauses)) for row, subscription in singles]
    preferences: Counter[Preference] = Counter()
    for group, _, equal, clauses in filed:
        preferences[preference_of(equal, clauses)] += len(group.ordinals)
    for _, _, entries in alone:
        for _, equal in entries:
            statistics.add(equal)
            preferences[preference_of(equal, len(entries))] += 1
    writer = Writer(CostPlan(statistics, preferences))
    for row, name, entries in alone:
        writer.attributes.byte_strings = dialect(name).byte_strings
        for clause, equal in entries:
            writer.add(row, clause, equal, len(entries))
    placed: list[tuple[_FiledGroup, Placement, t.Array | int]] = []
    for filed_group in filed:
        writer.attributes.byte_strings = dialect(filed_group.group.dialect).byte_strings
        place = writer.place(filed_group.clause, filed_group.equalities, filed_group.clauses)
        placed.append((filed_group, place, _residuals(writer, filed_group, place)))
    codes = keys.encode(writer, [(filed_group, place) for filed_group, place, _ in placed])
    for (filed_group, place, residual), of_keys in zip(placed, codes, strict=True):
        for entries_ in _entries(filed_group.group, place, residual, of_keys):
            writer.blocks.append(entries_)
    return writer


def _clauses(groups: Iterable[ShapeGroup]) -> Iterator[_FiledGroup]:
    for group in groups:
        kept = _satisfiable(group.template.clauses)
        for clause, keys in kept:
            yield _FiledGroup(group, clause, keys, len(kept))


def _satisfiable(clauses: Iterable[Clause]) -> list[tuple[Clause, Equalities]]:
    """Return the satisfiable clauses, with the equalities under which they can be filed."""
    filable = [(clause, equalities(clause)) for clause in clauses]
    return [(clause, keys) for clause, keys in filable if keys.satisfiable]


class _KeyColumns:
    """Keys of the groups' equalities, column by column, and their codes."""

    def __init__(self, filed: list[_FiledGroup]) -> None:
        self._distinct: dict[str, pa.Array] = {}
        self._numbers: dict[str, t.Array] = {}
        self._indices: dict[tuple[str, int, Slot], t.Array] = {}
        self._fixed: Counter[tuple[str, Key]] = Counter()
        strings: dict[str, dict[tuple[int, Slot], pa.Array]] = {}
        numbers: dict[str, dict[tuple[int, Slot], t.Array]] = {}
        for group, clause, equal, _ in filed:
            for literal in clause.literals:
                keys = literal_keys(literal)
                if keys is None:
                    continue
                slots = group.template.slots_of(literal)
                for slot in slots:
                    place = (id(group), slot)
                    column = group.slots[slot.number]
                    if isinstance(column, pa.Array):
                        strings.setdefault(keys.attribute, {})[place] = column
                    else:
                        numbers.setdefault(keys.attribute, {})[place] = (
                            group.numbers(slot).astype(np.float64) + 0.0
                        )
                if not slots:
                    for key in equal.keys[keys.attribute]:
                        self._fixed[keys.attribute, key] += len(group.ordinals)
        for name, columns in strings.items():
            joined = pa.concat_arrays(list(columns.values())).dictionary_encode()
            self._distinct[name] = joined.dictionary
            self._split(name, columns, joined.indices.to_numpy())
        for name, columns_ in numbers.items():
            self._numbers[name], joined_ = np.unique(
                np.concatenate(list(columns_.values())), return_inverse=True
            )
            self._split(name, columns_, joined_)

    def _split(self, name: str, columns: dict[tuple[int, Slot], Any], joined: t.Array) -> None:
        start = 0
        for (group, slot), column in columns.items():
            self._indices[name, group, slot] = joined[start : start + len(column)]
            start += len(column)

    def count(self, statistics: KeyStatistics) -> None:
        """Add the number of clauses with each key to the statistics."""
        totals: dict[str, list[t.Array]] = {}
        for (name, _, _), indices in self._indices.items():
            totals.setdefault(name, []).append(indices)
        for name, all_ in totals.items():
            counts = np.bincount(np.concatenate(all_))
            statistics.add_column(name, int(counts.sum()), int((counts.astype(np.float64) ** 2).sum()))
        for (name, _), count in self._fixed.items():
            statistics.add_column(name, count, count * count)

    def encode(self, writer: Writer, placed: list[tuple[_FiledGroup, Placement]]) -> list[list[Keys]]:
        """Return the codes of the keys for each clause and each attribute of its path."""
        used = {name for _, place in placed for name in place.path}
        # In each attribute, single keys get codes before columns.
        fixed = [
            [
                [] if self._slots(filed, name) else [writer.attributes.code(attribute, key) for key in keys]
                for name, attribute, keys in zip(place.path, place.attributes, place.keys, strict=True)
            ]
            for filed, place in placed
        ]
        codes: dict[tuple[str, bool], t.Array] = {}
        for name in used & self._numbers.keys():
            attribute = writer.attributes.numbers[name]
            numeric = [writer.attributes.code(attribute, key) for key in self._numbers[name].tolist()]
            codes[name, False] = np.array(numeric, np.int32)
        for name in used & self._distinct.keys():
            codes[name, True] = writer.attributes.column(
                writer.attributes.numbers[name], self._distinct[name]
            )
        result: list[list[Keys]] = []
        for (filed, place), single in zip(placed, fixed, strict=True):
            of_clause: list[Keys] = []
            for name, of_all in zip(place.path, single, strict=True):
                columns = [
                    codes[name, slot.is_string][self._indices[name, id(filed.group), slot]]
                    for slot in self._slots(filed, name)
                ]
                of_clause.append(columns or of_all)
            result.append(of_clause)
        return result

    def _slots(self, filed: _FiledGroup, name: str) -> tuple[Slot, ...]:
        """Return the slots of a clause's equality of an attribute; none if all selectors share the keys."""
        for literal in filed.clause.literals:
            keys = literal_keys(literal)
            if keys is not None and keys.attribute == name:
                return filed.group.template.slots_of(literal)
        raise AssertionError(f"a clause has no equality of {name}")


def _residuals(writer: Writer, filed: _FiledGroup, place: Placement) -> t.Array | int:
    """Return the residual of each subscription of a group; one number if all have the same."""
    group, rest = filed.group, place.rest
    template = group.template
    slots = list(dict.fromkeys(slot for literal in rest for slot in template.slots_of(literal)))
    if not slots:
        writer.count_scanned(filed.clause, place, rest, len(group.ordinals))
        return writer.programs.residual(rest) if rest else -1
    numbers: list[t.Array] = []
    for slot in slots:
        column = group.slots[slot.number]
        if isinstance(column, pa.Array):
            numbers.append(column.dictionary_encode().indices.to_numpy())
        else:
            numbers.append(np.unique(column, return_inverse=True)[1])
    order = np.lexsort(numbers)
    new = changes(*(column[order] for column in numbers))
    starts = np.flatnonzero(new)
    made = np.empty(len(starts), np.int32)
    counts = np.diff(starts, append=len(order)).tolist()
    for i, (row, count) in enumerate(zip(order[starts].tolist(), counts, strict=True)):
        values = {slot.number: group.value(slot.number, row) for slot in slots}
        literals = [template.filled(literal, values) for literal in rest]
        writer.count_scanned(filed.clause, place, literals, count)
        made[i] = writer.programs.residual(literals)
    result = np.empty(len(order), np.int32)
    result[order] = made[np.cumsum(new) - 1]
    return result


def _entries(
    group: ShapeGroup, place: Placement, residual: t.Array | int, codes: Sequence[Keys]
) -> Iterator[Entries]:
    """Yield the entries of a clause of a group: one block for each combination of its keys."""
    rows = len(group.ordinals)
    bound, high = (_bounds(group, literal) for literal in (place.ranged, place.high))
    of_first, of_second = (*codes, (0,), (0,))[:2]
    pairs: Iterable[tuple[Any, Any]] = product(of_first, of_second)
    for first, second in pairs:
        packed = _column(first, rows, np.uint64) << np.uint64(32) | _column(second, rows, np.uint64)
        yield Entries(
            tuple_=_column(place.tuple_, rows, np.int64),
            codes=packed,
            shape=_column(place.shape, rows, np.int64),
            bound=_column(bound, rows, np.int64),
            residual=_column(residual, rows, np.int32),
            ordinal=group.ordinals.astype(np.int32),
            high=_column(high, rows, np.int64),
        )


def _bounds(group: ShapeGroup, ranged: ClauseLiteral | None) -> t.Array | int:
    """Return the bounds of a range: a column, or one number for all rows."""
    if ranged is None:
        return 0
    slots = group.template.slots_of(ranged)
    return group.numbers(slots[0]).view(np.int64) if slots else bound_of(ranged)


def _column(values: t.Array | int, rows: int, dtype: type) -> t.Array:
    return np.full(rows, values, dtype) if isinstance(values, int) else values.astype(dtype)


def chosen_range(literals: Sequence[ClauseLiteral]) -> tuple[ClauseLiteral, ClauseLiteral | None, int] | None:
    """Return the range to sort by, if there is one; an upper end of the same attribute; and both flags.

    An interval narrows down more than one end, so a pair is preferred. O(ranges²), which are few.
    """
    ranges = [literal for literal in literals if _constant(literal) is not None]
    for low in ranges:
        if _is_upper(low):
            continue
        for high in ranges:
            if _is_upper(high) and name_of(low) == name_of(high) and _alike(low, high):
                return low, high, _flags(low) | t.INTERVAL | (t.EXCLUSIVE if _is_exclusive(high) else 0)
    return (ranges[0], None, _flags(ranges[0])) if ranges else None


def bound_of(ranged: ClauseLiteral) -> int:
    """Return the bound of a range, as in `Tables`."""
    constant = _constant(ranged)
    assert constant is not None
    return bits_of(constant)[1]


def _constant(literal: ClauseLiteral) -> Value | None:
    """Return the bound of a literal that is a range."""
    predicate = literal.predicate
    if isinstance(predicate, Test) and predicate.op in t.RANGE_OPERATORS:
        return predicate.constant if isinstance(predicate.constant, Number) else None
    return None


def _test(ranged: ClauseLiteral) -> Test:
    assert isinstance(ranged.predicate, Test)
    return ranged.predicate


def name_of(ranged: ClauseLiteral) -> str:
    """Return the attribute of a range."""
    return _test(ranged).name


def _is_upper(ranged: ClauseLiteral) -> bool:
    """Return whether the values that satisfy a range are below its bound."""
    return (_test(ranged).op in ("<", "<=")) is ranged.wanted


def _is_exclusive(ranged: ClauseLiteral) -> bool:
    """Return whether the bound itself does not satisfy the range."""
    return (_test(ranged).op in ("<", ">")) is ranged.wanted


def _alike(low: ClauseLiteral, high: ClauseLiteral) -> bool:
    """Return whether two ranges compare in the same way, and hold for the same values except for the bounds.

    For values of another type, and NaN, a range wanted FALSE holds and one wanted TRUE does not.
    """
    return low.wanted is high.wanted and (_flags(low) ^ _flags(high)) & ~(3 << t.OPERATOR_SHIFT) == 0


def _flags(ranged: ClauseLiteral) -> int:
    test, constant = _test(ranged), _constant(ranged)
    kind = t.BOUND_LONG if isinstance(constant, Long) else t.BOUND_DOUBLE
    if isinstance(constant, Float):
        kind = t.BOUND_FLOAT
    return (
        t.SORTED
        | t.RANGE_OPERATORS.index(test.op) << t.OPERATOR_SHIFT
        | kind << t.BOUND_SHIFT
        | (t.WANTED if ranged.wanted else 0)
        | (t.STRICT if test.dialect.unlike_types is VOID else 0)
    )
