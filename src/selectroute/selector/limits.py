"""Limits on the size of a selector, checked before a tree is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from selectroute.selector.errors import SelectorFault
from selectroute.selector.syntax.source import Span
from selectroute.selector.syntax.tokens import BYTES, NAME, NUMBER, STRING, Token

MAX_LINE: Final = 4 << 20
"""Characters in a line of JSON: room for an escaped selector of the largest configurable size."""

MAX_LINE_BYTES: Final = 4 * MAX_LINE
"""Bytes in such a line before it is decoded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest selector that is accepted. The parser takes any size; limits protect a shared service.

    >>> Limits(nesting=1_000)
    Limits(length=10240, nesting=1000, items=10000)
    """

    length: int = 10_240
    """Code points; IBM MQ's limit."""

    nesting: int = 255
    """Parentheses, NOTs and signs inside each other."""

    items: int = 10_000
    """Strings in one list of IN."""

    def include(self, other: Limits) -> bool:
        """Return whether every selector within `other` is also within these limits."""
        return self.length >= other.length and self.nesting >= other.nesting and self.items >= other.items


_OPERANDS: Final = frozenset({NAME, NUMBER, STRING, BYTES, ")", "TRUE", "FALSE", "NULL"})

DEFAULT_LIMITS: Final = Limits()

UNLIMITED: Final = Limits(length=2**63, nesting=2**63, items=2**63)
"""Limits for texts that were accepted before, perhaps under other limits."""


def check_length(text: str, limits: Limits) -> None:
    """Raise a SelectorFault for a text that is too long. O(1)."""
    if len(text) > limits.length:
        hint = f"it has {len(text):,} characters, the limit is {limits.length:,}"
        raise SelectorFault("too-long", Span(limits.length, len(text)), hint=hint)


def check_size(tokens: list[Token], limits: Limits) -> None:
    """Raise a SelectorFault for tokens that nest too deeply or list too many items. O(tokens)."""
    if len(tokens) <= min(limits.nesting, limits.items):
        return
    groups: list[int] = []  # the levels outside each open parenthesis
    prefixes = items = 0
    after_operand = False
    for kind, _, start, end in tokens:
        if kind == "(":
            groups.append(prefixes)
            prefixes += 1
            items = 0
        elif kind == ")":
            prefixes = groups.pop() if groups else 0
        elif kind == "NOT" or ((kind == "+" or kind == "-") and not after_operand):
            prefixes += 1
        else:
            prefixes = groups[-1] + 1 if groups else 0
            if kind is STRING:
                items += 1
            elif kind != ",":
                items = 0
        after_operand = kind in _OPERANDS
        if prefixes > limits.nesting:
            raise SelectorFault("too-deep", Span(start, end), hint=f"the limit is {limits.nesting:,} levels")
        if items > limits.items:
            raise SelectorFault(
                "too-many-items", Span(start, end), hint=f"the limit is {limits.items:,} items"
            )
