"""Choice of the tuples of a snapshot by their cost, estimated from all clauses.

A message meets a tuple if its value of the anchor occurs in some clause there (see ``arrays.tables``); that
is a probe, and every clause found by a probe must be judged: more tuples divide better, but cost more probes.
The attributes that a clause requires to be equal are its *preference*; many clauses share one. A preference
filed under a tuple costs the clauses that a message finds there, estimated from the constants: a message that
has an attribute has each key as often as the clauses do, and the fewer clauses read an attribute, the fewer
messages have it.

Choosing tuples is a facility location problem: opening a tuple costs its probes, and a preference is served
by the cheapest open one. The greedy method opens the tuple that saves most until none saves; then tuples
that later ones made superfluous are closed. Both consider few options for each preference, so the time is
linear in the preferences.

Estimates from all clauses are wrong for uneven distributions: one pair of values may have more clauses than
all others together. The clauses under each key are therefore counted, and a crowded key is divided further:
see ``hot_keys``.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import combinations
from math import prod, sqrt
from typing import Final

from selectroute.clauses.access import Equalities
from selectroute.index.compile.keys import MAX_ENTRIES, MAX_KEYS, SCAN, Attributes, KeyStatistics

Preference = tuple[tuple[str, int], ...]
"""Attributes under which a clause can be filed, sorted, each with the number of keys."""

PROBE_NS: Final = 3.0
"""Cost per attribute of a tuple that is met: reading its leaf, or the filter and perhaps the slots."""

SKIP_NS: Final = 0.02
"""Cost of a tuple that is not met: its share of the cache."""

JUDGE_NS: Final = 20.0
"""Cost of a clause that is found: a step of a binary search, or a residual to judge."""

COMMON: Final = 8
"""Minimum entries of a leaf with one residual that become a group: one search, one residual to judge."""

MAX_PREFERENCES: Final = 4_096
"""Maximum preferences that are planned; rarer ones are served by the tuples of these."""

_OPTIONS: Final = 4
"""Maximum attributes of a preference, those that divide best, from which tuples are made."""


def preference_of(equal: Equalities, clauses: int) -> Preference:
    """Return the preference of a clause; ``clauses`` is the number of clauses of the subscription."""
    most = MAX_ENTRIES // clauses
    return tuple(sorted((name, len(keys)) for name, keys in equal.keys.items() if len(keys) <= most))


class CostPlan:
    """Tuples with the least cost for the preferences, each with its number of clauses."""

    def __init__(
        self, statistics: KeyStatistics, preferences: Mapping[Preference, int], skip_ns: float = SKIP_NS
    ) -> None:
        """Choose the tuples; ``skip_ns`` is the cost of a tuple for each message that does not meet it."""
        self._statistics = statistics
        self._skip_ns = skip_ns
        self._clauses = max(1, sum(preferences.values()))
        self._paths: dict[Preference, Attributes] = {}
        self._met: defaultdict[Attributes, float] = defaultdict(float)
        """Number of clauses of a tuple with the message's value of the anchor."""
        self.tuples: frozenset[Attributes] = frozenset(self._chosen(Counter(preferences)))
        """Open tuples."""

    def path(self, equal: Equalities, clauses: int) -> Attributes:
        """Return the attributes under which to file a clause; none for the scan list."""
        preference = preference_of(equal, clauses)
        path = self._paths.get(preference)
        if path is None:
            options = self._options(preference)
            inside = {path: chance for path, chance in options.items() if path in self.tuples}
            path = self._paths[preference] = min(
                inside or options, key=lambda path: (options[path], len(path), path), default=SCAN
            )
        return path

    def _options(self, preference: Preference) -> dict[Attributes, float]:
        """Return the possible tuples of a preference, with the chance that a message finds a clause of it."""
        chances = {
            name: min(1.0, self._statistics.chance(name) * keys) * self._presence(name)
            for name, keys in preference
        }
        best = sorted(chances, key=lambda name: (chances[name], name))[:_OPTIONS]
        keys = dict(preference)
        options: dict[Attributes, float] = {(name,): chances[name] for name in best}
        for pair in combinations(sorted(best), 2):
            if prod(keys[name] for name in pair) <= MAX_KEYS:
                options[pair] = prod(chances[name] for name in pair)
        return options

    def _presence(self, name: str) -> float:
        """Return the chance that a message has an attribute: the root of the share of clauses with it."""
        return sqrt(min(1.0, self._statistics.total(name) / self._clauses))

    def _opening(self, path: Attributes) -> float:
        """Return the cost of opening a tuple."""
        return self._skip_ns + len(path) * PROBE_NS * min(self._met[path], max(map(self._presence, path)))

    def _chosen(self, preferences: Counter[Preference]) -> set[Attributes]:
        served: dict[Preference, float] = {}
        costs: dict[Attributes, dict[Preference, float]] = {}
        for preference, count in preferences.most_common(MAX_PREFERENCES):
            if preference:
                served[preference] = count * JUDGE_NS * 2  # the scan list does not narrow down
                options = self._options(preference)
                for path, chance in options.items():
                    costs.setdefault(path, {})[preference] = count * chance * JUDGE_NS
                    self._met[path] += count * min(options[name,] for name in path)
        # Savings only decrease as more tuples are open, so an earlier saving is a bound: only the best one is
        # computed again.
        waiting = [(-self._saving(path, costs[path], served), path) for path in costs]
        heapq.heapify(waiting)
        opened: set[Attributes] = set()
        while waiting and waiting[0][0] < 0:
            _, path = heapq.heappop(waiting)
            saving = self._saving(path, costs[path], served)
            if waiting and saving < -waiting[0][0]:
                heapq.heappush(waiting, (-saving, path))
            elif saving > 0:
                opened.add(path)
                for preference, cost in costs[path].items():
                    served[preference] = min(served[preference], cost)
        self._close(opened, costs)
        return opened

    def _saving(
        self, path: Attributes, costs: Mapping[Preference, float], served: Mapping[Preference, float]
    ) -> float:
        saved = sum(max(0.0, served[preference] - cost) for preference, cost in costs.items())
        return saved - self._opening(path)

    def _close(self, opened: set[Attributes], costs: Mapping[Attributes, Mapping[Preference, float]]) -> None:
        """Close tuples whose preferences other tuples serve nearly as well."""
        serving: dict[Preference, dict[Attributes, float]] = {}
        for path in opened:
            for preference, cost in costs[path].items():
                serving.setdefault(preference, {})[path] = cost
        for path in sorted(opened, key=lambda path: (len(costs[path]), path)):
            loss = 0.0
            for preference, cost in costs[path].items():
                others = [other for other_path, other in serving[preference].items() if other_path != path]
                if not others:
                    break
                loss += max(0.0, min(others) - cost)
            else:
                if loss < self._opening(path):
                    opened.remove(path)
                    for preference in costs[path]:
                        del serving[preference][path]
