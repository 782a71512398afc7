"""Near misses: subscriptions that miss a message by one condition of the selector, and that condition.

A subscription is *near* a message if its topic filter matches, its selector is not TRUE, and another truth of
a single condition would make it TRUE. A condition is a comparison, BETWEEN, IN, LIKE, IS NULL or a boolean
name in the text, but not AND, OR or NOT. Conditions are considered one by one, even if several read the same
property. So for ``color = 'red' AND weight > 5`` one of the two conditions must hold, and for ``color = 'red'
OR weight > 5`` none does, and either would suffice. EXTENDED subscriptions are never near, nor those whose
dialect rejects the property names of the message.

Most subscriptions are excluded column-wise, by the shapes of their texts: a selector that is an AND with two
operands that cannot hold is not near. The others are judged by the reference evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.arrays.ids import string_hashes
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.clauses.predicate import MIRRORED
from selectroute.index.compile.shapes import (
    MAX_SLOTS,
    Shape,
    literals,
    literals_of,
    sample_of,
    selector_shapes,
    spelled,
)
from selectroute.index.matches import Condition, NearMiss
from selectroute.selector.dialect import EXTENDED, Dialect
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.evaluate import condition
from selectroute.selector.explain import Explanation
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.selector import Selector
from selectroute.selector.sentences import printable, value_text
from selectroute.selector.syntax import ast
from selectroute.selector.values import VOID, Double, Float, Long, Truth, Unsupported, Value
from selectroute.topics.filter import TopicFilter

MOST_JUDGED: Final = 10_000
"""Maximum subscriptions judged by the reference evaluator: a second or two."""

_MOST_SHAPES: Final = 5_000
"""Maximum shapes examined; selectors of other shapes are excluded by their topic only."""

_BLOCK: Final = 1 << 20
"""Subscriptions whose selectors are read at a time."""

_LEVELS: Final = 16
"""Maximum levels of a topic that exclude filters; the reference judges all levels."""


class Nearby(NamedTuple):
    """Subscriptions near a message; ``complete`` if these are all."""

    subscriptions: list[NearMiss]
    complete: bool


def near(
    snapshot: SnapshotState,
    message: Message,
    limit: int,
    matched: t.Array,
    sees: Callable[[str | None], bool] = lambda topic: True,
) -> Nearby:
    """Return at most `limit` subscriptions near a message, see above; first those with more conditions that
    hold. ``matched`` are the ordinals of the matches; ``sees`` returns whether the caller may see the
    subscriptions of a topic filter.

    O(subscriptions), column-wise, and at most `MOST_JUDGED` selectors parsed and judged. Once for each
    segment also O(bytes of its selectors).
    """
    subscriptions: list[NearMiss] = []
    rows = snapshot.subscriptions
    candidates = _candidates(snapshot, message, matched)
    for count, ordinal in enumerate(candidates.tolist()):
        if count == MOST_JUDGED:
            return Nearby(subscriptions, False)
        row = rows.slice(ordinal, 1).to_pylist()[0]
        topic = row["topic"]
        if not sees(topic) or not (topic is None or TopicFilter.parse(topic).matches(message.topic)):
            continue
        selector = Selector(row["selector"], row["dialect"], limits=UNLIMITED)
        if conditions := deciding(selector, message):
            if len(subscriptions) == limit:
                return Nearby(subscriptions, False)
            shown = [*map(_condition, conditions)]
            subscriptions.append(NearMiss(row["id"], topic, selector.text, shown))
    return Nearby(subscriptions, True)


def deciding(selector: Selector, message: Message) -> tuple[Explanation, ...]:
    """Return the conditions that each alone, with another truth, would make the selector TRUE. O(n)."""
    dialect = dialect_named(selector.dialect)
    if dialect.name_rules and message.value(INVALID_NAMES) is True:
        return ()
    root = selector.explain(message)
    if root.truth is Truth.TRUE:
        return ()
    unsound = [leaf for leaf in _leaves(root) if leaf.result is VOID or leaf.truth is VOID]
    if len(unsound) > 1:
        return ()  # each of them makes the whole selector false
    conditions: list[Explanation] = []
    waiting = [(root, Truth.TRUE)]
    while waiting:
        part, wanted = waiting.pop()  # invariant: the truth of the part is not the wanted one
        match part.expression:
            case ast.Not():
                waiting.append((part.children[0], Truth.of(wanted is Truth.FALSE)))
            case ast.And() | ast.Or() as node:
                others = [child for child in part.children if child.truth is not wanted]
                within = [child for child in others if child.truth is VOID]
                if isinstance(node, ast.And) is (wanted is Truth.TRUE):  # all children must have it
                    waiting += [(child, wanted) for child in others] if len(others) == 1 else []
                elif not within:  # one child must have it, and none has
                    waiting += [(child, wanted) for child in reversed(others)]
                elif len(others) < len(part.children):  # one child has it, which counts if nothing is VOID
                    conditions += unsound
                else:
                    waiting.append((within[0], wanted))
            case _:
                conditions.append(part)
    return tuple(conditions)


def _leaves(root: Explanation) -> Iterator[Explanation]:
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part.expression, ast.And | ast.Or | ast.Not):
            waiting += part.children
        else:
            yield part


def _condition(part: Explanation) -> Condition:
    saw: dict[str, None] = {}
    waiting = [part]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner.expression, ast.Identifier):
            saw[f"{printable(inner.text)} is {value_text(inner.result)}"] = None
        waiting += reversed(inner.children)
    truth: Any = "void" if part.result is VOID else part.truth.value  # type: ignore[union-attr]
    return Condition(part.text, truth, [*saw])


# ---- subscriptions that are not excluded


def _candidates(snapshot: SnapshotState, message: Message, matched: t.Array) -> t.Array:
    """Return the ordinals that may be near, int64; first those with more operands that may hold."""
    parts = [np.zeros(0, np.int16)]
    for segment, first in zip(snapshot.segments, snapshot.firsts[:-1], strict=True):
        parts.append(_columns_of(segment, snapshot.subscriptions, int(first)).holding(message))
    holding = np.concatenate(parts)
    holding[matched] = _EXCLUDED
    if snapshot.dead is not None:
        holding[snapshot.dead] = _EXCLUDED
    ordinals = np.flatnonzero(holding != _EXCLUDED)
    return ordinals[np.argsort(-holding[ordinals], kind="stable")]


class _Selectors(NamedTuple):
    """Selectors of one shape: their rows in the segment, and the literals of each slot, numbers without their
    signs as float32, and of strings their hashes. Without a plan, selectors that no plan represents.
    """

    plan: _Plan | None
    rows: t.Array
    literals: Sequence[t.Array]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Selectors and topic filters of a segment, column-wise; some 20 bytes a subscription.

    ``topics`` are the codes of the rows in the distinct ``filters``, -1 for all topics.
    """

    groups: Sequence[_Selectors]
    topics: t.Array
    filters: pa.Array

    @classmethod
    def of(cls, table: pa.Table) -> _Columns:
        """Return the columns of a table of subscriptions. O(bytes of the selectors)."""
        groups: list[_Selectors] = []
        for first in range(0, table.num_rows, _BLOCK):
            groups += _selectors(table.slice(first, _BLOCK), first)
        topics = table["topic"].cast(pa.large_string()).combine_chunks().dictionary_encode()
        codes = pc.fill_null(topics.indices, -1).to_numpy(zero_copy_only=False)
        return cls(groups, codes.astype(np.int32), topics.dictionary)

    def holding(self, message: Message) -> t.Array:
        """Return the number of operands that may hold for each row, int16[rows], `_EXCLUDED` for one that is
        not near.
        """
        counts = np.full(len(self.topics), _EXCLUDED, np.int16)
        for group in self.groups:
            if group.plan is None:
                counts[group.rows] = 0
                continue
            failing, holding = np.zeros((2, len(group.rows)), np.int16)
            for operand in group.plan.operands:
                may = operand.may_hold(group.literals, message, group.plan.dialect)
                failing += np.logical_not(may)
                holding += may
            counts[group.rows] = np.where(failing <= 1, holding, _EXCLUDED)
        reached = np.zeros(len(self.filters) + 1, np.bool_)  # the last one is that of all topics
        reached[-1] = True
        if message.topic is not None and len(self.filters):
            reached[:-1] = pc.match_substring_regex(self.filters, _filters_of(message.topic))
        if not reached.all():
            counts[~reached[self.topics]] = _EXCLUDED
        return counts


_EXCLUDED: Final = -1
_READ: Final = ["selector", "dialect", "topic", "seltype"]

_columns: WeakKeyDictionary[Segment, _Columns] = WeakKeyDictionary()
_reading: Final = Lock()


def _columns_of(segment: Segment, subscriptions: pa.Table, first: int) -> _Columns:
    """Return the columns of a segment, made once for all snapshots that have it: a second for a million."""
    with _reading:
        columns = _columns.get(segment)
        if columns is None:
            columns = _columns[segment] = _Columns.of(subscriptions.slice(first, segment.rows).select(_READ))
        return columns


def _selectors(table: pa.Table, first: int) -> Iterator[_Selectors]:
    """Yield the selectors of each shape and dialect in a block that begins at this row; those of too many
    shapes, and those that a shape does not represent, as one without a plan.
    """
    selects = pc.greater(pc.binary_length(pc.fill_null(table["selector"], "")), 0)
    extended = pc.equal(pc.fill_null(table["seltype"], ""), EXTENDED)
    wanted = np.flatnonzero(np.asarray(pc.and_not(selects, extended)))
    some = table.take(pa.array(wanted))
    texts, dialects = (some[name].cast(pa.string()).combine_chunks() for name in ("selector", "dialect"))
    rows = (first + wanted).astype(np.int32)
    others = [np.zeros(0, np.int32)]
    shapes = selector_shapes(texts)
    for number, members in enumerate(_groups(shapes, dialects)):
        plan = literals = None
        if number < _MOST_SHAPES:
            plan = _Plan.of(shapes[members[0]].as_py(), dialects[members[0]].as_py())
        if plan is not None:
            literals = plan.literals(texts.take(pa.array(members)))
        if plan is None or literals is None:
            others.append(rows[members])
        else:
            yield _Selectors(plan, rows[members], literals)
    yield _Selectors(None, np.concatenate(others), ())


def _filters_of(topic: str) -> str:
    """Return a regular expression of all filters that match a topic, and of others: anything may follow #."""
    levels = topic.split("/")
    pattern = "(?:/#.*)?" if len(levels) <= _LEVELS else ".*"
    for number, level in reversed(list(enumerate(levels[:_LEVELS]))):
        own = f"(?:\\+|{_quoted(level)})"
        rest = f"(?:{own}{pattern}|#.*)"
        pattern = f"(?:/{rest})?" if number else rest
    return f"(?s)\\A(?:{pattern})\\z"


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)


def _groups(shapes: pa.Array, dialects: pa.Array) -> Iterator[t.Array]:
    """Yield the rows of each shape and dialect, the most first."""
    if not len(shapes):
        return
    codes = [column.dictionary_encode().indices.to_numpy().astype(np.int64) for column in (shapes, dialects)]
    both = codes[0] * (codes[1].max() + 1) + codes[1]
    order = np.argsort(both, kind="stable")
    yield from sorted(np.split(order, np.flatnonzero(np.diff(both[order])) + 1), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class _Operand:
    """Operand of the AND in the sample of a shape, and the slots of its literals."""

    expression: ast.Expr
    slots: Mapping[object, int]

    def may_hold(self, columns: Sequence[Any], message: Message, dialect: Dialect) -> Any:
        """Return whether the operand may be TRUE, one boolean or one for each row; a False is certain."""
        if not self.slots:
            return condition(self.expression, message.value, dialect) is Truth.TRUE
        match self.expression:
            case ast.In(ast.Identifier(name), values, False):
                value = message.value(dialect.field_of(name))
                if not isinstance(value, str):
                    return False
                matches = [
                    _equal(columns[self.slots[text]], value) if text in self.slots else text == value
                    for text in values
                ]
                return np.logical_or.reduce(np.broadcast_arrays(*matches))
            case ast.Comparison(op, ast.Identifier(name), ast.Literal(constant)):
                return self._compared(op, name, constant, columns, message, dialect)
            case ast.Comparison(op, ast.Literal(constant), ast.Identifier(name)):
                return self._compared(MIRRORED[op], name, constant, columns, message, dialect)
        return True

    def _compared(
        self, op: str, name: str, constant: Value, columns: Sequence[Any], message: Message, dialect: Dialect
    ) -> Any:
        if name in dialect.id_fields:
            return True  # a string that is an id is matched as 24 bytes
        value = message.value(dialect.field_of(name))
        column = columns[self.slots[_key(constant)]]
        if isinstance(constant, str):
            if not isinstance(value, str):
                return False
            return _equal(column, value) if op == "=" else True
        if value is None or isinstance(value, str | bytes | bool | Unsupported):
            return False
        # Values that are equal, or less, after promotion to any type, are so, or equal, as float32, too.
        with np.errstate(over="ignore"):
            sign = -1 if constant.value < 0 else 1  # type: ignore[union-attr]
            ours, theirs = np.float32(value.value), sign * column
        match op:
            case "=":
                return ours == theirs
            case "<" | "<=":
                return ours <= theirs
            case ">" | ">=":
                return ours >= theirs
        return True


def _equal(hashes: t.Array, value: str) -> Any:
    """Return which strings may equal a value; without certainty, by their hashes."""
    try:
        return hashes == string_hashes(pa.array([value]))[0]
    except UnicodeEncodeError:  # half of a surrogate pair, which no selector has
        return False


@dataclass(frozen=True, slots=True)
class _Plan:
    """Shape of selectors, and the operands of its AND; one operand if it is not an AND."""

    shape: Shape
    dialect: Dialect
    operands: tuple[_Operand, ...]

    @classmethod
    def of(cls, marked: str, dialect_name: str) -> _Plan | None:
        """Return the plan of a shape with marks; None if its sample does not represent its selectors."""
        shape = Shape.of_marked(marked)
        if len(shape.kinds) > MAX_SLOTS:
            return None
        samples = [sample_of(kind, number) for number, kind in enumerate(shape.kinds)]
        texts = [spelled(kind, sample) for kind, sample in zip(shape.kinds, samples, strict=True)]
        try:
            root = Selector(shape.filled(texts), dialect_name, limits=UNLIMITED).expression
        except InvalidSelectorError:
            return None
        slots = {_key(sample): number for number, sample in enumerate(samples)}
        if root is None or sum(_key(constant) in slots for constant in literals_of(root)) != len(samples):
            return None  # a literal left in the shape equals a sample
        operands = (
            _Operand(operand, {key: slots[key] for key in map(_key, literals_of(operand)) if key in slots})
            for operand in _operands(root)
        )
        return cls(shape, dialect_named(dialect_name), tuple(operands))

    def literals(self, texts: pa.Array) -> list[t.Array] | None:
        """Return the literals of each slot for texts of this shape, see `_Selectors`; None if one is not."""
        slots = self.shape.slots(texts)
        if slots is None:
            return None
        columns = (literals(kind, column) for kind, column in zip(self.shape.kinds, slots, strict=True))
        with np.errstate(over="ignore"):
            return [
                string_hashes(column) if isinstance(column, pa.Array) else column.astype(np.float32)
                for column in columns
            ]


def _operands(root: ast.Expr) -> Iterator[ast.Expr]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.And):
            waiting += reversed(node.operands)
        else:
            yield node


def _key(value: Value) -> object:
    """Return the lookup key of a sample: of a number its magnitude, as dialects differ in types and signs."""
    if isinstance(value, Long | Double | Float) or hasattr(value, "value"):
        return abs(value.value)
    return value
