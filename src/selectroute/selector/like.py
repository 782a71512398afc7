"""LIKE: patterns compiled to operations on code points, matched without any regular expression."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LikeOp(Enum):
    """Characters that a pattern's wildcards stand for."""

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

    The segments before the first ``%`` and after the last are at the ends of the text. A segment between two
    ``%`` is matched at its first occurrence: a later one would only leave less text to the next segments.
    O(text + pattern); with a ``_`` between two ``%``, O(text x pattern / 30) at worst, as Python keeps 30
    bits in a digit.
    """
    head, *others = _segments(operations)
    if not others:
        return len(head) == len(text) and _stands_at(0, head, text)
    *middle, tail = others
    at, stop = len(head), len(text) - len(tail)
    if at > stop or not _stands_at(0, head, text) or not _stands_at(stop, tail, text):
        return False
    for segment in middle:
        position = _find(segment, text, at, stop)
        if position < 0:
            return False
        at = position + len(segment)
    return True


def _segments(operations: tuple[str | LikeOp, ...]) -> list[list[str | LikeOp]]:
    """Return the segments before, between and after the ``%``: one more than there are ``%``."""
    segments: list[list[str | LikeOp]] = [[]]
    for operation in operations:
        if operation is ANY_MANY:
            segments.append([])
        else:
            segments[-1].append(operation)
    return segments


def _stands_at(at: int, segment: list[str | LikeOp], text: str) -> bool:
    return all(op is ANY_ONE or op == text[at + number] for number, op in enumerate(segment))


def _find(segment: list[str | LikeOp], text: str, start: int, stop: int) -> int:
    """Return the first position of the segment, from `start` on and ending by `stop`; -1 if not found."""
    characters = "".join(op for op in segment if isinstance(op, str))
    if len(characters) == len(segment):
        return text.find(characters, start, stop)  # linear: CPython's two-way search
    if len(segment) > stop - start:
        return -1

    # Shift-And: bit k of `matched` says that the segment up to its operation k matches the text up to `at`.
    masks = dict.fromkeys(characters, 0)
    any_one = 0
    for number, op in enumerate(segment):
        if isinstance(op, str):
            masks[op] |= 1 << number
        else:
            any_one |= 1 << number
    for character in masks:
        masks[character] |= any_one
    whole = 1 << len(segment) - 1
    matched = 0
    for at in range(start, stop):
        matched = (matched << 1 | 1) & masks.get(text[at], any_one)
        if matched >= whole:
            return at + 1 - len(segment)
    return -1
