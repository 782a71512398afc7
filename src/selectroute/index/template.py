"""The clauses of all selectors of one shape, found once by parsing a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from selectroute.clauses.access import literal_keys
from selectroute.clauses.normal_form import clauses_of
from selectroute.clauses.predicate import Clause, Condition, Levels, Literal, Matches, OneOf, Sound, Test
from selectroute.index.shapes import MAX_SLOTS, Kind, Shape, selector_shape
from selectroute.selector import ast
from selectroute.selector.dialect import dialect as dialect_named
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.selector import Selector
from selectroute.selector.source import SURROGATE
from selectroute.selector.values import Double, Long, Value
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

_FIRST_INTEGER: Final = 4_190_001
"""Samples of numbers are below 2^24, where every type of number holds them."""


class Slot(NamedTuple):
    """Which literal of the text a constant is, and whether a minus stands before it."""

    number: int
    negated: bool
    is_string: bool


@dataclass(frozen=True, slots=True)
class Template:
    """Clauses whose constants are samples; those of a selector have its own literals in their place."""

    clauses: tuple[Clause, ...]
    _slots: dict[Value, Slot]

    def slots_of(self, literal: Literal) -> tuple[Slot, ...]:
        """The slots that a literal reads."""
        return tuple(slot for one in _constants(literal) if (slot := self._slots.get(one)) is not None)

    def clauses_of(self, values: Sequence[Value]) -> tuple[Clause, ...]:
        """The clauses of the selector with these literals, one for each slot."""
        return tuple(
            Clause(tuple(self.filled(literal, values) for literal in clause.literals), clause.valid_names)
            for clause in self.clauses
        )

    def filled(self, literal: Literal, values: Sequence[Value] | Mapping[int, Value]) -> Literal:
        """The literal with the literals of a text, by the numbers of their slots, in place of the samples."""
        slots = [self._slots.get(one) for one in _constants(literal)]
        if not any(slots):
            return literal
        own = [
            one if slot is None else _signed(values[slot.number], slot)
            for one, slot in zip(_constants(literal), slots, strict=True)
        ]
        predicate = literal.predicate
        match predicate:
            case Test(name=name, op=op, dialect=dialect):
                return Literal(Test(name, op, own[0], dialect), literal.wanted)
            case OneOf():
                strings = tuple(sorted({one for one in own if isinstance(one, str)}))
                return Literal(replace(predicate, values=strings), literal.wanted)
            case Matches():
                assert isinstance(own[0], str)
                return Literal(replace(predicate, pattern=own[0]), literal.wanted)
            case _:
                return literal


def template_of(
    selector: Shape, topic: Shape | None, dialect_name: str, limits: Limits = DEFAULT_LIMITS
) -> Template | None:
    """The template of a shape; None where a selector of it must be read by itself.

    That is so if its sample is no selector (then the text itself shows why), and where more than the shape
    decides: a literal that is not compared with one property, several equalities of one property, an id.
    """
    kinds = (*selector.kinds, *(topic.kinds if topic is not None else ()))
    if len(kinds) > MAX_SLOTS:
        return None
    samples = [sample_of(kind, number) for number, kind in enumerate(kinds)]
    texts = [spelled(kind, sample) for kind, sample in zip(kinds, samples, strict=True)]
    dialect = dialect_named(dialect_name)
    try:
        checked = Selector(selector.filled(texts[: len(selector.kinds)]), dialect_name, limits=limits)
        on_topic: tuple[Literal, ...] = ()
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
    if sum(one in slots for one in _literals_of(checked.expression)) != len(selector.kinds):
        return None  # a literal that was not taken out happens to be a sample
    found: set[int] = set()
    for clause in clauses:
        keyed = [keys.attribute for literal in clause.literals if (keys := literal_keys(literal)) is not None]
        if len(keyed) != len(set(keyed)) or any(_hides(literal, slots) for literal in clause.literals):
            return None
        found |= {
            slots[one].number for literal in clause.literals for one in _constants(literal) if one in slots
        }
    return Template(clauses, slots) if len(found) == len(samples) else None


def _signed(value: Value, slot: Slot) -> Value:
    if not slot.negated:
        return value
    assert isinstance(value, Long | Double)
    return Long(-value.value) if isinstance(value, Long) else Double(-value.value)


_SEEN: dict[tuple[str, str], Template | bool | None] = {}
"""The shapes that single selectors had: their templates; True of one that was seen once."""

_MOST_SEEN: Final = 10_000


def clauses_by_shape(text: str, dialect_name: str) -> tuple[Clause, ...] | None:
    """The clauses of a selector whose shape was seen before, about twice as fast as by parsing it.

    None of any other, which is to be parsed.
    """
    # The parser says what is wrong with half of a surrogate pair, which fits any shape.
    if len(text) > DEFAULT_LIMITS.length or (not text.isascii() and SURROGATE.search(text)):
        return None
    shape, found = selector_shape(text)
    known = _SEEN.get((shape, dialect_name), False)
    if known is False:  # a template costs as much as parsing, for which there must be a second one
        if len(_SEEN) >= _MOST_SEEN:
            _SEEN.clear()
        _SEEN[shape, dialect_name] = True
        return None
    if known is True:
        known = _SEEN[shape, dialect_name] = template_of(Shape.of_marked(shape), None, dialect_name)
    if known is None:
        return None
    return known.clauses_of([_value(one) for one in found])


def _value(text: str) -> Value:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return Double(float(text)) if "." in text else Long(int(text))


def sample_of(kind: Kind, number: int) -> str | Long | Double:
    """The literal that stands for a slot when a shape is parsed; each number of a slot has its own."""
    match kind:
        case Kind.INTEGER:
            return Long(_FIRST_INTEGER + number)
        case Kind.DECIMAL:
            return Double(_FIRST_INTEGER + number + 0.5)
        case _:
            return f"?{number}"


def spelled(kind: Kind, sample: str | Long | Double) -> str:
    """A sample as it is written in a text."""
    if isinstance(sample, Long | Double):
        return str(sample.value)
    return f"'{sample}'" if kind is Kind.STRING else sample


def _constants(literal: Literal) -> Iterable[Value]:
    match literal.predicate:
        case Test(constant=constant):
            return (constant,)
        case OneOf(values=values):
            return values
        case Matches(pattern=pattern):
            return (pattern,)
        case _:
            return ()


def _hides(literal: Literal, slots: dict[Value, Slot]) -> bool:
    """Whether a predicate that is judged as a whole has a sample inside."""
    match literal.predicate:
        case Condition(expr=expr):
            return any(one in slots for one in _literals_of(expr))
        case Sound(conditions=conditions):
            return any(one in slots for expr in conditions for one in _literals_of(expr))
        case Levels(pattern=levels):
            return any(level in slots for level in levels)
        case _:
            return False


def _literals_of(expression: ast.Expr | None) -> Iterator[Value]:
    """Every literal in an expression."""
    for node in ast.postorder(expression) if expression is not None else ():
        match node:
            case ast.Literal(value=value):
                yield value
            case ast.In(values=values):
                yield from values
            case ast.Like(pattern=pattern):
                yield pattern
