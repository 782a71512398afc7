"""Shapes of many selectors: their texts without the literals, column-wise.

A million selectors of one application have a few shapes, ``JMSType = ? AND weight > ?``, and the analysis of
a selector depends on its shape alone. Here texts become shapes, and the literals of a shape columns; Arrow
does both without a Python object per text.

Extracted literals are strings, plain integers of at most 18 digits and plain decimals of at most 15 and 15
digits, which every dialect reads the same way. All other text stays in the shape. ``template`` decides with
the parser whether an extracted text is a literal, and independent of the text around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from os import cpu_count
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MAX_SLOTS: Final = 64
"""Maximum literals of one shape; a text with more is parsed by itself."""

_CHUNK = 1 << 16
"""Texts that a thread processes at a time."""


class LiteralKind(Enum):
    """Kind of a slot: the character that marks it in a shape, and the pattern of its texts."""

    STRING = "\x01", r"'(?:[^']|'')*'"
    DECIMAL = "\x02", r"\b(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}\b"
    INTEGER = "\x03", r"\b(?:0|[1-9][0-9]{0,17})\b"
    LEVEL = "\x04", r"[^/+#]+"

    def __init__(self, mark: str, pattern: str) -> None:
        self.mark = mark
        self.pattern = pattern
        self.inside = pattern.replace(r"\b", "")
        """Pattern without word boundaries, which the text around the slot guarantees."""


_BY_MARK: Final = {kind.mark: kind for kind in LiteralKind}
_MARKS: Final = re.compile(f"[{''.join(_BY_MARK)}]")
_OF_SELECTORS: Final = (LiteralKind.STRING, LiteralKind.DECIMAL, LiteralKind.INTEGER)
_OF_TOPICS: Final = (LiteralKind.LEVEL,)


@dataclass(frozen=True, slots=True)
class Shape:
    """Text with slots: slot i, of ``kinds[i]``, is between ``parts[i]`` and ``parts[i + 1]``."""

    parts: tuple[str, ...]
    kinds: tuple[LiteralKind, ...]

    @classmethod
    def of_marked(cls, marked: str) -> Shape:
        """Return the shape of a text with marks from `selector_shapes` or `topic_shapes`."""
        return cls(tuple(_MARKS.split(marked)), tuple(_BY_MARK[mark] for mark in _MARKS.findall(marked)))

    def filled(self, samples: Iterable[str]) -> str:
        """Return the text with these samples in the slots."""
        pieces = zip_longest(self.parts, samples, fillvalue="")
        return "".join(piece for pair in pieces for piece in pair)

    def slots(self, texts: pa.Array) -> list[pa.Array] | None:
        """Return the literals of each slot as text, for texts of this shape.

        None if a text is not of this shape: it contains a mark itself, or half a string.
        """
        groups = (f"(?P<s{number}>{kind.inside})" for number, kind in enumerate(self.kinds))
        pieces = zip_longest(map(re.escape, self.parts), groups, fillvalue="")
        pattern = "(?s)\\A" + "".join(piece for pair in pieces for piece in pair) + "\\z"
        if not self.kinds:
            return [] if pc.all(pc.equal(texts, self.parts[0])).as_py() else None
        try:
            found = pa.concat_arrays(_by_chunks(texts, lambda part: pc.extract_regex(part, pattern=pattern)))
        except pa.ArrowInvalid:  # the pattern is too large
            return None
        return None if found.null_count else found.flatten()


_LITERAL: Final = re.compile("|".join(f"({kind.pattern})" for kind in _OF_SELECTORS))


def selector_shape(text: str) -> tuple[str, list[str]]:
    """Return the shape of one selector, with marks, and its literals as text. O(length)."""
    found: list[str] = []

    def mark(match: re.Match[str]) -> str:
        found.append(match[0])
        assert match.lastindex is not None
        return _OF_SELECTORS[match.lastindex - 1].mark

    return _LITERAL.sub(mark, text), found


def selector_shapes(texts: pa.Array) -> pa.Array:
    """Return the shapes of selectors, strings with marks. O(length of the texts), on all cores."""
    return _marked(texts, _OF_SELECTORS)


def topic_shapes(filters: pa.Array) -> pa.Array:
    """Return the shapes of topic filters, without the text of levels. As `selector_shapes`."""
    return _marked(filters, _OF_TOPICS)


def _marked(texts: pa.Array, kinds: Iterable[LiteralKind]) -> pa.Array:
    def shape(part: pa.Array) -> pa.Array:
        for kind in kinds:
            part = pc.replace_substring_regex(part, pattern=kind.pattern, replacement=kind.mark)
        return part

    return pa.concat_arrays(_by_chunks(texts, shape))


def _by_chunks(texts: pa.Array, function: Callable[[pa.Array], pa.Array]) -> Iterator[pa.Array]:
    if len(texts) <= _CHUNK:  # starting threads takes longer
        yield function(texts)
        return
    chunks = [texts.slice(start, _CHUNK) for start in range(0, len(texts), _CHUNK)]
    with ThreadPoolExecutor(cpu_count()) as pool:
        yield from pool.map(function, chunks)
