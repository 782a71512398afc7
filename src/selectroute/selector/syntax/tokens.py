"""Tokenizer: one compiled pattern for valid tokens, and a slower second look at an invalid one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from string import hexdigits
from typing import Final

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import Fix, SelectorFault
from selectroute.selector.names import (
    FOREIGN_NAMES,
    identifier_length,
    is_identifier_part,
    is_identifier_start,
    unreadable,
)
from selectroute.selector.syntax.numbers import NumberError, number, number_pattern
from selectroute.selector.syntax.source import SURROGATE, Span
from selectroute.selector.values import Double, Float, Long

Token = tuple[str, str | bytes | Long | Float | Double | None, int, int]
"""Kind, value, start, end. A plain tuple: a million selectors are read when a broker starts.

The kind is NAME, STRING, BYTES, NUMBER or END, or a symbol or reserved word itself, in capitals. The value is
a name, the content of a string or byte string, or a number; a NUMBER of value None is 9223372036854775808,
which needs a minus sign.
"""

NAME: Final = "a name"
STRING: Final = "a string"
BYTES: Final = "a byte string"
NUMBER: Final = "a number"
END: Final = "the end"

_WORD, _STRING, _SYMBOL, _NUMBER, _END, _BYTES, _MALFORMED, _OTHER = range(1, 9)  # the pattern's groups

_ELSEWHERE: Final = {
    "==": ("write = to compare", "="),
    "!=": ("write <> for unequal", "<>"),
    "^=": ("write <> for unequal", "<>"),
    "=>": ("write >=", ">="),
    "=<": ("write <=", "<="),
    "&&": ("write AND", "AND"),
    "||": ("write OR", "OR"),
    "!": ("write NOT", "NOT"),
    "&": ("write AND", "AND"),
    "|": ("write OR", "OR"),
    "%": ("there is no remainder operator; write the wildcard % inside the string of LIKE", None),
    "^": ("the arithmetic operators are + - * /", None),
    "~": ("write LIKE to match a pattern", None),
}
"""Operators of other languages: the hint, and the replacement."""

_ADVICE: Final = {
    ";": "leave the semicolon out",
    "?": "a selector has no parameters",
    ":": "a selector has no parameters",
    "@": "a name cannot begin with @",
    "[": "group with ( and )",
    "{": "group with ( and )",
    "`": "write a name without quotes",
    **dict.fromkeys("\u2018\u2019\u201c\u201d", "write a string in straight quotes, '"),
    "\N{NO-BREAK SPACE}": "this is a no-break space; write a plain one",
    "\N{ZERO WIDTH NO-BREAK SPACE}": "this is a byte order mark; leave it out",
}
"""Characters often written by mistake, and the hint."""


def tokenize(text: str, dialect: Dialect) -> list[Token]:
    """Return the tokens of `text`, the last one END. O(n). Raises SelectorFault."""
    check_characters(text)
    tokens: list[Token] = []
    append = tokens.append
    reserved, dots = dialect.reserved, dialect.dotted_names
    for match in _scanner(dialect)(text):
        group = match.lastindex
        assert group is not None  # one of the alternatives matches everywhere
        start, end = match.span(group)
        word = match[group]
        if group == _WORD:
            capitals = word.upper()
            if capitals in reserved and word.isascii():  # the long s is not an S, though its capital is
                append((capitals, None, start, end))
                continue
            if not word.isascii() and (length := identifier_length(word, dots)) < end - start:
                raise _misplaced(text, start + length, dialect)
            if (problem := unreadable(word, dialect)) is not None:
                span, near = Span(start, end), problem.near
                readable = tuple(sorted(dialect.headers)) if problem.kind == "unknown-header" else ()
                fixes = (Fix(span, near),) if near else ()
                raise SelectorFault(problem.kind, span, readable, hint=problem.hint, fixes=fixes)
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
                raise _no_number(error.kind, text, Span(start, end)) from None
        elif group == _END:
            append((END, None, start, end))
            break
        elif group == _BYTES:
            append((BYTES, bytes.fromhex(word[3:-1]), start, end))
        elif group == _MALFORMED:
            for at in range(start, end):
                if text[at] != "." and not is_identifier_part(text[at]):  # outside ASCII: see `_scanner`
                    raise _misplaced(text, at, dialect)
            raise _no_number("malformed-number", text, Span(start, end))
        else:
            raise _misplaced(text, start, dialect)
    return tokens


def check_characters(text: str) -> None:
    """Raise a SelectorFault for half of a surrogate pair, which UTF-8 cannot encode. O(n)."""
    if not text.isascii() and (half := SURROGATE.search(text)):
        raise SelectorFault("not-a-character", Span(*half.span()))


@cache
def _scanner(dialect: Dialect) -> Callable[[str], Iterator[re.Match[str]]]:
    """Return the iterator over the tokens of a text, each with the white space before it.

    Every character outside ASCII except white space counts as part of a word here; `tokenize` checks it.
    """
    ascii_characters = [chr(code) for code in range(128)]
    start = _none_of(dialect.whitespace, (c for c in ascii_characters if not is_identifier_start(c)))
    part = _none_of(dialect.whitespace, (c for c in ascii_characters if not is_identifier_part(c)))
    # (?>(?:…)*) in place of (?:…)*+, which in Python 3.11.2 keeps what a repetition that fails has read.
    forms = (  # in the order of the groups' numbers
        f"({start}{part}*+(?>(?:\\.{part}++)*)(?!\\.))" if dialect.dotted_names else f"({start}{part}*+)",
        "('[^']*+(?>(?:''[^']*+)*)')",
        "(<>|<=|>=|=(?![=<>])|[-<>()+*/,])",
        f"((?>{number_pattern(dialect.numbers)})(?!{part}|\\.))",
        "(\\Z)",
        '("0[xX](?>(?:[0-9a-fA-F]{2})+)")' if dialect.byte_strings else "((?!))",
        f"(\\.?[0-9](?:{part}|\\.)*+)",
        "(.)",
    )
    return re.compile(f"[{re.escape(dialect.whitespace)}]*+(?:{'|'.join(forms)})", re.DOTALL).finditer


def _none_of(whitespace: str, characters: Iterable[str]) -> str:
    return f"[^{re.escape(whitespace + ''.join(characters))}]"


_AZURE: Final = re.compile(r"(?<!\w)(?:user\.(\w+)|sys\.\w+)")
"""Name of a property, or of a header, in a filter of Azure Service Bus."""


def _misplaced(text: str, start: int, dialect: Dialect) -> SelectorFault:
    """Return the error for a character that begins no token."""
    character = text[start]
    if character == "'":
        return SelectorFault(
            "unterminated-string", Span(start, len(text)), fixes=_closing_quotes(text, start)
        )
    if character == '"':
        return _double_quotes(text, start, dialect)
    for operator in (text[start : start + 2], character):
        if operator in _ELSEWHERE:
            advice, right = _ELSEWHERE[operator]
            span = Span(start, start + len(operator))
            fixes = (Fix(span, _apart(text, span, right)),) if right else ()
            null = _NULL.match(text, span.end)
            if null and right in ("=", "<>"):
                fixes = (Fix(Span(start, null.end()), "IS NULL" if right == "=" else "IS NOT NULL"),)
            return SelectorFault("unknown-operator", span, hint=advice, fixes=fixes)
    if dialect.dotted_names and is_identifier_start(character):
        end = start
        while end < len(text) and (text[end] == "." or is_identifier_part(text[end])):
            end += 1
        return SelectorFault(
            "invalid-name", Span(start, end), hint="each dot must be between two parts of a name"
        )
    span, hint = Span(start, start + 1), _ADVICE.get(character)
    if character == "." and not dialect.dotted_names:
        for name in _AZURE.finditer(text, max(start - 4, 0), start + 64):
            right = name[1] or FOREIGN_NAMES.get(name[0])
            if name.start() < start < name.end() and right is not None:
                fix = Fix(Span(*name.span()), right)
                return SelectorFault("unexpected-character", span, hint=f"write {right}", fixes=(fix,))
        hint = (
            "a name has no dots in this dialect; in ibm-mq it may have them "
            "(Selector(text, 'ibm-mq'), dialect='ibm-mq', --dialect ibm-mq)"
        )
    if unicodedata.category(character) == "Zs":
        hint = hint or "selectors do not allow this kind of space; write a plain one"
    return SelectorFault("unexpected-character", span, hint=hint, fixes=_instead(text, start))


def _instead(text: str, start: int) -> tuple[Fix, ...]:
    """Return the fix of a character that begins no token, possibly up to its closing counterpart."""
    character = text[start]
    closing = text.find(_CLOSING.get(character, character), start + 1)
    inside = text[start + 1 : closing]
    if character in _CLOSING and closing > 0:
        return (Fix(Span(start, closing + 1), inside if character in "`[" else _quoted(inside)),)
    if unicodedata.category(character) == "Zs":
        return (Fix(Span(start, start + 1), " "),)
    return (Fix(Span(start, start + 1), ""),) if character in ";\N{ZERO WIDTH NO-BREAK SPACE}" else ()


def _no_number(kind: str, text: str, span: Span) -> SelectorFault:
    """Return the error for a malformed number, with the fix of a superfluous leading zero."""
    digits = text[span.start : span.end].lstrip("0")
    return SelectorFault(kind, span, fixes=(Fix(span, digits),) if kind == "malformed-octal" else ())


def _double_quotes(text: str, start: int, dialect: Dialect) -> SelectorFault:
    """Return the error for text in double quotes that is not a byte string of the dialect."""
    closing = text.find('"', start + 1)
    if closing < 0:  # "x': the wrong quote at one end
        return SelectorFault(
            "double-quotes", Span(start, len(text)), fixes=(Fix(Span(start, start + 1), "'"),)
        )
    span, content = Span(start, closing + 1), text[start + 1 : closing]
    if dialect.byte_strings and content[:2] in ("0x", "0X"):
        digits = content[2:]
        if digits and all(digit in hexdigits for digit in digits):
            return SelectorFault("odd-byte-string", span, fixes=(Fix(Span(start + 3, start + 3), "0"),))
        return SelectorFault("malformed-byte-string", span)
    string = _quoted(content)
    hint = f"write {string}" if content and len(content) <= 40 and content.isprintable() else None
    as_name = (Fix(span, content),) if _AFTER_NAME.match(text, closing + 1) else ()  # as SQL writes names
    return SelectorFault("double-quotes", span, hint=hint, fixes=(*as_name, Fix(span, string)))


def _quoted(content: str) -> str:
    return "'" + content.replace("'", "''") + "'"


def _apart(text: str, span: Span, word: str) -> str:
    """Return a word with the spaces that it needs at the span; a symbol needs none."""
    if not word.isalpha():
        return word
    before = " " if text[: span.start] and not text[span.start - 1].isspace() else ""
    after = " " if text[span.end :] and not text[span.end].isspace() else ""
    return f"{before}{word}{after}"


def _closing_quotes(text: str, start: int) -> tuple[Fix, ...]:
    """Return the fixes of an unterminated string: a closing quote before AND, OR or ')', or at the end; a
    closing double quote replaced; or an earlier quote within a word doubled.
    """
    wrong = text.find('"', start)
    fixes = [Fix(Span(wrong, wrong + 1), "'")] if wrong > 0 else []
    fixes += [
        Fix(Span(quote.start(), quote.start()), "'") for quote in _WITHIN_WORD.finditer(text, 0, start)
    ][-1:]
    places = [match.start() for match in islice(_AFTER_STRING.finditer(text, start + 1), 8)]
    return (*fixes, *(Fix(Span(place, place), "'") for place in (*places, len(text))))


_CLOSING: Final = {
    "`": "`",
    "[": "]",
    "\N{LEFT SINGLE QUOTATION MARK}": "\N{RIGHT SINGLE QUOTATION MARK}",
    "\N{RIGHT SINGLE QUOTATION MARK}": "\N{RIGHT SINGLE QUOTATION MARK}",
    "\N{LEFT DOUBLE QUOTATION MARK}": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "\N{RIGHT DOUBLE QUOTATION MARK}",
}
"""Quotes and brackets of other languages, and their closing counterparts."""

_WITHIN_WORD: Final = re.compile(r"(?<=\w)'(?=\w)")
_NULL: Final = re.compile(r"\s*NULL\b", re.IGNORECASE)

_AFTER_NAME: Final = re.compile(
    r"\s*(?:(?:NOT\s+)?(?:IN|LIKE|BETWEEN|IS)\b|(?:<>|<=|>=|[=<>])\s*['0-9.+-])", re.IGNORECASE
)
"""Text after a name rather than a string: an operator of names, or a comparison with a literal."""

_AFTER_STRING: Final = re.compile(r"(?<!\s)\s*+(?:\)|(?<=\s)(?:AND|OR)\b)", re.IGNORECASE)
