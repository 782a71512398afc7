"""Choice of the keys of a clause: the tuple of attributes under which it is filed.

One attribute alone is skewed: of clauses with ``JMSType = …`` and ``color = …``, all those with the most
common type would be candidates for most messages. Two attributes divide the clauses by both (measured:
11.6-fold at a million clauses). But every tuple of attributes in use is one probe for each message, so the
number of tuples is bounded.

`KeyPlan` chooses for the live index, a clause at a time; `cost_plan` for a snapshot, which has all clauses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from selectroute.clauses.access import Equalities, Key
from selectroute.clauses.predicate import Clause, ClauseLiteral
from selectroute.topics.filter import TOPIC

Attributes = tuple[str, ...]
"""Attributes of an access key, sorted: none (the scan list), one or two."""

FEW = 8.0
"""Average clauses per key of an attribute below which it needs no second attribute."""

MAX_KEYS = 256
"""Maximum pairs of keys under which a clause is filed (IN lists multiply)."""

MAX_ENTRIES = 16_384
"""Maximum keys times clauses of one subscription; attributes with more keys are not used."""

MAX_PAIRS = 32
"""Maximum pairs of attributes in use; clauses with other pairs use one of these or a single attribute."""

SCAN: Attributes = ()


class KeyStatistics:
    """Number of clauses with each key of each attribute, updated when clauses are added and removed."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[Key, int]] = {}
        self._totals: dict[str, int] = {}
        self._squares: dict[str, int] = {}

    def add(self, equalities: Equalities, sign: int = 1) -> None:
        """Add a clause to the counts, or with ``sign=-1`` remove it. O(keys of the clause)."""
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

    def add_column(self, name: str, clauses: int, squares: int) -> None:
        """Add clauses with one key each; ``squares`` is the sum of the squares of the counts of each key."""
        self._totals[name] = self._totals.get(name, 0) + clauses
        self._squares[name] = self._squares.get(name, 0) + squares

    def chance(self, name: str) -> float:
        """Return the chance that two clauses have the same key of this attribute, 0 to 1."""
        total = self._totals.get(name, 0)
        return min(1.0, self._squares[name] / total**2) if total else 1.0

    def total(self, name: str) -> int:
        """Return the number of keys of this attribute in all clauses."""
        return self._totals.get(name, 0)

    def crowding(self, name: str) -> float:
        """Return the average number of clauses that share a clause's key of this attribute."""
        total = self._totals.get(name, 0)
        return self._squares[name] / total if total else 0.0


def preferred(equalities: Equalities, statistics: KeyStatistics, most: int = MAX_ENTRIES) -> Attributes:
    """Return the attributes that divide best, with at most ``most`` keys: the one with the fewest clauses per
    key, and a second one if these are still many.
    """
    keys = {name: of_name for name, of_name in equalities.keys.items() if len(of_name) <= most}
    if not keys:
        return SCAN
    if len(keys) == 1:
        return tuple(keys)
    # Of equals, properties before topic levels: all topics may have the same levels.
    ranked = sorted(
        keys, key=lambda name: (statistics.crowding(name) * len(keys[name]), name.startswith(TOPIC), name)
    )
    first, second = ranked[:2]
    if statistics.crowding(first) * len(keys[first]) < FEW:
        return (first,)
    if prod(len(keys[name]) for name in (first, second)) > min(MAX_KEYS, most):
        return (first,)
    return tuple(sorted((first, second)))


class KeyPlan:
    """Tuples of attributes in use by a mutable index: at most `MAX_PAIRS` pairs, and any single ones.

    For clauses known from the start, `cost_plan` makes a better one.
    """

    def __init__(self, statistics: KeyStatistics) -> None:
        self.statistics = statistics
        self.pairs: Counter[Attributes] = Counter()

    def path(self, equalities: Equalities, clauses: int) -> Attributes:
        """Return the attributes under which to file a clause: the preferred ones, or the best in use.

        ``clauses`` is the number of clauses of the subscription, whose keys together are bounded.
        """
        most = MAX_ENTRIES // clauses
        best = preferred(equalities, self.statistics, most)
        if len(best) < 2 or best in self.pairs or len(self.pairs) < MAX_PAIRS:
            return best
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
        return (min(best, key=lambda name: (crowding(name) * len(keys[name]), name)),)


@dataclass(slots=True, eq=False)
class FiledClause:
    """Clause of a subscription: its access key, and the residual literals to judge."""

    subscription: str
    clause: Clause
    attributes: Attributes
    keys: tuple[tuple[Key, ...], ...]
    residual: tuple[ClauseLiteral, ...]


def file_clause(subscription: str, clause: Clause, equal: Equalities, attributes: Attributes) -> FiledClause:
    """Return a clause with its keys of the attributes, and the literals that the keys do not decide."""
    covered = [literal for name in attributes for literal in equal.covered.get(name, ())]
    residual = clause.literals
    if covered:
        decided = set(map(id, covered))
        residual = tuple([literal for literal in residual if id(literal) not in decided])
    keys = tuple([tuple(equal.keys[name]) for name in attributes])
    return FiledClause(subscription, clause, attributes, keys, residual)
