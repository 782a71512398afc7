"""Rules on words for the parser: the words that a dialect has, and fixes for misspelt words."""

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
"""Tokens that may begin an operand, as an error names them."""

AFTER_NAME: Final = ("BETWEEN", "IN", "LIKE")
"""Words that may follow a name, also after NOT."""

AFTER_CONDITION: Final = frozenset({"AND", "OR", ")", END})

LONGEST_MENDED: Final = 100_000
"""Characters of the longest text for which fixes are tried: each try parses the text again."""

INFIX: Final = ("AND", "OR", "BETWEEN", "IN", "LIKE", "IS", "NOT")
"""Words that may follow an operand: corrections of a misspelt one."""


_FUNCTION: Final = "selectors have no functions: compare a property that has the value already"


def call(name: str, tokens: list[Token], at: int) -> tuple[str | None, tuple[Fix, ...]]:
    """Return the hint and the fixes for a name before the token at an index, as in ``upper(a)``; None if they
    do not call a function.
    """
    kind = tokens[at][0]
    if name.upper() == "XPATH" and kind in (STRING, "("):
        return "there is no XPATH: bind a field of the body to a property, and compare the property", ()
    if kind != "(":
        return None, ()
    if name.upper() != "EXISTS":
        return _FUNCTION, ()
    if [one[0] for one in tokens[at + 1 : at + 3]] != [NAME, ")"]:
        return "write NAME IS NOT NULL", ()
    span, property_name = Span(tokens[at - 1][2], tokens[at + 2][3]), cast(str, tokens[at + 1][1])
    return "write NAME IS NOT NULL", (Fix(span, f"{property_name} IS NOT NULL"),)


def check_words(tokens: list[Token], dialect: Dialect) -> None:
    """Raise a Fault for a symbol or reserved word that the dialect lacks; a number's own sign is allowed."""
    before = None
    for (kind, _, start, end), (after, _, next_start, _) in pairwise(tokens):
        signs = dialect.signs_touch and before in (None, "AND", "=") and after is NUMBER and end == next_start
        if kind in dialect.lacks and not (signs and kind in ("+", "-")):
            raise Fault("not-in-dialect", Span(start, end), _instead(before))
        before = kind


def _instead(before: str | None) -> tuple[str, ...]:
    """Return the tokens allowed after this one in a dialect that only has ``=`` and IS NULL."""
    if before is NAME:
        return ("'='", "IS")
    if before == "IS" or before == "=":
        return ("NULL",) if before == "IS" else ("a name", "a literal")
    return ("a name", "a literal") if before in (None, "AND") else ("AND", "the end")


def had(names: tuple[str, ...], dialect: Dialect) -> tuple[str, ...]:
    """Return the names that the dialect has."""
    return tuple(name for name in names if name.strip("'") not in dialect.lacks)


def fitting_hint(hint: str | None, dialect: Dialect) -> str | None:
    """Return the hint; if it names a word that the dialect lacks, the hint of ``not-in-dialect`` instead."""
    if hint is not None and any(word.strip(",.;") in dialect.lacks for word in hint.split()):
        return KINDS["not-in-dialect"].hint
    return hint


def null_test(operator: tuple[int, str, int], null: Token) -> tuple[Fix, ...]:
    """Return the fix of ``= NULL`` to IS NULL and of ``<> NULL`` to IS NOT NULL."""
    _, kind, start = operator
    meant = {"=": "IS NULL", "<>": "IS NOT NULL"}.get(kind)
    return (Fix(Span(start, null[3]), meant),) if meant else ()


def check_list(token: Token) -> None:
    """Raise a Fault for a string after IN, with the fix to a list of one string."""
    kind, text, start, end = token
    if kind is STRING:
        fix = Fix(Span(start, end), f"({literal_text(cast(str, text))})")
        raise Fault("unexpected-token", fix.span, ("'('",), fixes=(fix,))


def misspelt(token: Token, words: tuple[str, ...]) -> tuple[Fix, ...]:
    """Return the fixes of a name that is probably a misspelt one of these words."""
    kind, name, start, end = token
    near = get_close_matches(cast(str, name).upper()[:16], words, n=2) if kind is NAME else ()
    return tuple(Fix(Span(start, end), word) for word in near)


def readable(kind: str) -> str:
    """Return a kind of token as an error names it."""
    return f"'{kind}'" if kind in ("(", ")", ",") else kind
