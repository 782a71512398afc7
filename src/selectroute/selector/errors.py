"""Errors of the package, and every kind of invalid selector with its sentence, an example and a hint.

A raise site names a kind, a span and the expected tokens; every text that users read is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from selectroute.selector.syntax.source import EXCERPT_COLUMNS, Span, excerpt, place, position

LONGEST_COMPARED: Final = 64
"""Characters of a name that are compared: difflib's time grows with the square of the length."""

_SHOWN: Final = 60
_MOST_LISTED: Final = 30


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name of which `name` is probably a misspelling; None if none is near.

    Case is ignored. O(known names).

    >>> nearest("selektor", ["id", "selector", "topic"]), nearest("Topic", ["topic"]), nearest("x", ["topic"])
    ('selector', 'topic', None)
    """
    if not isinstance(name, str):
        return None
    spelling = {name.casefold(): name for name in known}
    near = get_close_matches(name[:LONGEST_COMPARED].casefold(), spelling, n=1)
    return spelling[near[0]] if near else None


def did_you_mean(name: object, known: Collection[str], otherwise: str = "known are") -> str:
    """Return the end of a sentence about an unknown name: the nearest known name, or all known ones.

    >>> did_you_mean("integre", ["int", "integer"])
    'did you mean `integer`?'
    >>> did_you_mean("x", ["int", "integer"], "the types are")
    'the types are int, integer'
    """
    near = nearest(name, known)
    if near is not None:
        return f"did you mean `{near}`?"
    listed = ", ".join(list(known)[:_MOST_LISTED])
    return f"{otherwise} {listed}{', …' if len(known) > _MOST_LISTED else ''}"


def unknown_field(thing: str, name: object, known: Collection[str]) -> str:
    """Return the error text for an unknown field, safe to print.

    Args:
        thing: the owner of the fields, with its article: ``a subscription``.
        name: the unknown field, as the user wrote it.
        known: the valid fields.

    >>> unknown_field("a subscription", "selektor", ["id", "selector"])
    'a subscription has no field `selektor`: did you mean `selector`?'
    >>> unknown_field("a range", "x", ["from", "to"])
    'a range has no field `x`: its fields are from, to'
    """
    return f"{thing} has no field `{shown(name)}`: {did_you_mean(name, known, 'its fields are')}"


def shown(name: object) -> str:
    """Return a name as an error shows it: shortened, and safe to print."""
    text = str(name)
    cut = "".join(character if character.isprintable() else "�" for character in text[:_SHOWN])
    return f"{cut}…" if len(text) > _SHOWN else cut


MQRC_SELECTION_NOT_AVAILABLE = 2551
"""Reason code of a selector that is invalid when it is presented."""

MQRC_SELECTOR_SYNTAX_ERROR = 2459
"""Reason code of a selector that is invalid when its subscription is resumed."""


class SelectRouteError(Exception):
    """Base of every error that this package raises."""


class ErrorKind(NamedTuple):
    """Kind of error in the text of a selector."""

    sentence: str
    example: str
    hint: str | None = None
    reason: int | None = None
    """MQ reason code, where it does not depend on when the selector is presented."""

    dialect: str = "jms"
    """Dialect in which the example has this error."""


KINDS: Mapping[str, ErrorKind] = MappingProxyType(
    {
        # the text as a whole
        "too-long": ErrorKind(
            "the selector is longer than the limit", "a = 1", "the limit is an option of Selector"
        ),
        "too-deep": ErrorKind(
            "the selector is nested more deeply than the limit",
            "((((a = 1))))",
            "parentheses around a chain of ANDs or of ORs can be left out",
        ),
        "too-many-items": ErrorKind(
            "a list of IN has more items than the limit",
            "a IN ('b', 'c')",
            "split the list over several selectors",
        ),
        "blank": ErrorKind(
            "the selector holds nothing but white space",
            "  ",
            "the empty string is the selector that matches every message",
        ),
        # words and literals
        "unexpected-character": ErrorKind(
            "this character is only allowed inside a string", "a # b", "write a string in single quotes"
        ),
        "not-a-character": ErrorKind(
            "half of a surrogate pair is not a character", "a = '\ud800'", "write both halves or neither"
        ),
        "unterminated-string": ErrorKind(
            "string literal is never closed",
            "region = 'EMEA AND price > 10",
            "write '' for a quote inside a string",
        ),
        "double-quotes": ErrorKind(
            "a string is written in single quotes", 'color = "blue"', "write 'text' with single quotes"
        ),
        "odd-byte-string": ErrorKind(
            "a byte string consists of pairs of hexadecimal digits, and one digit is left over",
            'a = "0x2F1"',
            "write a zero before the first digit",
            MQRC_SELECTOR_SYNTAX_ERROR,
            "ibm-mq",
        ),
        "malformed-byte-string": ErrorKind(
            "a byte string consists of 0x and one or more pairs of hexadecimal digits",
            'a = "0x2G"',
            'write it as in "0x2F1C"',
            dialect="ibm-mq",
        ),
        "unknown-operator": ErrorKind(
            "selectors have no such operator", "a == 1", "the operators are = <> < <= > >= + - * /"
        ),
        "not-in-dialect": ErrorKind(
            "the dialect does not support this",
            "a = 1 OR b = 2",
            "the dialect supports comparisons by = and NAME IS NULL, joined by AND",
            dialect="mqe",
        ),
        "malformed-number": ErrorKind(
            "this is not a number", "a = 1_", "put a space after a number, and _ only between two digits"
        ),
        "malformed-octal": ErrorKind(
            "a leading zero makes a number octal, and 8 and 9 are not octal digits",
            "a = 09",
            "leave the zero out",
        ),
        "integer-out-of-range": ErrorKind(
            "the exact number is outside the range of a Java long",
            "a = 9223372036854775808",
            "an approximate number such as 1E19 has a wider range",
        ),
        "number-too-large": ErrorKind(
            "the approximate number is too large for its type",
            "a = 1E309",
            "a double reaches to 1.7976931348623157E308, a float (F) to 3.4028235E38",
        ),
        "number-too-small": ErrorKind(
            "the approximate number is not zero but would be rounded to it",
            "a = 1E-400",
            "a double reaches down to 4.9E-324, a float (F) to 1.4E-45",
        ),
        "reserved-word": ErrorKind(
            "a reserved word is not a name", "order = 1 AND like = 2", "rename the property to read it"
        ),
        "null-literal": ErrorKind(
            "NULL cannot be compared or computed with", "a = NULL", "write IS NULL or IS NOT NULL"
        ),
        "unknown-header": ErrorKind(
            "selectors cannot read this header",
            "JMSMessageId = 'ID:1'",
            "names that begin with JMS are reserved for headers; in most dialects JMSX and JMS_ are allowed",
        ),
        "invalid-name": ErrorKind(
            "a property cannot have this name",
            "a..b = 1",
            "a name consists of parts joined by single dots",
            dialect="ibm-mq",
        ),
        # grammar
        "unexpected-token": ErrorKind("this is not allowed here", "a = 1 b"),
        "unexpected-end": ErrorKind("the selector ends too early", "a = "),
        "unclosed-parenthesis": ErrorKind(
            "the parenthesis is never closed", "(a = 1", "write ) after the expression, or leave ( out"
        ),
        "unopened-parenthesis": ErrorKind(
            "the parenthesis was never opened", "a = 1)", "write ( before the expression, or leave ) out"
        ),
        "misplaced-not": ErrorKind(
            "NOT cannot be an operand", "a = NOT b", "put it in parentheses, as in a = (NOT b)"
        ),
        "chained-comparison": ErrorKind(
            "comparisons do not chain", "1 < a < 5", "join two comparisons by AND, or use BETWEEN"
        ),
        "empty-list": ErrorKind(
            "a list of IN needs at least one string",
            "a IN ()",
            "write FALSE for a condition that never holds",
        ),
        # types
        "not-a-condition": ErrorKind(
            "this is a value, not true or false", "weight + 1", "compare it with something"
        ),
        "not-a-number": ErrorKind(
            "this is not a number and cannot be an operand here",
            "'a' + 1 = 2",
            "arithmetic, signs and BETWEEN take numbers and names",
        ),
        "not-a-name": ErrorKind(
            "this operator needs a name on its left", "'abc' LIKE 'a%'", "write the name of a property first"
        ),
        "not-a-string": ErrorKind(
            "a string literal is needed here",
            "a IN (1, 2)",
            "write text in single quotes; compare numbers by =",
        ),
        "string-order": ErrorKind(
            "strings can only be compared by = and <>",
            "name > 'x'",
            "strings have no order; write a number without quotes",
        ),
        "boolean-order": ErrorKind(
            "true and false can only be compared by = and <>", "flag > TRUE", "write = TRUE or = FALSE"
        ),
        "byte-string-order": ErrorKind(
            "byte strings can only be compared by = and <>",
            'a > "0x00"',
            "byte strings have no order",
            dialect="ibm-mq",
        ),
        "unlike-types": ErrorKind(
            "values of these types are never comparable",
            "'a' = 1",
            "no value is converted: write both as strings or both as numbers",
        ),
        "bad-escape": ErrorKind(
            "the escape is exactly one character",
            "a LIKE 'x' ESCAPE 'ab'",
            "write one character, as in ESCAPE '!'",
        ),
        "bad-pattern": ErrorKind(
            "the pattern ends in an escape that escapes nothing",
            "a LIKE 'x!' ESCAPE '!'",
            "double the escape character to match it",
        ),
    }
)
"""Every kind of `InvalidSelectorError`: its sentence, an example and the usual hint."""

LIMIT_KINDS = frozenset({"too-long", "too-deep", "too-many-items"})
"""Kinds of a text that is too large, whether valid or not."""

_PLACE_COLUMN = 64  # where "(dialect …)" begins on the first line of an error, when the sentence leaves room


class Fix(NamedTuple):
    """Edit of a text: the span, perhaps empty, is replaced by `text`."""

    span: Span
    text: str

    def applied(self, text: str) -> str:
        """Return the whole text after the edit."""
        return text[: self.span.start] + self.text + text[self.span.end :]


@dataclass(eq=False)
class SelectorFault(Exception):
    """Internal error of the parser: kind, span, expected tokens, a hint better than the kind's.

    `fixes` are edits worth trying. `parser.parse` adds the text, the dialect and the first fix that gives a
    valid selector, and raises an InvalidSelectorError.
    """

    kind: str
    span: Span
    expected: tuple[str, ...] = ()
    hint: str | None = None
    fixes: tuple[Fix, ...] = ()


class InvalidSelectorError(SelectRouteError):
    """Invalid selector: what is wrong (`kind`, see `KINDS`), where (`span`) and how to repair it.

    ``str()`` renders the text with the span underlined; `to_dict` gives plain data. `expected` names the
    tokens allowed at the span, if known; `hint` is the advice to show, by default the kind's; `fix` is the
    one edit that makes the text valid, if one was found. `reason` is the MQ reason code.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        span: Span,
        expected: tuple[str, ...] = (),
        *,
        hint: str | None = None,
        fix: Fix | None = None,
        dialect: str = "jms",
        reason: int | None = None,
    ) -> None:
        super().__init__(kind, text, span)
        self.kind = kind
        self.text = text
        self.span = span
        self.expected = expected
        self.hint = hint or KINDS[kind].hint
        self.fix = fix
        self.dialect = dialect
        self.reason = KINDS[kind].reason or reason or MQRC_SELECTION_NOT_AVAILABLE

    @property
    def sentence(self) -> str:
        """Sentence of the kind: what is wrong."""
        return KINDS[self.kind].sentence

    @property
    def underlined(self) -> str:
        """Part of the text that is at fault."""
        return self.text[self.span.start : self.span.end]

    @property
    def suggestion(self) -> str | None:
        """Text with the fix applied; None without one."""
        return None if self.fix is None else self.fix.applied(self.text)

    def __str__(self) -> str:
        line, column = position(self.text, self.span.start)
        place = f"line {line}, column {column}" if line > 1 else f"column {column}"
        shown, carets = excerpt(self.text, self.span)
        lines = [
            f"{f'{self.kind}: {self.sentence}':<{_PLACE_COLUMN - 1}} (dialect {self.dialect}, {place})",
            f"  {shown}",
            f"  {carets}",
        ]
        if self.expected:
            lines.append(f"expected: {either(self.expected)}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        suggestion = self.suggestion
        if suggestion is not None and len(suggestion) <= EXCERPT_COLUMNS and suggestion.isprintable():
            lines.append(f"did you mean: {suggestion}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data; offset and length count code points, line and column start at 1."""
        fix = self.fix and {
            "offset": self.fix.span.start,
            "length": self.fix.span.end - self.fix.span.start,
            "text": self.fix.text,
        }
        return {
            "kind": self.kind,
            "message": self.sentence,
            "dialect": self.dialect,
            **place(self.text, self.span),
            "expected": list(self.expected),
            "hint": self.hint,
            "fix": fix,
            "suggestion": self.suggestion,
            "reason": self.reason,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"hint": self.hint, "fix": self.fix, "dialect": self.dialect, "reason": self.reason}
        return type(self), (self.kind, self.text, self.span, self.expected), state


def either(names: tuple[str, ...]) -> str:
    """Return a choice of names in words: ``AND, OR or ')'``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
