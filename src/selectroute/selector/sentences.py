"""Sentences about one part of a selector and one message, where a user needs one.

`explain` has the tree with each truth, value and type; here are the reasons: NULL, unlike types, integer
division by zero, NaN, a field read by another of its names, ids matched as bytes, invalid property names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import starmap
from typing import Final, NamedTuple

from selectroute.selector.dialect import Dialect
from selectroute.selector.evaluate import Result, as_operand
from selectroute.selector.fields import CORRELATION_ID, DERIVED, MESSAGE_ID, NO_ID, PREFIX, SYNONYMS
from selectroute.selector.message import Message
from selectroute.selector.names import MIXED_CONTENT, broken_rule, message_breaches, spelling
from selectroute.selector.syntax.ast import (
    Arithmetic,
    Between,
    Comparison,
    ComparisonOp,
    Expr,
    Identifier,
    In,
    Like,
    Literal,
    MatchId,
    Unary,
)
from selectroute.selector.syntax.printer import literal_text
from selectroute.selector.values import (
    EXACT_OPERATIONS,
    MISMATCH,
    UNSUPPORTED,
    VOID,
    Double,
    Float,
    Int,
    Long,
    Number,
    Truth,
    Void,
    compare,
    to_float32,
    type_name,
)

SHOWN: Final = 80
"""Maximum characters shown of a text or string."""


class Phrase(NamedTuple):
    """Operand: its node, its text as shown to users, and its result."""

    node: Expr
    text: str
    result: Result


class Said(NamedTuple):
    """Sentence about a part, and whether unlike types were met in it."""

    sentence: str | None = None
    unlike: bool = False


NOTHING: Final = Said()


def about(
    node: Expr, text: str, parts: Sequence[Phrase], result: Result, message: Message, dialect: Dialect
) -> Said:
    """Return the sentence about `node`, whose operands are `parts`. O(shown text)."""
    if any(part.result is VOID for part in parts):
        return NOTHING  # the operand has the sentence
    match node:
        case Identifier(name):
            return Said(_origin(name, message, dialect))
        case Unary() | Arithmetic():
            return _arithmetic(node, text, parts, result, dialect)
        case Comparison(op):
            return _comparison(op, parts[0], parts[1], dialect)
        case Between():
            return _between(node, parts, dialect)
        case In():
            return _string_wanted("NOT IN" if node.negated else "IN", parts[0], dialect)
        case Like():
            return _string_wanted("NOT LIKE" if node.negated else "LIKE", parts[0], dialect)
        case MatchId(identifier, octets):
            return Said(_match_id(identifier.name, octets, message, dialect))
        case _:
            return NOTHING


def about_condition(part: Phrase, dialect: Dialect) -> Said:
    """Return the sentence about a name or a literal that is used as a condition."""
    if part.result is None:
        return Said(f"`{part.text}` is NULL: UNKNOWN")
    if isinstance(part.result, bool | Truth | Void):
        return NOTHING
    return Said(f"{_subject(part)}, where a boolean is needed: {_unlike(dialect)}", True)


def about_names(message: Message, dialect: Dialect) -> str | None:
    """Return the sentence about the property names that no selector of the dialect allows on a message."""
    broken = message_breaches([name for name, value in message.properties.items() if value is not None])
    if not broken:
        return None
    names = broken[0]
    alone = names[0] if len(names) == 1 else None
    rule = MIXED_CONTENT if alone is None else broken_rule(alone) or spelling(alone) or MIXED_CONTENT
    shown = ("property " if alone else "properties ") + " and ".join(f"`{printable(name)}`" for name in names)
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return (
        f"no {dialect.name} selector selects a message with the {shown}{more}: {rule.sentence} "
        f"(reason {rule.reason})"
    )


def printable(text: str, shown: int = SHOWN) -> str:
    """Return the beginning of a text, safe to print."""
    cut = "".join(character if character.isprintable() else " " for character in text[:shown])
    return f"{cut}…" if len(text) > shown else cut


def value_text(result: Result) -> str:
    """Return a value with its type, safe to print: ``string 'car'``, ``long 5``, ``NULL``."""
    if result is None:
        return "NULL"
    if result is MISMATCH:
        return "arithmetic on a non-number"
    if result is UNSUPPORTED:
        return "of a type that no property has"
    if isinstance(result, Truth | Void):
        return result.name  # pragma: no cover - a condition is shown by its truth
    if isinstance(result, str):
        shown = literal_text(result[:SHOWN])
        shown = shown if shown.isprintable() else ascii(result[:SHOWN])
        return f"string {shown}{'…' if len(result) > SHOWN else ''}"
    if isinstance(result, bytes):
        shown = literal_text(result[: SHOWN // 2])
        return f"byte string {shown}{'…' if len(result) > SHOWN // 2 else ''}"
    if isinstance(result, Float | Double):
        return f"{type_name(result)} {result.value!r}"
    return f"{type_name(result)} {result.value if isinstance(result, Number) else str(result).upper()}"


# --- Operands


def _origin(name: str, message: Message, dialect: Dialect) -> str | None:
    """Return the sentence about a field that is read by another of its names, as `fields.read` does."""
    field = dialect.fields.get(name, "").removeprefix(PREFIX)
    if not field or (field in SYNONYMS and message.value(field) is not None):
        return None
    unfit = None
    for source in DERIVED[field]:
        values = {other: message.value(other) for other in source.names}
        value = source.convert(*values.values())
        others = [f"{other}, the {value_text(seen)}" for other, seen in values.items() if seen is not None]
        if value is not None:
            return f"`{name}` is read from {' and '.join(others)}: it is the {value_text(value)}"
        if others:
            unfit = f"`{name}` is NULL: it cannot be read from {' and '.join(others)}"
    return unfit


def _arithmetic(
    node: Unary | Arithmetic, text: str, parts: Sequence[Phrase], result: Result, dialect: Dialect
) -> Said:
    null = next((part for part in parts if part.result is None), None)
    if null and dialect.arithmetic_on_null is not None:
        return Said(f"`{null.text}` is NULL, and arithmetic on NULL makes {_whole(dialect)}")
    for part in parts:
        if part.result is not None and part.result is not MISMATCH and not isinstance(part.result, Number):
            compared = "" if dialect.unlike_types is VOID else "comparing the result is "
            return Said(f"{_subject(part)}, not a number: {compared}{_unlike(dialect)}", True)
    if null and isinstance(null.node, Identifier):
        return Said(f"`{null.text}` is NULL, and arithmetic on NULL is NULL")
    if null or result is MISMATCH:
        return NOTHING  # the operand has the sentence
    values = [part.result for part in parts]
    if result is None:
        return Said(f"`{text}` divides an integer by zero: NULL")
    if isinstance(result, Int | Long) and _exactly(node, values) not in (None, result.value):
        return Said(f"`{text}` is beyond the range of {_article(result)} and wraps around")
    if not dialect.negative_zero and any(
        isinstance(v, Float | Double) and str(v.value) == "-0.0" for v in values
    ):
        return Said(f"negative zero counts as zero in arithmetic of {dialect.name}")
    return NOTHING


def _exactly(node: Unary | Arithmetic, values: Sequence[Result]) -> int | None:
    """Return the unbounded result of an operation on integers."""
    numbers = [int(value.value) for value in values if isinstance(value, Number)]
    if isinstance(node, Unary):
        return -numbers[0] if node.op == "-" else numbers[0]
    exact = EXACT_OPERATIONS.get(node.op)
    if exact is None:  # a quotient is beyond the range only where the divisor is -1
        return -numbers[0] if numbers[1] == -1 else None
    return exact(*numbers)


# --- Conditions


def _comparison(op: ComparisonOp, left: Phrase, right: Phrase, dialect: Dialect) -> Said:
    values = as_operand(left.result), as_operand(right.result)
    if MISMATCH in values:
        return Said(None, True)  # the arithmetic has the sentence
    nulls = [part for part, value in zip((left, right), values, strict=True) if value is None]
    if nulls:
        names = " and ".join(dict.fromkeys(f"`{part.text}`" for part in nulls))
        is_null = "is NULL: comparing with it is" if names.count("`") == 2 else "are NULL: comparing them is"
        return Said(f"{names} {is_null} UNKNOWN")
    if compare(op, *values, VOID, promotes=dialect.promotes) is VOID:
        return Said(_not_comparable(op, left, right, dialect), True)
    return Said(_surprise(op, left, right, dialect))


def _not_comparable(op: ComparisonOp, left: Phrase, right: Phrase, dialect: Dialect) -> str:
    """Return the sentence about a comparison of unlike types, or an order of a type that has none."""
    first, second = (right, left) if isinstance(left.node, Literal) else (left, right)
    kind, other = _kind(first.result), _kind(second.result)
    if kind != other or first.result is UNSUPPORTED:
        return f"{_subject(first)}, compared with {_described(second, other)}: {_unlike(dialect)}"
    if kind != "a number":
        return f"{_subject(first)}, and {op} has no meaning for {kind[2:]}s: {_unlike(dialect)}"
    typed = _described(second, _article(second.result))
    sentence = f"{_subject(first)}, compared with {typed}: only equal types compare, so {_unlike(dialect)}"
    if isinstance(first.node, Identifier) and not first.node.name.startswith(dialect.reserved_prefix):
        sentence += f"; set it with set{type_name(second.result).capitalize()}Property"
    return sentence


def _surprise(op: ComparisonOp, left: Phrase, right: Phrase, dialect: Dialect) -> str | None:
    """Return the sentence about a comparison of numbers with a surprising result."""
    for part, other in ((left, right), (right, left)):
        value, against = part.result, other.result
        if not isinstance(value, Float | Double):
            continue
        if math.isnan(value.value):
            truth = Truth.of(op == "<>").name
            return f"`{part.text}` is NaN, which no number equals, precedes or follows: {op} is {truth}"
        if op in ("=", "<>") and isinstance(value, Float) and isinstance(against, Double):
            exact = against.value
            if value.value != exact and to_float32(exact) == value.value:
                suffix = f": write {exact!r}F" if dialect.numbers.suffixes.get("F") is Float else ""
                return (
                    f"`{part.text}` is a float, which as a double is {value.value!r}, not {exact!r}{suffix}"
                )
    return None


def _between(node: Between, parts: Sequence[Phrase], dialect: Dialect) -> Said:
    word = "NOT BETWEEN" if node.negated else "BETWEEN"
    null = next((part for part in parts if part.result is None), None)
    if null and dialect.between_on_null is not None:
        truth = Truth.TRUE if node.negated else Truth.FALSE
        return Said(f"`{null.text}` is NULL, and {word} with NULL is {truth.name} in {dialect.name}")
    first, last = ("<", ">") if node.negated else (">=", "<=")
    comparisons = ((first, parts[0], parts[1], dialect), (last, parts[0], parts[2], dialect))
    both = list(starmap(_comparison, comparisons))
    sentences = dict.fromkeys(said.sentence for said in both if said.sentence)
    return Said("; ".join(sentences) or None, any(said.unlike for said in both))


def _string_wanted(word: str, part: Phrase, dialect: Dialect) -> Said:
    if part.result is None:
        return Said(f"`{part.text}` is NULL: {word} is UNKNOWN")
    if isinstance(part.result, str):
        return NOTHING
    return Said(f"{_subject(part)}, and {word} takes a string: {_unlike(dialect)}", True)


_MATCH_OPTIONS: Final = {
    f"{PREFIX}{MESSAGE_ID}": "MQMO_MATCH_MSG_ID",
    f"{PREFIX}{CORRELATION_ID}": "MQMO_MATCH_CORREL_ID",
}


def _match_id(name: str, octets: bytes, message: Message, dialect: Dialect) -> str:
    field = dialect.id_fields[name]
    how = f"`{name}` is matched by {_MATCH_OPTIONS[field]} on 24 bytes, not as a string"
    if octets == NO_ID:
        return f"{how}: zeros match any"
    return how if message.value(field) is not None else f"{how}: the message has no such id"


# --- Words


def _unlike(dialect: Dialect) -> str:
    """Return the result of unlike types, in words."""
    return f"{_whole(dialect, 'is')}" if dialect.unlike_types is VOID else f"FALSE in {dialect.name}"


def _whole(dialect: Dialect, verb: str = "") -> str:
    return f"the whole selector {verb}{' ' if verb else ''}false in {dialect.name}"


def _subject(part: Phrase) -> str:
    return f"`{part.text}` is {_the(part.result)}"


def _the(result: Result) -> str:
    value = as_operand(result)
    return value_text(value) if value is None or value is UNSUPPORTED else f"the {value_text(value)}"


def _described(part: Phrase, kind: str) -> str:
    """Return the kind of a literal, whose value the text shows; the text and value of any other part."""
    return kind if isinstance(part.node, Literal) else f"`{part.text}`, {_the(part.result)}"


def _kind(result: Result) -> str:
    value = as_operand(result)
    return "a number" if isinstance(value, Number) else f"a {type_name(value)}"


def _article(result: Result) -> str:
    name = type_name(result)
    return f"an {name}" if name[0] == "i" else f"a {name}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 subscription``, ``2,000 subscriptions``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
