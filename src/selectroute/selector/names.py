"""Names: which characters Java allows in an identifier, and which names a selector may read."""

from __future__ import annotations

import difflib
import unicodedata
from functools import lru_cache

from selectroute.selector.dialect import Dialect

# Character.isJavaIdentifierStart: letters, letter numbers, currency symbols and connecting punctuation.
_START = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
# Character.isJavaIdentifierPart: also digits, combining marks, and what is ignorable in an identifier: the
# format characters and these controls.
_PART = _START | {"Nd", "Mn", "Mc", "Cf"}
_IGNORABLE = ((0x00, 0x08), (0x0E, 0x1B), (0x7F, 0x9F))


def is_identifier_start(character: str) -> bool:
    """Return Character.isJavaIdentifierStart of one code point."""
    return unicodedata.category(character) in _START


def is_identifier_part(character: str) -> bool:
    """Return Character.isJavaIdentifierPart of one code point."""
    return unicodedata.category(character) in _PART or any(
        low <= ord(character) <= high for low, high in _IGNORABLE
    )


def identifier_length(text: str) -> int:
    """Return how many characters from the start of `text` form an identifier; 0 if it cannot start one."""
    if not text or not is_identifier_start(text[0]):
        return 0
    for length, character in enumerate(text):
        if not is_identifier_part(character):
            return length
    return len(text)


def is_readable(name: str, dialect: Dialect) -> bool:
    """Return whether a selector may read `name`: any property, and of the headers those of the dialect."""
    return (
        not name.startswith(dialect.reserved_prefix)
        or name in dialect.headers
        or name.startswith(dialect.property_prefixes)
    )


@lru_cache(maxsize=256)
def nearest_header(name: str, dialect: Dialect) -> str | None:
    """Return the header that `name` was probably meant to be."""
    spelling = {header.casefold(): header for header in sorted(dialect.headers)}
    near = difflib.get_close_matches(name[:64].casefold(), spelling, n=1, cutoff=0.8)
    return spelling[near[0]] if near else None
