"""Positions in a selector's text: spans, lines and columns, and the underlined excerpt of an error.

Offsets count code points, as Python's ``str`` does, and are half-open. Columns shown to users start at 1.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

EXCERPT_COLUMNS = 100
"""Widest excerpt shown; a longer line is cut around the span."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair: a code point that is not a character, and that UTF-8 cannot encode."""

_LEAD_COLUMNS = 40  # how much text before a span stays visible when its line is cut
_LINE_END = re.compile(r"\r\n|\r|\n")


class Span(NamedTuple):
    """Half-open range ``[start, end)`` of code points that a token or node takes up in its text.

    The span of a parenthesised node includes the parentheses. An empty span (``start == end``) is a position
    between two characters, such as the end of the text.
    """

    start: int
    end: int


NOWHERE = Span(0, 0)
"""Span of a node that was not parsed from a text."""


class TextPosition(NamedTuple):
    """Line and column, both starting at 1; the column counts code points."""

    line: int
    column: int


def position(text: str, offset: int) -> TextPosition:
    """Return the line and column of `offset` in `text`. Lines end with CR LF, CR or LF. O(offset)."""
    line, line_start = 1, 0
    for end_of_line in _LINE_END.finditer(text, 0, offset):
        line, line_start = line + 1, end_of_line.end()
    return TextPosition(line, offset - line_start + 1)


def place(text: str, span: Span) -> dict[str, int]:
    """Return a span as plain data; offset and length count code points, line and column start at 1."""
    line, column = position(text, span.start)
    return {"offset": span.start, "length": span.end - span.start, "line": line, "column": column}


def excerpt(text: str, span: Span) -> tuple[str, str]:
    """Return the line of `text` in which `span` starts, and the carets that underline the span.

    Both are safe to print: a tab becomes a space, an unprintable character a replacement character. A long
    line is cut around the span, each cut marked by an ellipsis; a span of several lines is underlined to the
    end of its first.
    """
    line_start = span.start - position(text, span.start).column + 1
    next_end = _LINE_END.search(text, span.start)
    line_end = next_end.start() if next_end else len(text)
    stop = max(span.start, min(span.end, line_end))

    first, last = line_start, line_end
    if last - first > EXCERPT_COLUMNS:
        first = max(first, min(span.start - _LEAD_COLUMNS, last - EXCERPT_COLUMNS))
        last = min(last, first + EXCERPT_COLUMNS)
    stop = min(stop, last)

    before, marked, after = text[first : span.start], text[span.start : stop], text[stop:last]
    left = "…" if first > line_start else ""
    right = "…" if last < line_end else ""
    shown = "".join(map(_printable, before + marked + after))
    carets = "^" * max(1, sum(map(_columns, marked)))
    return f"{left}{shown}{right}", " " * (len(left) + sum(map(_columns, before))) + carets


def _printable(character: str) -> str:
    if character == "\t":
        return " "
    if character.isprintable() or unicodedata.category(character) in ("Zs", "Cf"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


def _columns(character: str) -> int:
    """Return the width of the character in a terminal, in columns."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
