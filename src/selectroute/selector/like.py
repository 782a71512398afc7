"""LIKE: patterns compiled to operations on code points, matched without any regular expression."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LikeOp(Enum):
    """What a pattern's wildcards stand for."""

    ANY_ONE = "_"
    ANY_MANY = "%"


ANY_ONE: Final = LikeOp.ANY_ONE
ANY_MANY: Final = LikeOp.ANY_MANY


def compile_like(pattern: str, escape: str | None = None) -> tuple[str | LikeOp, ...]:
    """Return the pattern's operations: a character, ANY_ONE for ``_``, one ANY_MANY for a run of ``%``.

    `escape` followed by any character stands for that character. Raises ValueError for a pattern that ends
    in an unpaired escape. O(pattern).
    """
    operations: list[str | LikeOp] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("the pattern ends in an unpaired escape character")
            operations.append(escaped)
        elif character == "_":
            operations.append(ANY_ONE)
        elif character != "%":
            operations.append(character)
        elif not operations or operations[-1] is not ANY_MANY:
            operations.append(ANY_MANY)
    return tuple(operations)


def like(text: str, operations: tuple[str | LikeOp, ...]) -> bool:
    """Return whether the operations match the whole `text`.

    Greedy, and right: when what follows a ``%`` fails, only the last ``%`` needs to take one more
    character, since any earlier one already found its leftmost place. O(text x pattern) at worst, O(text)
    for the usual patterns.
    """
    at, op = 0, 0
    retry_at, retry_op = 0, -1  # where the last ANY_MANY may take one more character; -1: there was none
    while at < len(text):
        if op < len(operations) and operations[op] is ANY_MANY:
            retry_at, retry_op = at, op + 1
            op += 1
        elif op < len(operations) and (operations[op] is ANY_ONE or operations[op] == text[at]):
            at, op = at + 1, op + 1
        elif retry_op >= 0:
            retry_at += 1
            at, op = retry_at, retry_op
        else:
            return False
    return all(operation is ANY_MANY for operation in operations[op:])
