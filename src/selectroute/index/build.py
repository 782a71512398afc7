"""Many subscriptions at once to a snapshot, without an index between.

Subscriptions are taken apart by the shape of their selectors (see ``shapes``). A shape that many have is
parsed once; its literals are columns, and so are the keys, bounds and ordinals of its entries. What is left,
rare shapes and those where more than the shape decides, is read one by one, as ``Index.add`` would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.clauses.access import LARGE_FLOAT, Equalities, Key, equalities, literal_keys
from selectroute.clauses.predicate import Clause, Literal, OneOf
from selectroute.index import tables as t
from selectroute.index.collector import paused_collector
from selectroute.index.entries import Placed, Writer, bound_of
from selectroute.index.errors import DuplicateSubscriptionError, InvalidIdError
from selectroute.index.layout import Entries
from selectroute.index.plan import MAX_PAIRS, Attributes, Plan, Statistics
from selectroute.index.shapes import Kind, Shape, selector_shapes, topic_shapes
from selectroute.index.snapshot import Snapshot
from selectroute.index.subscription import EXTENDED, NONE, STANDARD, Subscription, prepare
from selectroute.index.template import Slot, Template, template_of
from selectroute.selector.dialect import DEFAULT_DIALECT, dialect
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS
from selectroute.selector.values import Double, Long, Value

COLUMNS: Final = {
    name: pa.string() for name in ("id", "destination", "topic", "selector", "dialect", "seltype")
}
"""The columns of subscriptions, and of ``Snapshot.subscriptions``."""

FEW: Final = 24
"""Selectors of one shape that are faster read one by one (measured: a shape costs what 20 selectors do)."""

_MAX_TOPIC: Final = 10_240
_ID: Final = r"\A[A-Za-z0-9._-]{1,128}\z"
_NO_TOPIC: Final = "\x05"


class BuildError(SelectRouteError):
    """A subscription that cannot be built; ``row`` counts from 0, and the cause says what is wrong."""

    def __init__(self, row: int, cause: SelectRouteError) -> None:
        self.row = row
        self.cause = cause
        super().__init__(f"subscription {row:,}: {cause}")


def build_snapshot(
    subscriptions: pa.Table | Iterable[tuple[str, str | None, str | None]],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Snapshot:
    """A snapshot of many subscriptions, in their order: what ``Index.add`` and ``freeze`` make, much faster.

    ``subscriptions`` are (id, selector, topic) triples, or a table with the column ``id`` and any of
    ``selector``, ``topic``, ``dialect``, ``seltype`` (EXTENDED, or left to the selector) and ``destination``,
    all strings. ``progress`` is called with the number of subscriptions read so far. O(size of the selectors
    + subscriptions × log subscriptions).

    Raises `BuildError` for the first subscription that ``Index.add`` refuses; its cause is what that raises.

    >>> snapshot = build_snapshot([("s1", "JMSType = 'car'", None), ("s2", "weight > 2500", "cars/+")])
    >>> len(snapshot)
    2
    """
    if not isinstance(subscriptions, pa.Table):
        subscriptions = _table_of(subscriptions)
    with paused_collector():
        return _Build(_normal(subscriptions), progress).snapshot(revision)


def _table_of(triples: Iterable[tuple[str, str | None, str | None]]) -> pa.Table:
    names = ("id", "selector", "topic")
    columns = list(zip(*triples, strict=True)) or [(), (), ()]
    return pa.table(
        {name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)}
    )


def _normal(given: pa.Table) -> pa.Table:
    """All columns in order, each in one piece; no selector is the empty one, no dialect the default."""
    columns: dict[str, pa.Array] = {}
    for name, type_ in COLUMNS.items():
        if name in given.column_names:
            column = given[name].cast(type_)
            columns[name] = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
        else:
            columns[name] = pa.nulls(given.num_rows, type_)
    columns["selector"] = pc.fill_null(columns["selector"], "")
    columns["dialect"] = pc.fill_null(columns["dialect"], DEFAULT_DIALECT)
    return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Group:
    """Subscriptions of one shape: where they are, and the literals of each slot as a column."""

    template: Template
    dialect: str
    ordinals: t.Array
    slots: list[pa.Array | t.Array]  # strings; or int64, float64

    def value(self, slot: Slot, row: int) -> Value:
        """The literal of one subscription, as a constant."""
        column = self.slots[slot.number]
        if isinstance(column, pa.Array):
            text: str = column[row].as_py()
            return text
        sign = -1 if slot.negated else 1
        return (
            Long(int(column[row]) * sign) if column.dtype == np.int64 else Double(float(column[row]) * sign)
        )

    def numbers(self, slot: Slot) -> t.Array:
        """The literals of a slot of numbers, with their signs."""
        column = self.slots[slot.number]
        return -column if slot.negated else column

    def only(self, rows: t.Array) -> _Group:
        """Some of the subscriptions."""
        slots = [
            column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]
            for column in self.slots
        ]
        return replace(self, ordinals=self.ordinals[rows], slots=slots)


class _Filed(NamedTuple):
    """A clause of a group, and what it can be filed under."""

    group: _Group
    clause: Clause
    found: Equalities
    clauses: int


class _Build:
    """One run: reading fills ``_groups`` and ``_single``, and then everything is filed."""

    def __init__(self, subscriptions: pa.Table, progress: Callable[[int], None]) -> None:
        self._table = subscriptions
        self._progress = progress
        self._read = 0
        self._groups: list[_Group] = []
        self._single: dict[int, Subscription] = {}
        self._known: dict[tuple[str, str | None, str, bool], Subscription] = {}
        self._seltype = np.full(len(subscriptions), STANDARD, object)
        self._error: BuildError | None = None

    def snapshot(self, revision: int | None) -> Snapshot:
        self._check_ids()
        self._read_all()
        if self._error is not None:
            raise self._error from self._error.cause
        seltype = pa.array(self._seltype, pa.string())
        table = self._table.set_column(self._table.schema.get_field_index("seltype"), "seltype", seltype)
        return Snapshot((self._filed().segment(len(table)),), table, revision)

    # ---- reading

    def _check_ids(self) -> None:
        ids = self._table["id"].chunk(0)
        valid = pc.fill_null(pc.match_substring_regex(ids, pattern=_ID), False)
        if not pc.all(valid).as_py():
            row = valid.index(False).as_py()
            self._refuse(row, InvalidIdError(ids[row].as_py() or ""))
        if len(pc.unique(ids)) < len(ids):
            seen: set[str] = set()
            for row, one in enumerate(ids.to_pylist()):
                if one in seen:
                    self._refuse(row, DuplicateSubscriptionError(one))
                    break
                seen.add(one)

    def _refuse(self, row: int, cause: SelectRouteError) -> None:
        if self._error is None or row < self._error.row:
            self._error = BuildError(row, cause)

    def _read_all(self) -> None:
        table = self._table
        selectors, topics = table["selector"].chunk(0), table["topic"].chunk(0)
        extended = pc.fill_null(pc.equal(table["seltype"].chunk(0), EXTENDED), False)
        # What lengths are refused is for the reader of single subscriptions to say.
        long = pc.or_(
            pc.greater(pc.utf8_length(selectors), DEFAULT_LIMITS.length),
            pc.greater(pc.fill_null(pc.utf8_length(topics), 0), _MAX_TOPIC),
        )
        alone = pc.or_(extended, long).to_numpy(zero_copy_only=False)
        shapes = pc.binary_join_element_wise(
            table["dialect"].chunk(0),
            pc.fill_null(topic_shapes(topics), _NO_TOPIC),
            selector_shapes(selectors),
            "\x06",
        ).dictionary_encode()
        self._seltype[pc.equal(selectors, "").to_numpy(zero_copy_only=False)] = NONE
        number = shapes.indices.to_numpy().copy()
        number[alone] = len(shapes.dictionary)
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number[order], np.arange(len(shapes.dictionary) + 1))
        left: list[t.Array] = [order[bounds[-1] :]]
        for shape, (start, stop) in enumerate(pairwise(bounds)):
            rows = order[start:stop]
            group = None
            if len(rows) >= FEW:
                group = self._group(shapes.dictionary[shape].as_py(), rows)
            if group is None:
                left.append(rows)
            else:
                left.append(self._take(group))
        for row in np.sort(np.concatenate(left)).tolist():
            self._single_row(row)

    def _group(self, marked: str, rows: t.Array) -> _Group | None:
        """The subscriptions of one shape as a group, if its template can be had."""
        dialect_name, on_topic, text = marked.split("\x06", 2)
        selector = Shape.of_marked(text)
        topic = None if on_topic == _NO_TOPIC else Shape.of_marked(on_topic)
        try:
            template = template_of(selector, topic, dialect_name)
        except SelectRouteError:
            return None
        if template is None:
            return None
        places = pa.array(rows)
        found = selector.slots(self._table["selector"].chunk(0).take(places))
        if topic is not None and found is not None:
            levels = topic.slots(self._table["topic"].chunk(0).take(places))
            found = None if levels is None else found + levels
        if found is None:
            return None
        kinds = (*selector.kinds, *(topic.kinds if topic is not None else ()))
        slots = [_literals(kind, column) for kind, column in zip(kinds, found, strict=True)]
        return _Group(template, dialect_name, rows, slots)

    def _take(self, group: _Group) -> t.Array:
        """Keep a group; return the rows of it that must be read alone after all."""
        alone = np.zeros(len(group.ordinals), np.bool_)
        for clause in group.template.clauses:
            for literal in clause.literals:
                slots = group.template.slots_of(literal)
                if isinstance(literal.predicate, OneOf):
                    for left, right in ((a, b) for i, a in enumerate(slots) for b in slots[:i]):
                        same = pc.equal(group.slots[left.number], group.slots[right.number])
                        alone |= same.to_numpy(zero_copy_only=False)
                elif literal_keys(literal) is not None:
                    for slot in slots:
                        column = group.slots[slot.number]
                        if not isinstance(column, pa.Array):
                            alone |= np.abs(column) >= LARGE_FLOAT  # several keys, or none that is exact
        if alone.any():
            rows = group.ordinals[alone]
            group = group.only(np.flatnonzero(~alone))
        else:
            rows = group.ordinals[:0]
        self._groups.append(group)
        self._advance(len(group.ordinals))
        return rows

    def _single_row(self, row: int) -> None:
        id_, _, topic, selector, name, seltype = (self._table[column][row].as_py() for column in COLUMNS)
        is_extended = seltype == EXTENDED
        twin = self._known.get((selector, topic, name, is_extended))
        try:
            if twin is None:
                twin = prepare(id_, selector, topic, name, is_extended)
                self._known[selector, topic, name, is_extended] = twin
            self._single[row] = twin
            self._seltype[row] = twin.seltype
        except SelectRouteError as error:
            self._refuse(row, error)
        self._advance(1)

    def _advance(self, count: int) -> None:
        before = self._read
        self._read += count
        if before // 10_000 < self._read // 10_000:
            self._progress(self._read)

    # ---- filing

    def _filed(self) -> Writer:
        filed = list(self._clauses())
        keys = _KeyColumns(filed)
        statistics = Statistics()
        keys.count(statistics)
        singles = [(row, one.dialect, _satisfiable(one.clauses)) for row, one in self._single.items()]
        for _, _, entries in singles:
            for _, found in entries:
                statistics.add(found)
        plan = Plan(statistics, limit=None)
        wishes: Counter[Attributes] = Counter()
        for one in filed:
            wishes[plan.path(one.found, one.clauses)] += len(one.group.ordinals)
        for _, _, entries in singles:
            for _, found in entries:
                wishes[plan.path(found, len(entries))] += 1
        pairs: Counter[Attributes] = Counter({path: n for path, n in wishes.items() if len(path) == 2})
        if len(pairs) > MAX_PAIRS:
            plan = Plan.of_commonest(statistics, pairs)
        writer = Writer(plan)
        for row, name, entries in singles:
            writer.byte_strings = dialect(name).byte_strings
            for clause, found in entries:
                writer.add(row, clause, found, len(entries))
        placed: list[tuple[_Filed, Placed, t.Array | int]] = []
        for one in filed:
            writer.byte_strings = dialect(one.group.dialect).byte_strings
            place = writer.place(one.clause, one.found, one.clauses, len(one.group.ordinals))
            placed.append((one, place, _residuals(writer, one.group, place.rest)))
        codes = keys.encode(writer, [(one, place) for one, place, _ in placed])
        for (one, place, residual), of_keys in zip(placed, codes, strict=True):
            for entries_ in _entries(one.group, place, residual, of_keys):
                writer.add_entries(entries_)
        return writer

    def _clauses(self) -> Iterator[_Filed]:
        for group in self._groups:
            kept = _satisfiable(group.template.clauses)
            for clause, keys in kept:
                yield _Filed(group, clause, keys, len(kept))


def _satisfiable(clauses: Iterable[Clause]) -> list[tuple[Clause, Equalities]]:
    """The clauses that some message satisfies, with what they can be filed under."""
    found = [(clause, equalities(clause)) for clause in clauses]
    return [(clause, keys) for clause, keys in found if keys.satisfiable]


def _literals(kind: Kind, texts: pa.Array) -> pa.Array | t.Array:
    """What stands in a slot, as values."""
    match kind:
        case Kind.STRING:
            return pc.replace_substring(pc.utf8_slice_codeunits(texts, 1, -1), pattern="''", replacement="'")
        case Kind.INTEGER:
            return texts.cast(pa.int64()).to_numpy()
        case Kind.DECIMAL:
            return texts.cast(pa.float64()).to_numpy()
        case Kind.LEVEL:
            return texts


class _KeyColumns:
    """The keys of the groups' equalities, column by column, and their codes."""

    def __init__(self, filed: list[_Filed]) -> None:
        self._distinct: dict[str, pa.Array] = {}
        self._numbers: dict[str, t.Array] = {}
        self._indices: dict[tuple[str, int, Slot], t.Array] = {}
        self._fixed: Counter[tuple[str, Key]] = Counter()
        strings: dict[str, dict[tuple[int, Slot], pa.Array]] = {}
        numbers: dict[str, dict[tuple[int, Slot], t.Array]] = {}
        for group, clause, found, _ in filed:
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
                    for key in found.keys[keys.attribute]:
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

    def count(self, statistics: Statistics) -> None:
        """Tell the statistics how many clauses have each key."""
        totals: dict[str, list[t.Array]] = {}
        for (name, _, _), indices in self._indices.items():
            totals.setdefault(name, []).append(indices)
        for name, all_ in totals.items():
            counts = np.bincount(np.concatenate(all_))
            statistics.add_column(name, int(counts.sum()), int((counts.astype(np.float64) ** 2).sum()))
        for (name, _), count in self._fixed.items():
            statistics.add_column(name, count, count * count)

    def encode(self, writer: Writer, placed: list[tuple[_Filed, Placed]]) -> list[list[list[t.Array | int]]]:
        """For each clause, for each attribute of its path, the codes of its keys: columns, or one for all."""
        used = {name for _, place in placed for name in place.path}
        codes: dict[str, t.Array] = {}
        fixed: dict[tuple[int, Key], int] = {}
        for _, place in placed:
            for attribute, keys in zip(place.attributes, place.keys, strict=True):
                for key in keys:
                    if (place.path[place.attributes.index(attribute)], key) in self._fixed:
                        fixed[attribute, key] = writer.code(attribute, key)
        for name in used & self._numbers.keys():
            attribute = writer.attributes[name]
            found = [writer.code(attribute, key) for key in self._numbers[name].tolist()]
            codes[name] = np.array(found, np.int32)
        result: list[list[list[t.Array | int]]] = []
        by_string = {
            name: writer.key_column(writer.attributes[name], self._distinct[name])
            for name in used & self._distinct.keys()
        }
        for one, place in placed:
            of_clause: list[list[t.Array | int]] = []
            for name, attribute, keys in zip(place.path, place.attributes, place.keys, strict=True):
                of_keys: list[t.Array | int] = []
                for key in keys:
                    slot = _slot_of_key(one.group.template, key)
                    if slot is None:
                        of_keys.append(fixed[attribute, key])
                    else:
                        table = by_string if isinstance(key, str) else codes
                        of_keys.append(table[name][self._indices[name, id(one.group), slot]])
                of_clause.append(of_keys)
            result.append(of_clause)
        return result


def _slot_of_key(template: Template, key: Key) -> Slot | None:
    """The slot of which a key is the sample's."""
    if isinstance(key, float):
        return template.slot(Long(int(key))) if key.is_integer() else template.slot(Double(key))
    return template.slot(key) if isinstance(key, str) else None


def _residuals(writer: Writer, group: _Group, rest: tuple[Literal, ...]) -> t.Array | int:
    """The residual of each subscription of a group; one number where they have the same."""
    if not rest:
        return -1
    template = group.template
    slots = list(dict.fromkeys(slot for literal in rest for slot in template.slots_of(literal)))
    if not slots:
        return writer.programs.residual(rest)
    numbers: list[t.Array] = []
    for slot in slots:
        column = group.slots[slot.number]
        if isinstance(column, pa.Array):
            numbers.append(column.dictionary_encode().indices.to_numpy())
        else:
            numbers.append(np.unique(column, return_inverse=True)[1])
    order = np.lexsort(numbers)
    new = np.zeros(len(order), np.bool_)
    new[0] = True
    for column in numbers:
        new[1:] |= np.diff(column[order]) != 0
    first = order[new]
    made = np.empty(len(first), np.int32)
    for i, row in enumerate(first.tolist()):
        literals = [
            template.filled(literal, [group.value(slot, row) for slot in template.slots_of(literal)])
            for literal in rest
        ]
        made[i] = writer.programs.residual(literals)
    result = np.empty(len(order), np.int32)
    result[order] = made[np.cumsum(new) - 1]
    return result


def _entries(
    group: _Group, place: Placed, residual: t.Array | int, codes: list[list[t.Array | int]]
) -> Iterator[Entries]:
    """The entries of a clause of a group: one block for each combination of its keys."""
    rows = len(group.ordinals)
    bound: t.Array | int = 0
    if place.ranged is not None:
        slots = group.template.slots_of(place.ranged)
        bound = group.numbers(slots[0]).view(np.int64) if slots else bound_of(place.ranged)
    for combination in product(*codes):
        first, second = (*combination, 0, 0)[:2]
        packed = _column(first, rows, np.uint64) << np.uint64(32) | _column(second, rows, np.uint64)
        yield Entries(
            tuple_=_column(place.tuple_, rows, np.int64),
            codes=packed,
            shape=_column(place.shape, rows, np.int64),
            bound=_column(bound, rows, np.int64),
            residual=_column(residual, rows, np.int32),
            ordinal=group.ordinals.astype(np.int32),
        )


def _column(values: t.Array | int, rows: int, dtype: type) -> t.Array:
    return np.full(rows, values, dtype) if isinstance(values, int) else values.astype(dtype)
