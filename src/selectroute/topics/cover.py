"""Containment of topic filters: whether one matches every topic that another matches.

There is always a *fresh* level that neither filter names, which only a wildcard matches. A topic of the inner
filter whose wildcards are filled with fresh levels is therefore the hardest to match, and only the lengths of
its gaps (the levels matched by a ``#``) vary.

The outer filter is a front, segments, and a back, with a gap before and after each segment; a segment begins
and ends with a literal level, because a ``+`` next to ``#`` only sets the minimum length of the gap. No
segment can reach across a ``#`` of the inner filter: if that gap is long, it has fresh levels where the
segment has a literal. So each segment lies within one piece of the inner filter, and its best position is the
leftmost that leaves the gap before it long enough, counted with the inner gaps empty. Without such a
position, the outer filter misses the topic whose gaps are empty up to the minimum length, and long after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from selectroute.clauses.predicate import match_levels

FRESH = "/"
"""Level that no filter names: a level has no slash."""

Levels = tuple[str, ...]


def covers(outer: Levels, inner: Levels) -> bool:
    """Return whether the outer levels match every topic that the inner levels match.
    O(len(outer) × len(inner)).
    """
    if inner == ("#",):
        inner = ("#", "+")  # every topic has a level, possibly empty
    fresh = tuple(FRESH if level == "+" else level for level in inner)
    if "#" not in fresh:
        return match_levels(list(fresh), outer)
    if "#" not in outer:
        return False
    front, gaps, segments, back = _parts(outer)
    first, last = fresh.index("#"), len(fresh) - fresh[::-1].index("#")
    if len(front) > first or len(back) > len(fresh) - last:
        return False
    end = len(fresh) - len(back)
    if not (_takes(front, fresh[: len(front)]) and _takes(back, fresh[end:])):
        return False
    at = len(front)
    for gap, segment in zip(gaps, segments, strict=False):
        start = _position(segment, fresh, _after_gap(fresh, at, gap, end), end)
        if start is None:
            return False
        at = start + len(segment)
    return sum(level != "#" for level in fresh[at:end]) >= gaps[-1]


def _parts(levels: Levels) -> tuple[Levels, list[int], list[Levels], Levels]:
    """Return a filter's front, the minimum lengths of its gaps, the segments between them, and its back."""
    runs: list[list[str]] = [[]]  # segments and gaps, alternating
    for wildcard, group in groupby(levels, key=lambda level: level in ("+", "#")):
        part = list(group)
        if wildcard and "#" in part:
            runs += [part, []]
        else:
            runs[-1] += part
    texts = [tuple(run) for run in runs[::2]]
    gaps = [run.count("+") for run in runs[1::2]]
    return texts[0], gaps, texts[1:-1], texts[-1]


def _takes(wanted: Levels, levels: Sequence[str]) -> bool:
    """Return whether levels without a gap match the wanted levels, one by one."""
    return all(want in ("+", level) and level != "#" for want, level in zip(wanted, levels, strict=True))


def _after_gap(levels: Levels, at: int, gap: int, end: int) -> int:
    """Return the first position with at least `gap` levels after `at`, counting inner gaps as empty."""
    while gap and at < end:
        gap -= levels[at] != "#"
        at += 1
    return at if not gap else end


def _position(segment: Levels, levels: Levels, start: int, end: int) -> int | None:
    """Return the leftmost position from `start` on at which a segment lies within one piece."""
    for position in range(start, end - len(segment) + 1):
        if _takes(segment, levels[position : position + len(segment)]):
            return position
    return None
