"""Rules on words for the parser: which of them a dialect has, and which was meant where another stands."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import pairwise
from typing import Final, cast

from selectroute.selector.dialect import Dialect
from selectroute.selector.errors import KINDS, Fault, Fix
from selectroute.selector.syntax.printer import literal_text
from selectroute.selector.syntax.source import Span
from selectroute.selector.syntax.tokens import END, NAME, NUMBER, STRING, Token

OPERAND: Final = ("a name", "a literal", "a sign", "'('")
"""What may stand before or at an operand, as an error names it."""

AFTER_NAME: Final = ("BETWEEN", "IN", "LIKE")
"""Words after a name; each may have NOT before it."""

AFTER_CONDITION: Final = frozenset({"AND", "OR", ")", END})

LONGEST_MENDED: Final = 100_000
"""Fixes of longer texts are not tried: each try reads the text again."""

INFIX: Final = ("AND", "OR", "BETWEEN", "IN", "LIKE", "IS", "NOT")
"""Words that stand where a misspelt one stood after an operand."""


def check_words(tokens: list[Token], dialect: Dialect) -> None:
    """Raise a Fault for a symbol or reserved word that the dialect lacks; a sign that touches its number is
    none.
    """
    before = None
    for (kind, _, start, end), (after, _, next_start, _) in pairwise(tokens):
        signs = dialect.signs_touch and before in (None, "AND", "=") and after is NUMBER and end == next_start
        if kind in dialect.lacks and not (signs and kind in ("+", "-")):
            raise Fault("not-in-dialect", Span(start, end), _instead(before))
        before = kind


def _instead(before: str | None) -> tuple[str, ...]:
    """Return what may stand after this token, where a dialect without conditions but ``=`` and IS NULL lacks
    one.
    """
    if before is NAME:
        return ("'='", "IS")
    if before == "IS" or before == "=":
        return ("NULL",) if before == "IS" else ("a name", "a literal")
    return ("a name", "a literal") if before in (None, "AND") else ("AND", "the end")


def had(names: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """Return what of this, that might be expected, the dialect has."""
    return tuple(name for name in names if name.strip("'") not in dialect.lacks)


def fitting_hint(hint: str | None, dialect: Dialect) -> str | None:
    """Return a hint, or what the dialect does have if the hint names what it lacks."""
    if hint is not None and any(word.strip(",.;") in dialect.lacks for word in hint.split()):
        return KINDS["not-in-dialect"].hint
    return hint


def null_test(operator: tuple[int, str, int], null: Token) -> tuple[Fix, ...]:
    """``= NULL`` was meant to be IS NULL, ``<> NULL`` IS NOT NULL."""
    _, kind, start = operator
    meant = {"=": "IS NULL", "<>": "IS NOT NULL"}.get(kind)
    return (Fix(Span(start, null[3]), meant),) if meant else ()


def check_list(token: Token) -> None:
    """Raise a Fault for a string after IN, which was meant to be a list of one."""
    kind, text, start, end = token
    if kind is STRING:
        fix = Fix(Span(start, end), f"({literal_text(cast(str, text))})")
        raise Fault("unexpected-token", fix.span, ("'('",), fixes=(fix,))


def misspelt(token: Token, words: tuple[str, ...]) -> tuple[Fix, ...]:
    """Fixes for a name that was probably meant to be one of the words."""
    kind, name, start, end = token
    near = get_close_matches(cast(str, name).upper()[:16], words, n=2) if kind is NAME else ()
    return tuple(Fix(Span(start, end), word) for word in near)


def readable(kind: str) -> str:
    """Return a kind of token as an error names it."""
    return f"'{kind}'" if kind in ("(", ")", ",") else kind
