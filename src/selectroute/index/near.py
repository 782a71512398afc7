"""Subscriptions that one condition keeps from a message: those that nearly get it, and that condition.

A subscription is *near* a message if its topic filter matches, its selector is not TRUE, and one condition
of the selector, had it another truth, would make it TRUE. A condition is a comparison, BETWEEN, IN, LIKE,
IS NULL or a boolean name as it stands in the text; AND, OR and NOT are none. Conditions are taken one by one,
also where several read the same property. So of ``color = 'red' AND weight > 5`` one of the two holds, and in
``color = 'red' OR weight > 5`` neither does and either one would do. No subscription whose selector is
EXTENDED is near, and none whose dialect takes no message with the property names of this one.

Most subscriptions are ruled out column-wise, by the shapes of their texts: in a selector that is an AND, two
operands that cannot hold are one too many. The others are judged by the reference evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.arrays.state import SnapshotState
from selectroute.index.shapes.shape import MAX_SLOTS, Shape, selector_shapes
from selectroute.index.shapes.template import literals, sample_of, spelled
from selectroute.selector.dialect import Dialect
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.evaluate import condition
from selectroute.selector.explain.explain import Explanation
from selectroute.selector.explain.sentences import printable, value_text
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.selector import Selector
from selectroute.selector.selector_type import EXTENDED
from selectroute.selector.syntax import ast
from selectroute.selector.values.truth import VOID, Truth
from selectroute.selector.values.values import Double, Float, Long, Unsupported, Value
from selectroute.topics.filter import TopicFilter

MOST_JUDGED: Final = 10_000
"""So many are judged by the reference evaluator, a second or two."""

_MOST_SHAPES: Final = 5_000
"""So many shapes are looked into; selectors of others are ruled out by their topic only."""

_LEVELS: Final = 16
"""So many levels of a topic rule out filters; the reference judges all of them."""


@dataclass(frozen=True, slots=True)
class Near:
    """A subscription and the conditions of which each alone keeps it from the message."""

    id: str
    topic: str | None
    selector: str
    conditions: tuple[Explanation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; of a condition its text, its truth and each value that it saw."""
        conditions = [_condition_data(one) for one in self.conditions]
        return {"id": self.id, "topic": self.topic, "selector": self.selector, "conditions": conditions}


class Nearby(NamedTuple):
    """Subscriptions near a message; ``complete`` if there are no others."""

    found: list[Near]
    complete: bool


def near(
    snapshot: SnapshotState,
    message: Message,
    limit: int,
    matched: t.Array,
    sees: Callable[[str | None], bool] = lambda topic: True,
) -> Nearby:
    """Return at most `limit` subscriptions that are near a message, see above; first those of which more
    other conditions hold. ``matched`` are the ordinals that get it; ``sees`` says of a topic filter whether
    its subscription may be named.

    O(bytes of the selectors whose topic filter matches), column-wise, and at most `MOST_JUDGED` selectors
    parsed and judged.
    """
    found: list[Near] = []
    rows = snapshot.subscriptions
    candidates = _candidates(snapshot, message, matched)
    for count, ordinal in enumerate(candidates.tolist()):
        if count == MOST_JUDGED:
            return Nearby(found, False)
        row = rows.slice(ordinal, 1).to_pylist()[0]
        topic = row["topic"]
        if not sees(topic) or not (topic is None or TopicFilter.parse(topic).matches(message.topic)):
            continue
        selector = Selector(row["selector"], row["dialect"], limits=UNLIMITED)
        if conditions := deciding(selector, message):
            if len(found) == limit:
                return Nearby(found, False)
            found.append(Near(row["id"], topic, selector.text, conditions))
    return Nearby(found, True)


def deciding(selector: Selector, message: Message) -> tuple[Explanation, ...]:
    """Return the conditions of which each alone, had it another truth, would make the selector TRUE. O(n)."""
    dialect = dialect_named(selector.dialect)
    if dialect.name_rules and message.value(INVALID_NAMES) is True:
        return ()
    root = selector.explain(message)
    if root.truth is Truth.TRUE:
        return ()
    unsound = [one for one in _leaves(root) if one.result is VOID or one.truth is VOID]
    if len(unsound) > 1:
        return ()  # one of them makes the whole selector false, whatever the other is
    found: list[Explanation] = []
    waiting = [(root, Truth.TRUE)]
    while waiting:
        part, wanted = waiting.pop()  # invariant: the part does not have that truth
        match part.expression:
            case ast.Not():
                waiting.append((part.children[0], Truth.of(wanted is Truth.FALSE)))
            case ast.And() | ast.Or() as node:
                others = [child for child in part.children if child.truth is not wanted]
                within = [child for child in others if child.truth is VOID]
                if isinstance(node, ast.And) is (wanted is Truth.TRUE):  # all of them must have it
                    waiting += [(child, wanted) for child in others] if len(others) == 1 else []
                elif not within:  # one of them must, and none has
                    waiting += [(child, wanted) for child in reversed(others)]
                elif len(others) < len(part.children):  # one has, and counts once nothing is VOID
                    found += unsound
                else:
                    waiting.append((within[0], wanted))
            case _:
                found.append(part)
    return tuple(found)


def _leaves(root: Explanation) -> Iterator[Explanation]:
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part.expression, ast.And | ast.Or | ast.Not):
            waiting += part.children
        else:
            yield part


def _condition_data(part: Explanation) -> dict[str, Any]:
    saw: dict[str, None] = {}
    waiting = [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one.expression, ast.Identifier):
            saw[f"{printable(one.text)} is {value_text(one.result)}"] = None
        waiting += reversed(one.children)
    data: dict[str, Any] = {"text": part.text, "truth": "void" if part.result is VOID else part.truth.value}  # type: ignore[union-attr]
    return {**data, "saw": list(saw)}


# ---- which subscriptions are not ruled out


def _candidates(snapshot: SnapshotState, message: Message, matched: t.Array) -> t.Array:
    """Return the ordinals that may be near, int64; first those of which more operands of the AND may hold."""
    table = snapshot.subscriptions.select(["selector", "dialect", "topic", "seltype"])
    left = np.ones(table.num_rows, np.bool_)
    left[matched] = False
    if snapshot.dead is not None:
        left &= ~snapshot.dead
    plans: dict[tuple[str, str], _Plan | None] = {}
    ordinals, held = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    first = 0
    for batch in table.to_batches():
        wanted = np.flatnonzero(left[first : first + len(batch)] & _may_reach(batch, message.topic))
        some = batch.take(pa.array(wanted))
        texts, dialects = some["selector"].cast(pa.string()), some["dialect"].cast(pa.string())
        shapes = selector_shapes(texts)
        for rows in _groups(shapes, dialects):
            key = shapes[rows[0]].as_py(), dialects[rows[0]].as_py()
            if key not in plans:
                plans[key] = _Plan.of(*key) if len(plans) < _MOST_SHAPES else None
            judged = _judged(plans[key], texts, rows, message)
            keep = judged.failing <= 1
            ordinals.append(first + wanted[rows[keep]])
            held.append(judged.holding[keep])
        first += len(batch)
    all_ordinals = np.concatenate(ordinals)
    return all_ordinals[np.lexsort((all_ordinals, -np.concatenate(held)))]


def _may_reach(batch: pa.RecordBatch, topic: str | None) -> t.Array:
    """Return whether a selector is there to be judged, and its topic filter not surely another topic's."""
    extended = pc.equal(pc.fill_null(batch["seltype"], ""), EXTENDED)
    there = pc.and_not(pc.greater(pc.binary_length(pc.fill_null(batch["selector"], "")), 0), extended)
    every = pc.is_null(batch["topic"])
    if topic is not None:
        fits = pc.match_substring_regex(batch["topic"], _filters_of(topic))
        every = pc.or_(every, pc.fill_null(fits, False))
    return np.asarray(pc.and_(there, every).to_numpy(zero_copy_only=False))


def _filters_of(topic: str) -> str:
    """Return a regular expression of all filters that match a topic, and of some others: anything follows a
    #.
    """
    levels = topic.split("/")
    pattern = "(?:/#.*)?" if len(levels) <= _LEVELS else ".*"
    for number, level in reversed(list(enumerate(levels[:_LEVELS]))):
        own = f"(?:\\+|{_quoted(level)})"
        behind = f"(?:{own}{pattern}|#.*)"
        pattern = f"(?:/{behind})?" if number else behind
    return f"(?s)\\A(?:{pattern})\\z"


def _quoted(text: str) -> str:
    return "".join(one if one.isalnum() else f"\\x{{{ord(one):x}}}" for one in text)


def _groups(shapes: pa.Array, dialects: pa.Array) -> Iterator[t.Array]:
    """Yield the rows of each shape and dialect."""
    if not len(shapes):
        return
    codes = [one.dictionary_encode().indices.to_numpy().astype(np.int64) for one in (shapes, dialects)]
    both = codes[0] * (codes[1].max() + 1) + codes[1]
    order = np.argsort(both, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(both[order])) + 1)


class _Judged(NamedTuple):
    """Counts for each row: operands of the AND that cannot hold, and those that may."""

    failing: t.Array
    holding: t.Array


def _judged(plan: _Plan | None, texts: pa.Array, rows: t.Array, message: Message) -> _Judged:
    none = _Judged(np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64))
    if plan is None:
        return none
    slots = plan.shape.slots(texts.take(pa.array(rows)))
    if slots is None:
        return none
    columns = [literals(kind, one) for kind, one in zip(plan.shape.kinds, slots, strict=True)]
    for operand in plan.operands:
        may = operand.may_hold(columns, message, plan.dialect)
        none.failing[...] += np.logical_not(may)
        none.holding[...] += may
    return none


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of the AND in the sample of a shape, and the slots of the literals in it."""

    expression: ast.Expr
    slots: Mapping[object, int]

    def may_hold(self, columns: Sequence[Any], message: Message, dialect: Dialect) -> Any:
        """Return whether it may be TRUE, for all rows or for each. Where it is said not to, it is not."""
        if not self.slots:
            return condition(self.expression, message.value, dialect) is Truth.TRUE
        match self.expression:
            case ast.In(ast.Identifier(name), values, False):
                value = message.value(dialect.field_of(name))
                if not isinstance(value, str):
                    return False
                found = [
                    _equal(columns[self.slots[one]], value) if one in self.slots else one == value
                    for one in values
                ]
                return np.logical_or.reduce(np.broadcast_arrays(*found))
            case ast.Comparison(op, ast.Identifier(name), ast.Literal(constant)):
                return self._compared(op, name, constant, columns, message, dialect)
            case ast.Comparison(op, ast.Literal(constant), ast.Identifier(name)):
                turned = op.translate({ord("<"): ">", ord(">"): "<"}) if op != "<>" else op
                return self._compared(turned, name, constant, columns, message, dialect)
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
        # What is equal, or less, after promotion to any type is so, or equal, as the narrowest of them, too.
        with np.errstate(over="ignore"):
            sign = -1 if constant.value < 0 else 1  # type: ignore[union-attr]
            ours, theirs = np.float32(value.value), (sign * column).astype(np.float32)
        match op:
            case "=":
                return ours == theirs
            case "<" | "<=":
                return ours <= theirs
            case ">" | ">=":
                return ours >= theirs
        return True


def _equal(column: pa.Array, value: str) -> t.Array:
    return np.asarray(pc.equal(column, value).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class _Plan:
    """A shape of selectors, and the operands of the AND that it is; one operand if it is none."""

    shape: Shape
    dialect: Dialect
    operands: tuple[_Operand, ...]

    @classmethod
    def of(cls, marked: str, dialect_name: str) -> _Plan | None:
        """Return the plan of a shape with marks; None where its sample does not show what its selectors
        are.
        """
        shape = Shape.of_marked(marked)
        if len(shape.kinds) > MAX_SLOTS:
            return None
        samples = [sample_of(kind, number) for number, kind in enumerate(shape.kinds)]
        texts = [spelled(kind, one) for kind, one in zip(shape.kinds, samples, strict=True)]
        try:
            root = Selector(shape.filled(texts), dialect_name, limits=UNLIMITED).expression
        except InvalidSelectorError:
            return None
        slots = {_key(one): number for number, one in enumerate(samples)}
        if root is None or sum(_key(one) in slots for one in _constants(root)) != len(samples):
            return None  # a literal that was not taken out happens to be a sample
        operands = (
            _Operand(one, {key: slots[key] for key in map(_key, _constants(one)) if key in slots})
            for one in _operands(root)
        )
        return cls(shape, dialect_named(dialect_name), tuple(operands))


def _operands(root: ast.Expr) -> Iterator[ast.Expr]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.And):
            waiting += reversed(node.operands)
        else:
            yield node


def _constants(root: ast.Expr) -> Iterable[Value]:
    for node in ast.postorder(root):
        match node:
            case ast.Literal(value=value):
                yield value
            case ast.In(values=values):
                yield from values
            case ast.Like(pattern=pattern, escape=escape):
                yield pattern
                if escape is not None:
                    yield escape


def _key(value: Value) -> object:
    """Return what finds a sample again: in some dialects a number has another type, and a sign belongs to
    it.
    """
    if isinstance(value, Long | Double | Float) or hasattr(value, "value"):
        return abs(value.value)
    return value
