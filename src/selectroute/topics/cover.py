"""Containment of topic filters: does one take every topic that another takes?

Texts of levels are endless, so there is always a *fresh* one that neither filter names: nothing but a
wildcard takes it. A topic of the inner filter whose wildcards are filled with fresh levels is therefore the
hardest to take, and only the lengths of its gaps (what a ``#`` stands for) are left to vary.

The outer filter is a front, segments, and a back, with a gap before and behind each segment; a segment
begins and ends with a literal level, because ``+`` beside ``#`` only says how long the gap is at least.
Where the inner filter has a ``#``, no segment can reach over it: if that gap is made long, fresh levels
come where a literal is wanted. So each segment lies within one piece of the inner filter, and the leftmost
place that leaves the gap before it long enough, counted with the inner gaps empty, is the best one. If
there is no such place, some lengths make a topic that the outer filter does not take: empty where the
levels before do not suffice yet for the wanted gap, long from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from selectroute.clauses.predicate import match_levels

FRESH = "/"
"""A level that no filter names: levels are what stands between slashes."""

Levels = tuple[str, ...]


def covers(outer: Levels, inner: Levels) -> bool:
    """Return whether the levels of a filter take every topic that the inner ones take.
    O(len(outer) × len(inner)).
    """
    if inner == ("#",):
        inner = ("#", "+")  # every topic has a level, if only an empty one
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
        place = _place(segment, fresh, _behind(fresh, at, gap, end), end)
        if place is None:
            return False
        at = place + len(segment)
    return sum(level != "#" for level in fresh[at:end]) >= gaps[-1]


def _parts(levels: Levels) -> tuple[Levels, list[int], list[Levels], Levels]:
    """Return a filter's front, the least lengths of its gaps, the segments between them, and its back."""
    runs: list[list[str]] = [[]]  # literal levels with what is between them, and gaps, by turns
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
    """Return whether levels without a gap are those wanted, one by one."""
    return all(want in ("+", level) and level != "#" for want, level in zip(wanted, levels, strict=True))


def _behind(levels: Levels, at: int, gap: int, end: int) -> int:
    """Return the first position with so many levels behind `at`, gaps being empty."""
    while gap and at < end:
        gap -= levels[at] != "#"
        at += 1
    return at if not gap else end


def _place(segment: Levels, levels: Levels, start: int, end: int) -> int | None:
    """Return the leftmost position from `start` on at which a segment lies within one piece."""
    for place in range(start, end - len(segment) + 1):
        if _takes(segment, levels[place : place + len(segment)]):
            return place
    return None
