"""Parser of Java's properties files, the format of the settings of Kafka's tools.

A line is ``name=value``, ``name: value`` or ``name value``; ``#`` and ``!`` begin a comment. A backslash at
the end of a line continues it, and elsewhere escapes: ``\\n``, ``\\t``, ``\\\\``, ``\\u00e9``. Stricter than
Java: a name must have a separator behind it. The text is UTF-8, which Java reads as Latin-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([^u]))")
_PAIR: Final = re.compile(
    rf"(?P<name>(?:[^\\=: \t\f]|{_ESCAPE.pattern})+)(?:[ \t\f]*[=:]|[ \t\f])[ \t\f]*"
    rf"(?P<value>(?:[^\\]|{_ESCAPE.pattern})*)"
)
_ESCAPED: Final = {"f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class PropertiesError(ValueError):
    """Line that is not valid. The text has the number of the line, and nothing of it: it may be a secret."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line} is not name=value"


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of a text; of two with one name, the last. Spaces around a value are dropped.

    Raises:
        PropertiesError: a line has no separator, no name, or an escape that is not valid.

    >>> parse_properties("# login\\na=1\\nb : x \\\\\\n  y\\n")
    {'a': '1', 'b': 'x y'}
    """
    found = {}
    for number, line in _lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None:
            raise PropertiesError(number)
        name, value = (_ESCAPE.sub(_unescaped, one) for one in (pair["name"], _trimmed(pair["value"])))
        if _SURROGATES.search(name + value):
            # Java's escapes are UTF-16. Half a character is not text.
            try:
                name, value = (
                    part.encode("utf-16", "surrogatepass").decode("utf-16") for part in (name, value)
                )
            except UnicodeDecodeError:
                raise PropertiesError(number) from None
        found[name] = value
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, continued ones as one, each with the number of its first."""
    begun, number = "", 0
    for place, part in enumerate(_LINE_END.split(text), 1):
        line = part.lstrip(_BLANK)
        if not number:
            if not line or line.startswith(("#", "!")):
                continue
            number = place
        if _is_continued(line):
            begun += line[:-1]
            continue
        yield number, begun + line
        begun, number = "", 0
    if begun:
        yield number, begun


def _trimmed(value: str) -> str:
    """Drop the blanks at the end, but not one that is escaped."""
    cut = value.rstrip(_BLANK)
    return cut + value[len(cut) : len(cut) + 1] if _is_continued(cut) else cut


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)
