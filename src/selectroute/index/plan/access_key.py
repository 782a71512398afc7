"""Choice of the attributes a clause is filed under: access keys on tuples of shared equalities.

One attribute alone is skewed: of clauses with ``JMSType = …`` and ``color = …``, all those with the commonest
type would be candidates of most messages. Two attributes together divide them by both (measured: 11.6-fold at
a million clauses). But every tuple of attributes in use is one probe for each message, so their number is
bounded, not the clauses'.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from selectroute.clauses.access import Equalities, Key
from selectroute.topics.levels import TOPIC

Attributes = tuple[str, ...]
"""The attributes of an access key, sorted: none (the scan list), one or two."""

FEW = 8.0
"""An attribute whose keys have fewer clauses than this on average needs no second one."""

MAX_KEYS = 256
"""A clause is filed under at most this many pairs of keys (IN lists multiply)."""

MAX_ENTRIES = 16_384
"""Keys times clauses of one subscription; an attribute with more keys than that is no place to file it."""

MAX_PAIRS = 32
"""Pairs of attributes in use at a time; clauses with other pairs go under a pair in use or a single
attribute.
"""

SCAN: Attributes = ()


class Statistics:
    """Count of clauses that have each key of each attribute, kept up to date as clauses come and go."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[Key, int]] = {}
        self._totals: dict[str, int] = {}
        self._squares: dict[str, int] = {}

    def add(self, equalities: Equalities, sign: int = 1) -> None:
        """Count a clause in, or out again with ``sign=-1``. O(its keys)."""
        for name, keys in equalities.keys.items():
            counts = self.counts.setdefault(name, {})
            squares = 0
            for key in keys:
                before = counts.get(key, 0)
                after = before + sign
                squares += after * after - before * before
                if after:
                    counts[key] = after
                else:
                    del counts[key]
            if counts:
                self._squares[name] = self._squares.get(name, 0) + squares
                self._totals[name] = self._totals.get(name, 0) + sign * len(keys)
            else:
                del self.counts[name], self._squares[name], self._totals[name]

    def remove(self, equalities: Equalities) -> None:
        """Count a clause out that was counted in before."""
        self.add(equalities, sign=-1)

    def add_column(self, name: str, clauses: int, squares: int) -> None:
        """Count clauses with one key each in, of which ``squares`` is the sum of the squares of the counts of
        each key.
        """
        self._totals[name] = self._totals.get(name, 0) + clauses
        self._squares[name] = self._squares.get(name, 0) + squares

    def chance(self, name: str) -> float:
        """Return the chance that two clauses have the same key of this attribute, 0 to 1."""
        total = self._totals.get(name, 0)
        return min(1.0, self._squares[name] / total**2) if total else 1.0

    def total(self, name: str) -> int:
        """Return the number of keys of this attribute that clauses have."""
        return self._totals.get(name, 0)

    def crowding(self, name: str) -> float:
        """Return the number of clauses that share a clause's key of this attribute, on average over the
        clauses.
        """
        total = self._totals.get(name, 0)
        return self._squares[name] / total if total else 0.0


def preferred(equalities: Equalities, statistics: Statistics, most: int = MAX_ENTRIES) -> Attributes:
    """Return the attributes that divide best: the one with the least crowded keys, and a second where that is
    crowded too. ``most`` keys at most.
    """
    keys = {name: found for name, found in equalities.keys.items() if len(found) <= most}
    if not keys:
        return SCAN
    if len(keys) == 1:
        return tuple(keys)
    # Between equals, what the message says itself: all topics may have the same levels.
    ranked = sorted(
        keys, key=lambda name: (statistics.crowding(name) * len(keys[name]), name.startswith(TOPIC), name)
    )
    first, second = ranked[:2]
    if statistics.crowding(first) * len(keys[first]) < FEW:
        return (first,)
    if prod(len(keys[name]) for name in (first, second)) > min(MAX_KEYS, most):
        return (first,)
    return tuple(sorted((first, second)))


class Plan:
    """Tuples of attributes in use by an index that changes: pairs up to `MAX_PAIRS`, any single ones.

    What is known from the start is planned better by ``cost``.
    """

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.pairs: Counter[Attributes] = Counter()

    def path(self, equalities: Equalities, clauses: int) -> Attributes:
        """Return the attributes to file a clause under: the preferred ones, or the best that are in use.

        ``clauses`` is how many the subscription has: together their keys are bounded.
        """
        most = MAX_ENTRIES // clauses
        wish = preferred(equalities, self.statistics, most)
        if len(wish) < 2 or wish in self.pairs or len(self.pairs) < MAX_PAIRS:
            return wish
        keys = equalities.keys
        crowding = self.statistics.crowding
        inside = [
            pair
            for pair in self.pairs
            if all(name in keys for name in pair)
            and prod(len(keys[name]) for name in pair) <= min(MAX_KEYS, most)
        ]
        if inside:
            return min(inside, key=lambda pair: (crowding(pair[0]) * crowding(pair[1]), pair))
        return (min(wish, key=lambda name: (crowding(name) * len(keys[name]), name)),)
