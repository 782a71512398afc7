"""Table of the differences between dialects, in words, made from the records of `dialect`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from selectroute.selector.dialect import DIALECTS, Dialect, NumberSyntax
from selectroute.selector.fields import PREFIX
from selectroute.selector.values.truth import VOID, Truth, Void
from selectroute.selector.values.values import TYPE_NAMES

NONE: Final = "–"

_SHORT: Final = 40

_NEEDS: Final = {"negative_zero": "+", "arithmetic_on_null": "+", "between_on_null": "BETWEEN"}
"""Operator that a field is about; the field has no meaning in a dialect without the operator."""


class DialectRow(NamedTuple):
    """Row of the table: a field of `Dialect`, its title, and its text in each dialect, by name."""

    field: str
    title: str
    cells: dict[str, str]


def rows(names: Sequence[str] = tuple(DIALECTS), *, differences: bool = False) -> list[DialectRow]:
    """Return every field of `Dialect`, in words; a long text is shortened to its difference from the first.

    Args:
        names: the dialects to compare.
        differences: leave out the fields that are the same in all of them.
    """
    first, *others = (DIALECTS[name] for name in names)
    table = []
    for field, title, describe in _FIELDS:
        cells = {first.name: describe(getattr(first, field))}
        for other in others:
            cells[other.name] = _cell(field, describe, first, other)
        is_same = all(getattr(first, field) == getattr(other, field) for other in others)
        if not (differences and is_same):
            table.append(DialectRow(field, title, cells))
    return table


def _cell(field: str, describe: Callable[[Any], str], first: Dialect, other: Dialect) -> str:
    if _NEEDS.get(field) in other.lacks:
        return NONE
    value, base = getattr(other, field), getattr(first, field)
    text = describe(value)
    if text == describe(base):
        return text if len(text) <= _SHORT else f"as `{first.name}`"
    if isinstance(value, frozenset) and base and base & value:
        without = f", without {_listed(base - value)}" if base - value else ""
        more = f", and {_listed(value - base)}" if value - base else ""
        return f"as `{first.name}`{without}{more}"
    return text


_DOCUMENTS: Final = {
    "000": "IBM MQ, *Message selectors in JMS*",
    "001": "WebSphere MQ Everyplace, *Message selectors*",
    "002": "IBM MQ, *Message selector syntax*",
    "004": "JMS specification, chapter 3.8",
}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _whitespace(characters: str) -> str:
    named = [_SPACES[character] for character in _SPACES if character in characters]
    others = len(characters) - len(named)
    return ", ".join(named) + (f" and {others} more of Unicode" if others else "")


_SPACES: Final = {" ": "space", "\t": "HT", "\n": "LF", "\v": "VT", "\f": "FF", "\r": "CR"}


def _numbers(syntax: NumberSyntax) -> str:
    """Return how exact and approximate literals are written."""
    bases = ", ".join(_BASES[base] for base in sorted(syntax.bases) if base != 10)
    parts = [f"decimal, {bases}" if bases else "decimal"]
    if syntax.separator:
        parts.append(f"`{syntax.separator}` between digits")
    if syntax.long_suffix:
        parts.append("`L`")
    if syntax.suffixes:
        suffixes = sorted(syntax.suffixes.items())
        parts.append(", ".join(f"`{suffix}` {TYPE_NAMES[kind]}" for suffix, kind in suffixes))
    if syntax.hexadecimal_floats:
        parts.append("`0x1.8p3`")
    if not syntax.zero_before_approximate:
        parts.append("no `010.5`, `07E3`")
    return "; ".join(parts)


_BASES: Final = {2: "binary `0b1`", 8: "octal `017`", 16: "hex `0x1F`"}


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(f"`{name}`" for name in ordered) if ordered else NONE


def _fields(fields: Any) -> str:
    """Return the identifiers that read a derived field, in full only if they are few."""
    if len(fields) > 4:
        return f"{len(fields)} synonyms of header fields (*Property name restrictions*)"
    return "; ".join(f"`{name}` as {_field(field)}" for name, field in fields.items()) or NONE


def _field(field: str) -> str:
    name, _, kind = field.removeprefix(PREFIX).partition(":")
    return f"the {kind} 1 or 2" if kind else f"`{name}`"


def _ids(fields: Any) -> str:
    return "; ".join(f"`{name} = 'ID:…'` alone" for name in fields) or NONE


def _promotes(promotes: bool) -> str:
    return "after Java's binary promotion" if promotes else "only of the same type"


def _outcome(outcome: Truth | Void | None) -> str:
    if outcome is VOID:
        return "**the whole selector is false**"
    if outcome is None:
        return "NULL"
    return f"that operation is {outcome.name}"


def _between(outcome: Truth | None) -> str:
    return "by its equivalence" if outcome is None else f"{outcome.name}; NOT BETWEEN TRUE"


_FIELDS: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("seed", "source", _DOCUMENTS.__getitem__),
    ("whitespace", "white space", _whitespace),
    ("numbers", "numbers", _numbers),
    ("byte_strings", 'byte strings `"0x2F1C"`', _yes),
    ("reserved", "reserved words, in any case", _listed),
    ("dotted_names", "dots in names", _yes),
    ("headers", "header fields", _listed),
    ("reserved_prefix", "names reserved for headers begin with", lambda prefix: f"`{prefix}`"),
    ("property_prefixes", "except properties that begin with", _listed),
    ("name_rules", "rules on property names (IBM MQ, *Property name restrictions*)", _yes),
    ("lacks", "not in the grammar", _listed),
    ("signs_touch", "a sign touches its number", _yes),
    ("bare_conditions", "a name or TRUE alone is a condition", _yes),
    ("unlike_literals", "`1 = '1'` is a selector, always false", _yes),
    ("fields", "names read from other fields", _fields),
    ("id_fields", "24 bytes matched, not strings", _ids),
    ("int_identifiers", "an exact literal is an int for", _listed),
    ("promotes", "numbers of different types compare", _promotes),
    ("negative_zero", "arithmetic tells -0.0 from 0.0", _yes),
    ("unlike_types", "unlike types", _outcome),
    ("arithmetic_on_null", "arithmetic on NULL", _outcome),
    ("between_on_null", "BETWEEN with NULL", _between),
    ("extended", "subscriptions of type EXTENDED", _yes),
)
