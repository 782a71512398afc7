"""Bulk building of a snapshot from many subscriptions, without an index.

Subscriptions are grouped by the shape of their selectors (see ``shapes``). A common shape is parsed once; its
literals are columns, and so are the keys, bounds and ordinals of its entries. All others, with rare shapes or
clauses that depend on more than the shape, are read one by one, as ``Index.add`` does.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.arrays.state import SnapshotState
from selectroute.clauses.access import LARGE_FLOAT, literal_keys
from selectroute.clauses.predicate import OneOf
from selectroute.index.compile.filing import file_groups
from selectroute.index.compile.shapes import (
    Shape,
    ShapeGroup,
    literals,
    selector_shapes,
    template_of,
    topic_shapes,
)
from selectroute.index.destination import check_destination
from selectroute.index.errors import (
    MAX_REPORTED,
    BuildError,
    DestinationError,
    DuplicateSubscriptionError,
    InvalidIdError,
    RegistrationError,
)
from selectroute.index.specification import COLUMNS, ID, IndexedSubscription, literal_count, prepare
from selectroute.selector.arguments import check_argument, described, wrong_kind
from selectroute.selector.dialect import DEFAULT_DIALECT, EXTENDED, NONE, STANDARD
from selectroute.selector.errors import SelectRouteError, did_you_mean, shown, unknown_field
from selectroute.selector.limits import DEFAULT_LIMITS, UNLIMITED, Limits
from selectroute.selector.selector import Selector
from selectroute.topics.filter import MAX_LENGTH

SEGMENT_ROWS: Final = 1 << 24
"""Maximum subscriptions of a segment that is built: a table of more becomes several segments, each built when
the one before is done. Building takes about 600 bytes for each subscription of a segment.
"""

FEW: Final = 24
"""Minimum selectors of one shape that are read as a group (measured: a shape costs as much as 20)."""

_NO_TOPIC: Final = "\x05"
_EMPTY: Final = {name: pa.array([], pa.string()) for name in COLUMNS}

Row: TypeAlias = (
    tuple[str, Selector | str | None]
    | tuple[str, Selector | str | None, str | None]
    | dict[str, Any]
    | list[Any]
)
"""Subscription as `build_snapshot` takes it."""

Parsed: TypeAlias = dict[tuple[str, str], Selector]
"""Parsed selectors by text and dialect, each within its own limits."""

_FORMS: Final = (
    "tuples (id, selector) or (id, selector, topic), dicts, or a pyarrow.Table with a column 'id' "
    "(pa.Table.from_pandas(df))"
)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collection of cyclic garbage.

    A bulk load makes no cyclic garbage, and the collector would traverse the whole index again and again
    (measured: a third of the time at 100,000 subscriptions). Reference counting continues.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def build(
    subscriptions: pa.Table | Iterable[Row],
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> SnapshotState:
    """Return the state of a snapshot of many subscriptions: see `build_snapshot`."""
    check_argument(revision, (int, NoneType), "revision", "a number, or None for the next one")
    check_argument(limits, Limits, "limits", "the Limits of a selector, or leave it out")
    if isinstance(subscriptions, pa.RecordBatch):
        subscriptions = pa.Table.from_batches([subscriptions])
    if not isinstance(subscriptions, pa.Table):
        subscriptions, parsed = _table_of(subscriptions)
    else:
        parsed = {}
    for name in subscriptions.column_names:
        if name not in COLUMNS:
            sentence = f"a table of subscriptions has no column `{shown(name)}`"
            raise RegistrationError(f"{sentence}: {did_you_mean(name, COLUMNS, 'its columns are')}")
    if "id" not in subscriptions.column_names:
        raise RegistrationError("a table of subscriptions has the column `id`, and this one does not")
    if "destination" in subscriptions.column_names:
        _check_destinations(subscriptions)
    return built(subscriptions, revision, progress, limits, parsed)


def built(
    rows: pa.Table,
    revision: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    limits: Limits = DEFAULT_LIMITS,
    parsed: Parsed | None = None,
) -> SnapshotState:
    """Return the state of a table without a check of destinations and columns: stored data stays readable.
    `parsed` are selectors of the table that were parsed within their own limits.
    """
    states: list[SnapshotState] = []
    with paused_collector():
        for start in range(0, max(len(rows), 1), SEGMENT_ROWS):
            part = _normal(rows.slice(start, SEGMENT_ROWS))
            try:
                state = _Build(part, partial(_report, progress, start), limits, parsed).snapshot(revision)
                check_unknown(state, together(states))
            except BuildError as error:
                raise error.moved(start) from error.cause
            states.append(state)
    return states[0] if len(states) == 1 else together(states, revision)


def _report(progress: Callable[[int], None], before: int, done: int) -> None:
    progress(before + done)


def together(states: Sequence[SnapshotState], revision: int | None = None) -> SnapshotState:
    """Return the subscriptions of snapshots as one snapshot, which has all of their segments. Nothing is
    copied; they must not have an id in common, nor removed subscriptions.
    """
    tables = [state.subscriptions for state in states]
    segments = tuple(segment for state in states for segment in state.segments)
    return SnapshotState(segments, pa.concat_tables([pa.table(_EMPTY), *tables]), revision)


def check_unknown(new: SnapshotState, known: SnapshotState) -> None:
    """Raise `BuildError` for the first subscription of a snapshot whose id another one has. O(ids)."""
    rows = new.ids.alike(known.ids)
    ids = new.ids.take(rows).to_pylist()
    for row in rows[known.find(ids) >= 0].tolist():
        id = new.ids[row].as_py()
        raise BuildError(row, DuplicateSubscriptionError(id), id=id)


def freeze(subscriptions: Iterable[IndexedSubscription], revision: int | None = None) -> SnapshotState:
    """Return the snapshot of an index: one segment, its keys planned from all clauses, no destinations.

    Ordinals are in the order of the index. O(total size of the selectors).
    """
    with paused_collector():
        listed = list(subscriptions)
        columns = {name: [getattr(subscription, name, None) for subscription in listed] for name in COLUMNS}
        table = pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})
        writer = file_groups((), enumerate(listed))
        return SnapshotState((writer.segment(len(listed)),), table, revision)


def _check_destinations(table: pa.Table) -> None:
    """Raise `BuildError` for the first invalid destination. O(rows)."""
    texts = table["destination"].cast(pa.string())
    wrong: dict[str, DestinationError] = {}
    for text in pc.unique(texts).drop_null().to_pylist():
        try:
            check_destination(text)
        except DestinationError as error:
            wrong[text] = error
    if wrong:
        is_wrong = pc.is_in(texts, value_set=pa.array(list(wrong), pa.string()))
        row = pc.index(is_wrong, True).as_py()
        raise BuildError(row, wrong[texts[row].as_py()], id=table["id"][row].as_py())


class Checked(NamedTuple):
    """Result of a check: the types of the selectors, and the number of literals in the clauses of each,
    int64[rows].
    """

    seltypes: pa.Array
    literals: t.Array


def check_subscriptions(subscriptions: pa.Table, limits: Limits = DEFAULT_LIMITS) -> Checked:
    """Check subscriptions as `build_snapshot` does, without building. Raises `BuildError`."""
    with paused_collector():
        return _Build(_normal(subscriptions), lambda _: None, limits).checked()


def rebuilt(rows: pa.Table, revision: int | None = None) -> SnapshotState:
    """Return a snapshot of subscriptions that were accepted before, without limits; row i has ordinal i."""
    return built(rows, revision, limits=UNLIMITED)


def _table_of(source: Iterable[Row]) -> tuple[pa.Table, Parsed]:
    """Return rows as a table, and the selectors that are parsed already.

    Raises TypeError or ValueError for the first invalid row.
    """
    check_argument(source, Iterable, "subscriptions", _FORMS)
    if isinstance(source, str | bytes | Mapping) or hasattr(source, "iloc"):  # pandas would give its columns
        raise TypeError(wrong_kind(source, "subscriptions", _FORMS))
    rows: list[Any] = list(source)
    kinds = set(map(type, rows))
    if kinds == {dict}:
        return _table_of_dicts(rows)
    lengths = set(map(len, rows)) if kinds <= {tuple, list} else set()
    if lengths - {2, 3} or (rows and not lengths):
        for number, row in enumerate(rows):
            if not isinstance(row, tuple | list) or len(row) not in (2, 3):
                raise (ValueError if isinstance(row, tuple | list) else TypeError)(
                    f"subscription {number:,} is {_shown(row)}: give (id, selector) or (id, selector, topic)"
                    + ("; give all rows as dicts, or none" if isinstance(row, dict) else "")
                )
    if lengths != {3}:
        rows = [(*row, None) if len(row) == 2 else row for row in rows]
    columns: list[Any] = list(zip(*rows, strict=True)) or [(), (), ()]
    return _table_of_columns(dict(zip(("id", "selector", "topic"), columns, strict=True)))


def _table_of_dicts(rows: list[dict[str, Any]]) -> tuple[pa.Table, Parsed]:
    names = set().union(*rows)
    if not names <= set(COLUMNS) or any("id" not in row for row in rows):
        for number, row in enumerate(rows):
            unknown = [name for name in row if name not in COLUMNS]
            if unknown:
                sentence = unknown_field("a subscription", unknown[0], COLUMNS)
                raise RegistrationError(f"subscription {number:,}: {sentence}")
            if "id" not in row:
                raise ValueError(f"subscription {number:,} is {_shown(row)}: give it an 'id'")
    return _table_of_columns({name: [row.get(name) for row in rows] for name in COLUMNS if name in names})


def _table_of_columns(columns: dict[str, Sequence[Any]]) -> tuple[pa.Table, Parsed]:
    selectors = columns.get("selector", ())
    parsed: Parsed = {}
    if Selector in set(map(type, selectors)):
        dialects = columns.get("dialect") or [None] * len(selectors)
        columns["dialect"] = [
            selector.dialect if isinstance(selector, Selector) else name
            for selector, name in zip(selectors, dialects, strict=True)
        ]
        parsed = {(each.text, each.dialect): each for each in selectors if isinstance(each, Selector)}
        columns["selector"] = [value.text if isinstance(value, Selector) else value for value in selectors]
    for name, column in columns.items():
        if not set(map(type, column)) <= {str, NoneType}:
            number = next(row for row, value in enumerate(column) if not isinstance(value, str | None))
            raise TypeError(
                f"subscription {number:,} ({_shown(columns['id'][number])}): its {name} is "
                f"{described(column[number])}: give a str{'' if name == 'id' else ' or None'}"
            )
    try:
        table = pa.table({name: pa.array(column, pa.string()) for name, column in columns.items()})
    except UnicodeEncodeError:
        raise ValueError("a subscription has half of a surrogate pair, which is not a character") from None
    return table, parsed


def _shown(row: object) -> str:
    text = repr(row)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _normal(table: pa.Table) -> pa.Table:
    """Return all columns in order, each as one chunk; a NULL selector becomes "", a NULL dialect the default.

    Raises TypeError for a column that does not hold strings.
    """
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        if name in table.column_names:
            try:
                column = table[name].cast(pa.string())
            except pa.ArrowException:
                raise TypeError(f"column {name!r} has type {table[name].type}: give strings") from None
            columns[name] = column.combine_chunks()
        else:
            columns[name] = pa.nulls(table.num_rows, pa.string())
    columns["selector"] = pc.fill_null(columns["selector"], "")
    columns["dialect"] = pc.fill_null(columns["dialect"], DEFAULT_DIALECT)
    return pa.table(columns)


class _Build:
    """State of one build: reading fills ``_groups`` and ``_single``, which are then filed."""

    def __init__(
        self,
        subscriptions: pa.Table,
        progress: Callable[[int], None],
        limits: Limits = DEFAULT_LIMITS,
        parsed: Parsed | None = None,
    ) -> None:
        self._table = subscriptions
        self._progress = progress
        self._limits = limits
        # A shape's sample has another length than its selectors, which are checked one by one.
        self._of_shapes = replace(limits, length=UNLIMITED.length)
        self._parsed = parsed or {}
        self._read = 0
        self._groups: list[ShapeGroup] = []
        self._single: dict[int, IndexedSubscription] = {}
        self._known: dict[tuple[str, str | None, str, bool], IndexedSubscription] = {}
        self._seltype = np.full(len(subscriptions), STANDARD, object)
        self._refused: dict[int, SelectRouteError] = {}
        self._is_refused = np.zeros(len(subscriptions), np.bool_)

    def _check(self) -> None:
        """Read everything. Raises `BuildError` for invalid subscriptions."""
        self._check_ids()
        self._read_all()
        if self._refused:
            first = {row: self._refused[row] for row in sorted(self._refused)[:MAX_REPORTED]}
            row, cause = next(iter(first.items()))
            id = self._table["id"][row].as_py()
            raise BuildError(row, cause, first, int(self._is_refused.sum()), id) from cause

    def snapshot(self, revision: int | None) -> SnapshotState:
        self._check()
        seltype = pa.array(self._seltype, pa.string())
        table = self._table.set_column(self._table.schema.get_field_index("seltype"), "seltype", seltype)
        writer = file_groups(self._groups, self._single.items())
        return SnapshotState((writer.segment(len(table)),), table, revision)

    def checked(self) -> Checked:
        self._check()
        literals = np.zeros(len(self._table), np.int64)
        for group in self._groups:
            literals[group.ordinals] = literal_count(group.template.clauses)
        for row, subscription in self._single.items():
            literals[row] = literal_count(subscription.clauses)
        return Checked(pa.array(self._seltype, pa.string()), literals)

    # ---- reading

    def _check_ids(self) -> None:
        ids = self._table["id"].chunk(0)
        valid = pc.fill_null(pc.match_substring_regex(ids, pattern=rf"\A{ID}\z"), False)
        if valid.false_count:
            for row in np.flatnonzero(~valid.to_numpy(zero_copy_only=False)).tolist():
                self._refuse(row, InvalidIdError(ids[row].as_py() or ""))
        if len(pc.unique(ids)) < len(ids):
            seen: set[str] = set()
            for row, id in enumerate(ids.to_pylist()):
                if id in seen:
                    self._refuse(row, DuplicateSubscriptionError(id))
                seen.add(id)

    def _refuse(self, row: int, cause: SelectRouteError) -> None:
        """Keep the first error of a row, for somewhat more rows than are reported."""
        if self._is_refused[row]:
            return
        self._is_refused[row] = True
        self._refused[row] = cause
        if len(self._refused) > 50 * MAX_REPORTED:
            self._refused = {row: self._refused[row] for row in sorted(self._refused)[:MAX_REPORTED]}

    def _read_all(self) -> None:
        table = self._table
        selectors, topics = table["selector"].chunk(0), table["topic"].chunk(0)
        extended = pc.fill_null(pc.equal(table["seltype"].chunk(0), EXTENDED), False)
        # Very long selectors are read one by one, which checks the limits; their shapes are rare anyway.
        long = pc.or_(
            pc.greater(pc.utf8_length(selectors), min(self._limits.length, DEFAULT_LIMITS.length)),
            pc.greater(pc.fill_null(pc.utf8_length(topics), 0), MAX_LENGTH),
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

    def _group(self, marked: str, rows: t.Array) -> ShapeGroup | None:
        """Return the subscriptions of one shape as a group, None if the shape has no template."""
        dialect_name, on_topic, text = marked.split("\x06", 2)
        selector = Shape.of_marked(text)
        topic = None if on_topic == _NO_TOPIC else Shape.of_marked(on_topic)
        try:
            template = template_of(selector, topic, dialect_name, self._of_shapes)
        except SelectRouteError:
            return None
        if template is None:
            return None
        places = pa.array(rows)
        texts = selector.slots(self._table["selector"].chunk(0).take(places))
        if topic is not None and texts is not None:
            levels = topic.slots(self._table["topic"].chunk(0).take(places))
            texts = None if levels is None else texts + levels
        if texts is None:
            return None
        kinds = (*selector.kinds, *(topic.kinds if topic is not None else ()))
        slots = [literals(kind, column) for kind, column in zip(kinds, texts, strict=True)]
        return ShapeGroup(template, dialect_name, rows, slots)

    def _take(self, group: ShapeGroup) -> t.Array:
        """Keep a group; return its rows that must be read one by one."""
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
                            alone |= np.abs(column) >= LARGE_FLOAT  # several keys, or no exact one
        rows: t.Array = group.ordinals[alone]
        if len(rows):
            group = group.only(np.flatnonzero(~alone))
        if len(group.ordinals):
            self._groups.append(group)
            self._advance(len(group.ordinals))
        return rows

    def _single_row(self, row: int) -> None:
        id_, _, topic, selector, name, seltype = (self._table[column][row].as_py() for column in COLUMNS)
        is_extended = seltype == EXTENDED
        twin = self._known.get((selector, topic, name, is_extended))
        try:
            if twin is None:
                known = None if is_extended else self._parsed.get((selector, name))
                twin = prepare(id_, known or selector, topic, name, is_extended, self._limits)
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
