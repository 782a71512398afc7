"""Texts with patterns that match them or nearly do, for every engine that knows LIKE."""

from __future__ import annotations

from itertools import product
from typing import Final

from hypothesis import strategies as st


def _all(characters: str, longest: int) -> list[str]:
    return ["".join(found) for size in range(longest + 1) for found in product(characters, repeat=size)]


SHORT_TEXTS: Final = _all("ab", 5)
SHORT_PATTERNS: Final = [pattern for pattern in _all("ab_%", 5) if "%%" not in pattern]

_PIECES = ("a", "b", "\0", "é", "€", "😀", "ab" * 9, "a" * 29, "a" * 31, "a" * 63, "a" * 65, "😀b" * 33)
_EDITS = ("", "%", "_", "__", "a", "b", "é", "😀", "%_", "_%", "%a", "aa", "_" * 40, "a_" * 20)
_edits = st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from(_EDITS))


@st.composite
def texts_and_patterns(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and itself with a few places changed, as a pattern for the whole or for some part within."""
    text = pattern = "".join(draw(st.lists(st.sampled_from(_PIECES), max_size=7)))
    for at, size, new in draw(st.lists(_edits, max_size=6)):
        at %= len(pattern) + 1
        pattern = pattern[:at] + new + pattern[at + size :]
    if draw(st.booleans()):
        first, last = draw(st.integers(0, 9)), len(pattern) - draw(st.integers(0, 9))
        pattern = f"%{pattern[first:last]}%"
    return text, pattern
