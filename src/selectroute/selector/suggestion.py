"""Suggestions for misspelt names: the sentence for a name that is not one of the known ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

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
    spelling = {one.casefold(): one for one in known}
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
    cut = "".join(one if one.isprintable() else "�" for one in text[:_SHOWN])
    return f"{cut}…" if len(text) > _SHOWN else cut
