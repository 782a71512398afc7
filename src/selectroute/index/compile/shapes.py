"""Shapes of many selectors: their texts without the literals, column-wise, and a template of each shape.

A million selectors of one application have a few shapes, ``JMSType = ? AND weight > ?``, and the analysis of
a selector depends on its shape alone. Here texts become shapes, and the literals of a shape columns; Arrow
does both without a Python object per text.

Extracted literals are strings, plain integers of at most 18 digits and plain decimals of at most 15 and 15
digits, which every dialect reads the same way. All other text stays in the shape. A template decides with
the parser whether an extracted text is a literal, and independent of the text around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from os import cpu_count
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.clauses.access import literal_keys
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import (
    Clause,
    ClauseLiteral,
    ExpressionTest,
    LevelsTest,
    NotVoid,
    OneOf,
    PatternTest,
    Test,
)
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.selector.syntax import ast
from selectroute.selector.syntax.source import SURROGATE
from selectroute.selector.values import Double, Long, Value
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

MAX_SLOTS: Final = 64
"""Maximum literals of one shape; a text with more is parsed by itself."""

_CHUNK = 1 << 16
"""Texts that a thread processes at a time."""


class LiteralKind(Enum):
    """Kind of a slot: the character that marks it in a shape, and the pattern of its texts."""

    STRING = "\x01", r"'(?:[^']|'')*'"
    DECIMAL = "\x02", r"\b(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}\b"
    INTEGER = "\x03", r"\b(?:0|[1-9][0-9]{0,17})\b"
    LEVEL = "\x04", r"[^/+#]+"

    def __init__(self, mark: str, pattern: str) -> None:
        self.mark = mark
        self.pattern = pattern
        self.inside = pattern.replace(r"\b", "")
        """Pattern without word boundaries, which the text around the slot guarantees."""


_BY_MARK: Final = {kind.mark: kind for kind in LiteralKind}
_MARKS: Final = re.compile(f"[{''.join(_BY_MARK)}]")
_OF_SELECTORS: Final = (LiteralKind.STRING, LiteralKind.DECIMAL, LiteralKind.INTEGER)
_OF_TOPICS: Final = (LiteralKind.LEVEL,)


@dataclass(frozen=True, slots=True)
class Shape:
    """Text with slots: slot i, of ``kinds[i]``, is between ``parts[i]`` and ``parts[i + 1]``."""

    parts: tuple[str, ...]
    kinds: tuple[LiteralKind, ...]

    @classmethod
    def of_marked(cls, marked: str) -> Shape:
        """Return the shape of a text with marks from `selector_shapes` or `topic_shapes`."""
        return cls(tuple(_MARKS.split(marked)), tuple(_BY_MARK[mark] for mark in _MARKS.findall(marked)))

    def filled(self, samples: Iterable[str]) -> str:
        """Return the text with these samples in the slots."""
        pieces = zip_longest(self.parts, samples, fillvalue="")
        return "".join(piece for pair in pieces for piece in pair)

    def slots(self, texts: pa.Array) -> list[pa.Array] | None:
        """Return the literals of each slot as text, for texts of this shape.

        None if a text is not of this shape: it contains a mark itself, or half a string.
        """
        groups = (f"(?P<s{number}>{kind.inside})" for number, kind in enumerate(self.kinds))
        pieces = zip_longest(map(re.escape, self.parts), groups, fillvalue="")
        pattern = "(?s)\\A" + "".join(piece for pair in pieces for piece in pair) + "\\z"
        if not self.kinds:
            return [] if pc.all(pc.equal(texts, self.parts[0])).as_py() else None
        try:
            slots = pa.concat_arrays(_by_chunks(texts, lambda part: pc.extract_regex(part, pattern=pattern)))
        except pa.ArrowInvalid:  # the pattern is too large
            return None
        return None if slots.null_count else slots.flatten()


_LITERAL: Final = re.compile("|".join(f"({kind.pattern})" for kind in _OF_SELECTORS))


def selector_shape(text: str) -> tuple[str, list[str]]:
    """Return the shape of one selector, with marks, and its literals as text. O(length)."""
    texts: list[str] = []

    def mark(match: re.Match[str]) -> str:
        texts.append(match[0])
        assert match.lastindex is not None
        return _OF_SELECTORS[match.lastindex - 1].mark

    return _LITERAL.sub(mark, text), texts


def selector_shapes(texts: pa.Array) -> pa.Array:
    """Return the shapes of selectors, strings with marks. O(length of the texts), on all cores."""
    return _marked(texts, _OF_SELECTORS)


def topic_shapes(filters: pa.Array) -> pa.Array:
    """Return the shapes of topic filters, without the text of levels. As `selector_shapes`."""
    return _marked(filters, _OF_TOPICS)


def _marked(texts: pa.Array, kinds: Iterable[LiteralKind]) -> pa.Array:
    def shape(part: pa.Array) -> pa.Array:
        for kind in kinds:
            part = pc.replace_substring_regex(part, pattern=kind.pattern, replacement=kind.mark)
        return part

    return pa.concat_arrays(_by_chunks(texts, shape))


def _by_chunks(texts: pa.Array, function: Callable[[pa.Array], pa.Array]) -> Iterator[pa.Array]:
    if len(texts) <= _CHUNK:  # starting threads takes longer
        yield function(texts)
        return
    chunks = [texts.slice(start, _CHUNK) for start in range(0, len(texts), _CHUNK)]
    with ThreadPoolExecutor(cpu_count()) as pool:
        yield from pool.map(function, chunks)


@dataclass(frozen=True, slots=True)
class ShapeGroup:
    """Subscriptions of one shape: their ordinals, and the literals of each slot as a column."""

    template: Template
    dialect: str
    ordinals: t.Array
    slots: list[pa.Array | t.Array]  # strings; or int64, float64

    def value(self, number: int, row: int) -> Value:
        """Return the literal of one subscription in a slot, without its sign."""
        column = self.slots[number]
        if isinstance(column, pa.Array):
            text: str = column[row].as_py()
            return text
        return Long(int(column[row])) if column.dtype == np.int64 else Double(float(column[row]))

    def numbers(self, slot: Slot) -> t.Array:
        """Return the literals of a slot of numbers, with their signs."""
        column = self.slots[slot.number]
        return -column if slot.negated else column

    def only(self, rows: t.Array) -> ShapeGroup:
        """Return the group with only these rows."""
        slots = [
            column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]
            for column in self.slots
        ]
        return replace(self, ordinals=self.ordinals[rows], slots=slots)


def literals(kind: LiteralKind, texts: pa.Array) -> pa.Array | t.Array:
    """Return the texts of a slot as values: strings, int64 or float64."""
    match kind:
        case LiteralKind.STRING:
            return pc.replace_substring(pc.utf8_slice_codeunits(texts, 1, -1), pattern="''", replacement="'")
        case LiteralKind.INTEGER:
            return texts.cast(pa.int64()).to_numpy()
        case LiteralKind.DECIMAL:
            return texts.cast(pa.float64()).to_numpy()
        case LiteralKind.LEVEL:
            return texts


# ---- Clauses of all selectors of one shape, by parsing one sample.

_FIRST_INTEGER: Final = 4_190_001
"""Samples of numbers are below 2^24, where every type of number holds them."""


class Slot(NamedTuple):
    """Slot of a constant: the number of the literal in the text, and whether a minus precedes it."""

    number: int
    negated: bool
    is_string: bool


@dataclass(frozen=True, slots=True)
class Template:
    """Clauses with samples as constants, which a selector's own literals replace."""

    clauses: tuple[Clause, ...]
    _slots: dict[Value, Slot]

    def slots_of(self, literal: ClauseLiteral) -> tuple[Slot, ...]:
        """Return the slots that a literal reads."""
        slots = map(self._slots.get, _constants(literal))
        return tuple(slot for slot in slots if slot is not None)

    def clauses_of(self, values: Sequence[Value]) -> tuple[Clause, ...]:
        """Return the clauses of the selector with these literals, one for each slot."""
        return tuple(
            Clause(tuple(self.filled(literal, values) for literal in clause.literals), clause.valid_names)
            for clause in self.clauses
        )

    def filled(self, literal: ClauseLiteral, values: Sequence[Value] | Mapping[int, Value]) -> ClauseLiteral:
        """Return the literal with a text's literals, by the numbers of their slots, instead of samples."""
        slots = [*map(self._slots.get, _constants(literal))]
        if not any(slots):
            return literal
        own = [
            constant if slot is None else _signed(values[slot.number], slot)
            for constant, slot in zip(_constants(literal), slots, strict=True)
        ]
        predicate = literal.predicate
        match predicate:
            case Test(name=name, op=op, dialect=dialect):
                return ClauseLiteral(Test(name, op, own[0], dialect), literal.wanted)
            case OneOf():
                strings = tuple(sorted({value for value in own if isinstance(value, str)}))
                return ClauseLiteral(replace(predicate, values=strings), literal.wanted)
            case PatternTest():
                assert isinstance(own[0], str)
                return ClauseLiteral(replace(predicate, pattern=own[0]), literal.wanted)
            case _:
                return literal


def template_of(
    selector: Shape, topic: Shape | None, dialect_name: str, limits: Limits = DEFAULT_LIMITS
) -> Template | None:
    """Return the template of a shape; None if its selectors must be parsed one by one.

    These are invalid selectors (their own text gives the error), and those with a literal that is not
    compared with one property, several equalities of one property, or an id.
    """
    kinds = (*selector.kinds, *(topic.kinds if topic is not None else ()))
    if len(kinds) > MAX_SLOTS:
        return None
    samples = [sample_of(kind, number) for number, kind in enumerate(kinds)]
    texts = [spelled(kind, sample) for kind, sample in zip(kinds, samples, strict=True)]
    dialect = dialect_named(dialect_name)
    try:
        checked = Selector(selector.filled(texts[: len(selector.kinds)]), dialect_name, limits=limits)
        on_topic: tuple[ClauseLiteral, ...] = ()
        if topic is not None:
            on_topic = TopicFilter.parse(topic.filled(texts[len(selector.kinds) :])).literals()
    except (InvalidSelectorError, InvalidTopicFilterError):
        return None
    if not dialect.id_fields.keys().isdisjoint(checked.identifiers):
        return None  # a string that is an id is matched as 24 bytes
    clauses = tuple(
        replace(clause, literals=on_topic + clause.literals) if on_topic else clause
        for clause in clauses_of(checked.expression, dialect)
    )
    slots: dict[Value, Slot] = {}
    for number, sample in enumerate(samples):
        slots[sample] = Slot(number, False, isinstance(sample, str))
        if isinstance(sample, Long):
            slots[Long(-sample.value)] = Slot(number, True, False)
        elif isinstance(sample, Double):
            slots[Double(-sample.value)] = Slot(number, True, False)
    if sum(constant in slots for constant in literals_of(checked.expression)) != len(selector.kinds):
        return None  # a literal left in the shape equals a sample
    used: set[int] = set()
    for clause in clauses:
        keyed = [keys.attribute for literal in clause.literals if (keys := literal_keys(literal)) is not None]
        if len(keyed) != len(set(keyed)) or any(_hides(literal, slots) for literal in clause.literals):
            return None
        used |= {
            slots[constant].number
            for literal in clause.literals
            for constant in _constants(literal)
            if constant in slots
        }
    return Template(clauses, slots) if len(used) == len(samples) else None


def _signed(value: Value, slot: Slot) -> Value:
    if not slot.negated:
        return value
    assert isinstance(value, Long | Double)
    return Long(-value.value) if isinstance(value, Long) else Double(-value.value)


_SEEN: dict[tuple[str, str], Template | bool | None] = {}
"""Shapes of single selectors: their templates; True for a shape that was seen once."""

_MOST_SEEN: Final = 10_000


def clauses_by_shape(text: str, dialect_name: str) -> tuple[Clause, ...] | None:
    """Return the clauses of a selector whose shape was seen before, about twice as fast as by parsing it;
    None for any other selector.
    """
    seen = seen_template(text, dialect_name)
    return None if seen is None else seen[0].clauses_of([_value(literal) for literal in seen[1]])


def seen_template(text: str, dialect_name: str) -> tuple[Template, list[str]] | None:
    """Return the template of a selector whose shape was seen before, and its literals as text; None for any
    other selector. The clauses of the template have as many literals as the selector's.
    """
    # The parser must reject half of a surrogate pair, which fits any shape.
    if len(text) > DEFAULT_LIMITS.length or (not text.isascii() and SURROGATE.search(text)):
        return None
    shape, texts = selector_shape(text)
    known = _SEEN.get((shape, dialect_name), False)
    if known is False:  # a template costs as much as parsing, so it pays from the second selector on
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN[shape, dialect_name] = True
        return None
    if known is True:
        known = _SEEN[shape, dialect_name] = template_of(Shape.of_marked(shape), None, dialect_name)
    return None if known is None else (known, texts)


def _value(text: str) -> Value:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return Double(float(text)) if "." in text else Long(int(text))


def sample_of(kind: LiteralKind, number: int) -> str | Long | Double:
    """Return the literal of a slot when a shape is parsed, unique for each number of a slot."""
    match kind:
        case LiteralKind.INTEGER:
            return Long(_FIRST_INTEGER + number)
        case LiteralKind.DECIMAL:
            return Double(_FIRST_INTEGER + number + 0.5)
        case _:
            return f"?{number}"


def spelled(kind: LiteralKind, sample: str | Long | Double) -> str:
    """Return the text of a sample."""
    if isinstance(sample, Long | Double):
        return str(sample.value)
    return f"'{sample}'" if kind is LiteralKind.STRING else sample


def _constants(literal: ClauseLiteral) -> Iterable[Value]:
    match literal.predicate:
        case Test(constant=constant):
            return (constant,)
        case OneOf(values=values):
            return values
        case PatternTest(pattern=pattern):
            return (pattern,)
        case _:
            return ()


def _hides(literal: ClauseLiteral, slots: dict[Value, Slot]) -> bool:
    """Return whether a predicate that is judged as a whole contains a sample."""
    match literal.predicate:
        case ExpressionTest(expr=expr):
            return any(constant in slots for constant in literals_of(expr))
        case NotVoid(conditions=conditions):
            return any(constant in slots for expr in conditions for constant in literals_of(expr))
        case LevelsTest(pattern=levels):
            return any(level in slots for level in levels)
        case _:
            return False


def literals_of(expression: ast.Expr | None) -> Iterator[Value]:
    """Yield every literal in an expression."""
    for node in ast.postorder(expression) if expression is not None else ():
        match node:
            case ast.Literal(value=value):
                yield value
            case ast.In(values=values):
                yield from values
            case ast.Like(pattern=pattern):
                yield pattern
