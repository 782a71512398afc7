"""Topic filters: texts with wildcards, compiled to literals over properties of the topic string."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from selectroute.clauses.predicate import ClauseLiteral, LevelsTest, NullTest, Test, match_levels
from selectroute.selector.dialect import JMS
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.syntax.source import SURROGATE
from selectroute.selector.values import Long, Value

TOPIC = "@topic"
LEVELS = "@topic.levels"

_LEVEL = re.compile(r"@topic\[(-?\d+)\]")


def level_name(position: int) -> str:
    """Return the property of one level: 0, 1, … from the front, -1, -2, … from the end."""
    return f"{TOPIC}[{position}]"


@dataclass(frozen=True, slots=True)
class Derivation:
    """Derivation of a property from the topic: a level's position, or ``None`` for their number."""

    position: int | None

    def of(self, levels: list[str]) -> Value | None:
        """Return the property's value for the levels of a topic string."""
        if self.position is None:
            return Long(len(levels))
        inside = -len(levels) <= self.position < len(levels)
        return levels[self.position] if inside else None


@lru_cache(maxsize=1_024)
def derivation(name: str) -> Derivation | None:
    """Return the derivation of a property; ``None`` if it is not derived (``@topic``, an identifier)."""
    if name == LEVELS:
        return Derivation(None)
    level = _LEVEL.fullmatch(name)
    return Derivation(int(level[1])) if level else None


def level_value(name: str, topic: str | None) -> Value | None:
    """Return the value of ``@topic`` or of a property derived from it, ``None`` (NULL) without a topic.
    O(len(topic)).

    >>> level_value("@topic[1]", "cars/eu")
    'eu'
    """
    derived = derivation(name)
    if derived is None or topic is None:
        return topic
    return derived.of(topic.split("/"))


MAX_LENGTH = 10_240
"""Maximum code points in a topic filter, the same as for selectors."""

MAX_LEVELS = 128
"""Maximum levels of a topic filter."""

INDEXED_LEVELS = 8
"""Levels from the front, and from the back, that become equalities; each is an attribute of the index. A
filter with more levels is also judged as a whole.
"""


class InvalidTopicFilterError(SelectRouteError):
    """Invalid topic filter; the message names the level and what is expected there."""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Valid topic filter. Levels are ``+``, ``#`` or literal text, also empty (as the second of ``a//b``)."""

    text: str
    levels: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> TopicFilter:
        """Check and return a filter. Raises `InvalidTopicFilterError`. O(len(text)).

        >>> TopicFilter.parse("flights/+/LAX").matches("flights/JFK/LAX")
        True
        """
        if not text:
            raise InvalidTopicFilterError(
                "a topic filter must not be empty; leave it out to match every topic"
            )
        if len(text) > MAX_LENGTH:
            raise InvalidTopicFilterError(
                f"the topic filter has {len(text):,} characters, at most {MAX_LENGTH:,}"
            )
        if SURROGATE.search(text):
            raise InvalidTopicFilterError(
                "a topic filter has half of a surrogate pair, which is not a character"
            )
        levels = tuple(text.split("/"))
        if len(levels) > MAX_LEVELS:
            raise InvalidTopicFilterError(
                f"the topic filter has {len(levels):,} levels, at most {MAX_LEVELS}"
            )
        for number, level in enumerate(levels, start=1):
            if len(level) > 1 and ("+" in level or "#" in level):
                raise InvalidTopicFilterError(
                    f"level {number} of the topic filter {text!r} is {level!r}: + and # must be whole levels"
                )
        # `#/#` is `#`: one wildcard already matches any number of levels.
        return cls(
            text, tuple(lv for i, lv in enumerate(levels) if lv != "#" or i == 0 or levels[i - 1] != "#")
        )

    def matches(self, topic: str | None) -> bool:
        """Return whether a topic string matches. O(levels of the topic × levels of the filter)."""
        return topic is not None and match_levels(topic.split("/"), self.levels)

    def covers(self, other: TopicFilter) -> bool:
        """Return whether this filter matches every topic that the other one matches. Exact.
        O(levels of this filter × levels of the other).

        >>> TopicFilter.parse("cars/#").covers(TopicFilter.parse("cars/+/de"))
        True
        """
        return _covers(self.levels, other.levels)

    def literals(self) -> tuple[ClauseLiteral, ...]:
        """Return the literals that together hold exactly for the topics that match."""
        return _literals(self.levels)


@lru_cache(maxsize=65_536)
def _literals(levels: tuple[str, ...]) -> tuple[ClauseLiteral, ...]:
    wildcards = [position for position, level in enumerate(levels) if level == "#"]
    if not wildcards:
        depth = ClauseLiteral(Test(LEVELS, "=", Long(len(levels)), JMS), True)
        return (
            *_equal_levels(levels[:INDEXED_LEVELS], 0),
            depth,
            *_whole(levels, len(levels) > INDEXED_LEVELS),
        )
    front, back = levels[: wildcards[0]], levels[wildcards[-1] + 1 :]
    literals = _equal_levels(front[:INDEXED_LEVELS], 0)
    literals += _equal_levels(back[-INDEXED_LEVELS:], -min(len(back), INDEXED_LEVELS))
    if len(wildcards) > 1 or max(len(front), len(back)) > INDEXED_LEVELS:
        return (*literals, *_whole(levels, True))
    if not front and not back:
        return (ClauseLiteral(NullTest(TOPIC), False),)
    if not back and front[-1] != "+":
        return literals  # the last level of the front exists, so the topic is long enough
    return (*literals, ClauseLiteral(Test(LEVELS, ">=", Long(len(front) + len(back)), JMS), True))


def _whole(levels: tuple[str, ...], needed: bool) -> tuple[ClauseLiteral, ...]:
    return (ClauseLiteral(LevelsTest(TOPIC, levels), True),) if needed else ()


def _equal_levels(levels: tuple[str, ...], first: int) -> tuple[ClauseLiteral, ...]:
    return tuple(
        ClauseLiteral(Test(level_name(first + i), "=", level, JMS), True)
        for i, level in enumerate(levels)
        if level != "+"
    )


_FRESH = "/"
"""Level that no filter names: a level has no slash."""

_Levels = tuple[str, ...]


def _covers(outer: _Levels, inner: _Levels) -> bool:
    """Return whether the outer levels match every topic that the inner levels match.
    O(len(outer) × len(inner)).

    There is always a *fresh* level that neither filter names, which only a wildcard matches. A topic of the
    inner filter whose wildcards are filled with fresh levels is therefore the hardest to match, and only
    the lengths of its gaps (the levels matched by a ``#``) vary.

    The outer filter is a front, segments, and a back, with a gap before and after each segment; a segment
    begins and ends with a literal level, because a ``+`` next to ``#`` only sets the minimum length of the
    gap. No segment can reach across a ``#`` of the inner filter: if that gap is long, it has fresh levels
    where the segment has a literal. So each segment lies within one piece of the inner filter, and its best
    position is the leftmost that leaves the gap before it long enough, counted with the inner gaps empty.
    Without such a position, the outer filter misses the topic whose gaps are empty up to the minimum
    length, and long after it.
    """
    if inner == ("#",):
        inner = ("#", "+")  # every topic has a level, possibly empty
    fresh = tuple(_FRESH if level == "+" else level for level in inner)
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


def _parts(levels: _Levels) -> tuple[_Levels, list[int], list[_Levels], _Levels]:
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


def _takes(wanted: _Levels, levels: Sequence[str]) -> bool:
    """Return whether levels without a gap match the wanted levels, one by one."""
    return all(want in ("+", level) and level != "#" for want, level in zip(wanted, levels, strict=True))


def _after_gap(levels: _Levels, at: int, gap: int, end: int) -> int:
    """Return the first position with at least `gap` levels after `at`, counting inner gaps as empty."""
    while gap and at < end:
        gap -= levels[at] != "#"
        at += 1
    return at if not gap else end


def _position(segment: _Levels, levels: _Levels, start: int, end: int) -> int | None:
    """Return the leftmost position from `start` on at which a segment lies within one piece."""
    for position in range(start, end - len(segment) + 1):
        if _takes(segment, levels[position : position + len(segment)]):
            return position
    return None
