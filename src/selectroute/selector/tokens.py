"""From text to tokens: one compiled pattern for what is right, a slower second look at what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import Fault
from selectroute.selector.names import (
    identifier_length,
    is_identifier_part,
    is_identifier_start,
    is_readable,
    nearest_header,
)
from selectroute.selector.numbers import NumberError, number, number_pattern
from selectroute.selector.source import SURROGATE, Span
from selectroute.selector.values import Double, Float, Long

Token = tuple[str, str | Long | Float | Double | None, int, int]
"""Kind, value, start, end. A plain tuple: a million selectors are read when a broker starts.

The kind is NAME, STRING, NUMBER or END, or a symbol or reserved word itself, in capitals. The value is a
name, a string's content or a number; None as a NUMBER is 9223372036854775808, which waits for its minus
sign.
"""

NAME: Final = "a name"
STRING: Final = "a string"
NUMBER: Final = "a number"
END: Final = "the end"

_WORD, _STRING, _SYMBOL, _NUMBER, _END, _MALFORMED, _OTHER = range(1, 8)  # the pattern's groups

_ELSEWHERE: Final = {
    "==": "write = to compare",
    "!=": "write <> for unequal",
    "=>": "write >=",
    "=<": "write <=",
    "&&": "write AND",
    "||": "write OR",
    "!": "write NOT",
    "&": "write AND",
    "|": "write OR",
    "%": "there is no remainder; as a wildcard, % stands inside the string of LIKE",
    "^": "the arithmetic operators are + - * /",
    "~": "write LIKE to match a pattern",
}
"""Operators of other languages, and what to write instead."""

_ADVICE: Final = {
    ".": "a name has no dots in this dialect",
    ";": "leave the semicolon out",
    "?": "a selector has no parameters",
    ":": "a selector has no parameters",
    "@": "a name cannot begin with @",
    "[": "group with ( and )",
    "{": "group with ( and )",
    "`": "write a name without quotes",
    "\N{LEFT SINGLE QUOTATION MARK}": "write a string in straight quotes, '",
    "\N{RIGHT SINGLE QUOTATION MARK}": "write a string in straight quotes, '",
    "\N{LEFT DOUBLE QUOTATION MARK}": "write a string in straight quotes, '",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "write a string in straight quotes, '",
    "\N{NO-BREAK SPACE}": "this is a no-break space; write a plain one",
}
"""Characters that are often written by mistake, and what to write instead."""


def tokenize(text: str, dialect: Dialect) -> list[Token]:
    """Return the tokens of `text`, the last one END. O(n). Raises Fault."""
    if not text.isascii() and (half := SURROGATE.search(text)):
        raise Fault("not-a-character", Span(*half.span()))
    tokens: list[Token] = []
    append = tokens.append
    reserved = dialect.reserved
    for match in _scanner(dialect)(text):
        group = match.lastindex
        assert group is not None  # one of the alternatives matches everywhere
        start, end = match.span(group)
        word = match[group]
        if group == _WORD:
            capitals = word.upper()
            if capitals in reserved and word.isascii():  # the long s is no S, though its capital is
                append((capitals, None, start, end))
                continue
            if not word.isascii() and (length := identifier_length(word)) < end - start:
                raise _misplaced(text, start + length)
            if word.startswith(dialect.reserved_prefix) and not is_readable(word, dialect):
                near = nearest_header(word, dialect)
                hint = f"did you mean {near}?" if near else None
                raise Fault("unknown-header", Span(start, end), hint=hint)
            append((NAME, word, start, end))
        elif group == _SYMBOL:
            append((word, None, start, end))
        elif group == _STRING:
            content = word[1:-1]
            append((STRING, content.replace("''", "'") if "''" in content else content, start, end))
        elif group == _NUMBER:
            try:
                append((NUMBER, number(word, dialect.numbers), start, end))
            except NumberError as error:
                raise Fault(error.kind, Span(start, end)) from None
        elif group == _END:
            append((END, None, start, end))
            break
        elif group == _MALFORMED:
            raise Fault("malformed-number", Span(start, end))
        else:
            raise _misplaced(text, start)
    return tokens


@cache
def _scanner(dialect: Dialect) -> Callable[[str], Iterator[re.Match[str]]]:
    """Return the iterator over the tokens of a text, each with the white space before it.

    Every character outside ASCII that is no white space counts as part of a word here; `tokenize` looks
    again.
    """
    ascii_characters = [chr(code) for code in range(128)]
    start = _none_of(dialect.whitespace, (c for c in ascii_characters if not is_identifier_start(c)))
    part = _none_of(dialect.whitespace, (c for c in ascii_characters if not is_identifier_part(c)))
    forms = (  # in the order of the groups' numbers
        f"({start}{part}*+)",
        "('[^']*+(?:''[^']*+)*+')",
        "(<>|<=|>=|=(?![=<>])|[-<>()+*/,])",
        f"((?>{number_pattern(dialect.numbers)})(?!{part}|\\.))",
        "(\\Z)",
        f"(\\.?[0-9](?:{part}|\\.)*+)",
        "(.)",
    )
    return re.compile(f"[{re.escape(dialect.whitespace)}]*+(?:{'|'.join(forms)})", re.DOTALL).finditer


def _none_of(whitespace: str, characters: Iterable[str]) -> str:
    return f"[^{re.escape(whitespace + ''.join(characters))}]"


def _misplaced(text: str, start: int) -> Fault:
    """Return the error for a character with which no token begins."""
    character = text[start]
    kind, end, hint = "unexpected-character", start + 1, _ADVICE.get(character)
    if character == "'":
        kind, end = "unterminated-string", len(text)
    elif character == '"':
        closing = text.find('"', start + 1)
        end = closing + 1 if closing >= 0 else len(text)
        content = text[start + 1 : closing] if closing >= 0 else ""
        kind = "double-quotes"
        if content and len(content) <= 40 and content.isprintable():
            hint = "write '" + content.replace("'", "''") + "'"
    else:
        for operator in (text[start : start + 2], character):
            if operator in _ELSEWHERE:
                kind, end, hint = "unknown-operator", start + len(operator), _ELSEWHERE[operator]
                break
    return Fault(kind, Span(start, end), hint=hint)
