"""The mutable index to the flat arrays of a snapshot.

Access keys are planned afresh from the final statistics; entries are sorted once, as columns, so that the
entries of a leaf are contiguous, within it those of a group, and within that the bounds ascend.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np
import pyarrow as pa

from selectroute.clauses.access import Equalities, Key, equalities, scan_reason
from selectroute.clauses.predicate import Clause, Literal, Test
from selectroute.index import tables as t
from selectroute.index.collector import paused_collector
from selectroute.index.dictionary import Dictionary, dictionary_tables, open_addressing
from selectroute.index.index import Index, file_clause
from selectroute.index.plan import MAX_PAIRS, SCAN, Attributes, Plan
from selectroute.index.program import Programs, bits_of
from selectroute.index.snapshot import Attribute, Snapshot
from selectroute.selector.dialect import dialect
from selectroute.selector.truth import VOID
from selectroute.selector.values import Float, Long, Number

PAIR_MULTIPLIER = 0x9E3779B97F4A7C15
"""Spreads a pair of codes over the slots of its hash table; the kernel computes the same."""


def freeze(index: Index, revision: int | None = None) -> Snapshot:
    """Flatten an index. Ordinals follow its order. O(total size of the selectors)."""
    with paused_collector():
        return _freeze(index, revision)


def _freeze(index: Index, revision: int | None) -> Snapshot:
    writer = _write(index, Plan(index.statistics, limit=None))
    if len(writer.pairs) > MAX_PAIRS:
        # Rare: so many shapes of selectors that the pairs of the fewest must share those of the others.
        writer = _write(index, Plan.of_commonest(index.statistics, writer.pairs))
    subscriptions = list(index)
    ids = pa.table(
        {
            "id": pa.array([s.id for s in subscriptions], pa.string()),
            "destination": pa.nulls(len(subscriptions), pa.string()),
            "topic": pa.array([s.topic for s in subscriptions], pa.string()),
            "selector": pa.array([s.selector for s in subscriptions], pa.string()),
            "dialect": pa.array([s.dialect for s in subscriptions], pa.string()),
            "seltype": pa.array([s.seltype for s in subscriptions], pa.string()),
        }
    )
    tables, attributes, depth = writer.finish()
    return Snapshot(tables, attributes, depth, writer.checks_names, dict(writer.scanned), ids, revision)


def _write(index: Index, plan: Plan) -> _Writer:
    writer = _Writer(plan)
    for ordinal, subscription in enumerate(index):
        writer.byte_strings = dialect(subscription.dialect).byte_strings
        entries = []
        for clause in subscription.clauses:
            found = equalities(clause)
            if found.satisfiable:
                entries.append((clause, found))
        for clause, found in entries:
            writer.add(ordinal, clause, found, len(entries))
    return writer


@dataclass(slots=True)
class _Writer:
    plan: Plan
    attributes: dict[str, int] = field(default_factory=dict)
    dictionaries: list[Dictionary] = field(default_factory=list)
    tuples: dict[Attributes, int] = field(default_factory=lambda: {SCAN: 0})
    pairs: Counter[Attributes] = field(default_factory=Counter)
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
    residual: list[int] = field(default_factory=list)
    ordinal: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.programs = Programs(self.attribute, self.code)

    def attribute(self, name: str) -> int:
        number = self.attributes.setdefault(name, len(self.attributes))
        if number == len(self.dictionaries):
            self.dictionaries.append(Dictionary())
        if not self.byte_strings:
            self.plain.add(number)
        return number

    def code(self, attribute: int, key: Key) -> int:
        self.coded.add(attribute)
        return self.dictionaries[attribute].code(key)

    def add(self, ordinal: int, clause: Clause, found: Equalities, clauses: int) -> None:
        """One entry for each combination of the clause's keys; a message finds at most one of them."""
        path = self.plan.path(found, clauses)
        self.checks_names = self.checks_names or clause.valid_names
        filed = file_clause("", clause, found, path)
        if len(path) == 2:
            self.pairs[path] += 1
        if path == SCAN:
            self.scanned[scan_reason(clause)] += 1
        attributes = [self.attribute(name) for name in path]
        key_codes = [
            [self.code(attribute, key) for key in keys]
            for attribute, keys in zip(attributes, filed.keys, strict=True)
        ]
        flags = (t.REPEATED if clauses > 1 else 0) | (t.VALID_NAMES if clause.valid_names else 0)
        attribute, bound, rest = 0, 0, filed.residual
        ranged = next((literal for literal in rest if _is_range(literal)), None)
        if ranged is not None:
            predicate = ranged.predicate
            assert isinstance(predicate, Test) and isinstance(predicate.constant, Number)
            rest = tuple(literal for literal in rest if literal is not ranged)
            attribute = self.attribute(predicate.name)
            self.ranged.add(attribute)
            bound = bits_of(predicate.constant)[1]
            flags |= t.SORTED | t.RANGE_OPERATORS.index(predicate.op) << t.OPERATOR_SHIFT
            flags |= _bound_kind(predicate.constant) << t.BOUND_SHIFT
            flags |= t.WANTED if ranged.wanted else 0
            flags |= t.STRICT if predicate.dialect.unlike_types is VOID else 0
        residual = -1
        if rest:
            flags |= t.RESIDUAL
            residual = self.programs.residual(rest)
        number = self.tuples.setdefault(path, len(self.tuples))
        for codes in product(*key_codes):
            first, second = (*codes, 0, 0)[:2]
            self.tuple_.append(number)
            self.codes.append(first << 32 | second)
            self.shape.append(attribute << t.FLAG_BITS | flags)
            self.bound.append(bound)
            self.residual.append(residual)
            self.ordinal.append(ordinal)

    def finish(self) -> tuple[t.Tables, tuple[Attribute, ...], int]:
        """Sort the entries into leaves and groups, and lay down all arrays."""
        tuple_ = np.array(self.tuple_, np.int64)
        codes = np.array(self.codes, np.uint64)
        shape = np.array(self.shape, np.int64)
        bound = np.array(self.bound, np.int64)
        residual = np.array(self.residual, np.int32)
        # Equal residuals are neighbours where no bound orders the entries, and are then judged once.
        order = np.lexsort((residual, _ascending(bound, shape), shape, codes, tuple_))
        tuple_, codes, shape, bound = tuple_[order], codes[order], shape[order], bound[order]
        new_leaf = _changes(tuple_, codes)
        new_group = new_leaf | _changes(shape)
        leaf_starts, group_starts = np.flatnonzero(new_leaf), np.flatnonzero(new_group)
        groups_before = np.searchsorted(group_starts, leaf_starts)
        # Leaf 0 is the scan list, with or without entries: tuple 0 sorts first where it has any.
        scan = len(tuple_) > 0 and tuple_[0] == 0
        group_first = np.concatenate(
            (groups_before if scan else np.r_[0, groups_before], [len(group_starts)])
        )
        keyed = leaf_starts[1:] if scan else leaf_starts
        names = list(self.attributes)
        used = [[self.attributes[name] for name in path] for path in self.tuples if path]
        slots = _slots(tuple_[keyed], codes[keyed], len(used))
        arrays: dict[str, object] = {
            "tuple_attributes": [(*attributes, -1, -1)[:2] for attributes in used],
            **slots,
            "group_first": group_first,
            "group_flags": shape[group_starts] & (1 << t.FLAG_BITS) - 1,
            "group_attribute": shape[group_starts] >> t.FLAG_BITS,
            "entry_first": np.concatenate((group_starts, [len(order)])),
            "entry_bound": bound,
            "entry_residual": residual[order],
            "entry_ordinal": np.array(self.ordinal, np.int32)[order],
            **self.programs.arrays(),
            **dictionary_tables(self.dictionaries),
        }
        finished = t.Tables(**{name: t.as_array(name, value) for name, value in arrays.items()})
        lanes = self.programs.lanes | self.ranged
        attributes = tuple(
            Attribute(
                name=name,
                codes=number in self.coded,
                values=number in lanes,
                byte_strings=number not in self.plain,
            )
            for number, name in enumerate(names)
        )
        return finished, attributes, self.programs.depth


def _is_range(literal: Literal) -> bool:
    predicate = literal.predicate
    return (
        isinstance(predicate, Test)
        and predicate.op in t.RANGE_OPERATORS
        and isinstance(predicate.constant, Number)
    )


def _bound_kind(constant: Number) -> int:
    if isinstance(constant, Long):
        return t.BOUND_LONG
    return t.BOUND_FLOAT if isinstance(constant, Float) else t.BOUND_DOUBLE


def _ascending(bound: t.Array, shape: t.Array) -> t.Array:
    """Keys that sort bounds by value: of a double's bits, those of negative numbers are turned over."""
    floating = shape >> t.BOUND_SHIFT & 3 != t.BOUND_LONG
    return np.where(floating & (bound < 0), bound ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), bound)


def _changes(*columns: t.Array) -> t.Array:
    """True where a row differs from the row before, and at the first."""
    result = np.zeros(len(columns[0]), np.bool_)
    result[:1] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def _slots(tuple_: t.Array, codes: t.Array, tuples: int) -> dict[str, t.Array]:
    """The hash tables of all tuples; leaf i + 1 is row i, because leaf 0 is the scan list."""
    first, slot_codes, slot_leaf = [0], [], []
    bounds = np.searchsorted(tuple_, np.arange(1, tuples + 2))
    for start, end in pairwise(bounds):
        table = open_addressing(pair_hash(codes[start:end]))
        slot_codes.append(np.where(table >= 0, codes[start:end][table], np.uint64(0)))
        slot_leaf.append(np.where(table >= 0, table + start + 1, -1))
        first.append(first[-1] + len(table))
    return {
        "slot_first": np.array(first),
        "slot_codes": np.concatenate(slot_codes) if slot_codes else np.zeros(0),
        "slot_leaf": np.concatenate(slot_leaf) if slot_leaf else np.zeros(0),
    }


def pair_hash(codes: t.Array) -> t.Array:
    """The hashes of packed pairs of codes."""
    product_ = codes * np.uint64(PAIR_MULTIPLIER)
    hashed: t.Array = product_ ^ product_ >> np.uint64(32)
    return hashed
