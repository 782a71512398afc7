"""Tuples of attributes that a segment is filed under, chosen by what a message costs.

A message meets a tuple where its value of the anchor is that of some clause there (see ``tables``); that is a
probe, and every clause that a probe finds must be judged: more tuples divide better, fewer are met. Clauses
are *preferences*, many alike: the attributes that each requires to be equal. A preference filed under a tuple
costs the clauses that a message finds there. How many these are is estimated from the constants: a message
that carries an attribute has each key as often as the clauses have it, and it carries an attribute the rarer,
the fewer clauses speak of it.

Choosing tuples is facility location: opening one costs its probes, a preference is served by the cheapest
open one. The greedy method opens what saves most until nothing saves; then what the later ones made
superfluous is closed again. Both look at few options for each preference, so the time is in proportion to the
preferences.

Estimates from all clauses are wrong where values are not spread alike: one pair of values may have more
clauses than all others together, and regions of its own. What then lies under one key is counted, and such a
key is divided further: see ``hot_keys``.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import combinations
from math import prod, sqrt
from typing import Final

from selectroute.clauses.access import Equalities
from selectroute.index.plan.access_key import MAX_ENTRIES, MAX_KEYS, SCAN, Attributes, Statistics

PreferredKeys = tuple[tuple[str, int], ...]
"""The attributes that a clause can be filed under, sorted, with the number of its keys."""

PROBE_NS: Final = 3.0
"""For each attribute of a tuple that is met: reading its leaf, or the filter and perhaps the slots."""

SKIP_NS: Final = 0.02
"""A tuple that is not met: no time, but its place in memory, which others then do not have in the cache."""

JUDGE_NS: Final = 20.0
"""A clause that is found: a step of a binary search, or a residual to judge."""

COMMON: Final = 8
"""So many entries of a leaf with one residual are a group of their own: one search, one residual to judge."""

WORTH: Final = 8
"""A leaf is divided where a message that finds it judges so many fewer residuals: that is worth a probe, and
for the leaves it takes their memory.
"""

MOST_COPIES: Final = 16
"""A clause in divided leaves is filed so many times at most for each of its keys (IN lists multiply)."""

MAX_PREFERENCES: Final = 4_096
"""As many different preferences are planned for; rarer ones are served by what these open."""

_OPTIONS: Final = 4
"""The attributes of a preference that divide best; tuples are made of these."""


def preferred_keys(found: Equalities, clauses: int) -> PreferredKeys:
    """Return what a clause can be filed under; ``clauses`` is how many the subscription has."""
    most = MAX_ENTRIES // clauses
    return tuple(sorted((name, len(keys)) for name, keys in found.keys.items() if len(keys) <= most))


class CostPlan:
    """Tuples that cost least for these preferences, each of which counts its clauses."""

    def __init__(
        self, statistics: Statistics, preferences: Mapping[PreferredKeys, int], skip_ns: float = SKIP_NS
    ) -> None:
        """Choose the tuples; ``skip_ns`` is what one costs each message that does not meet it."""
        self._statistics = statistics
        self._skip_ns = skip_ns
        self._clauses = max(1, sum(preferences.values()))
        self._paths: dict[PreferredKeys, Attributes] = {}
        self._met: defaultdict[Attributes, float] = defaultdict(float)
        """How many clauses of a tuple have the value that a message has of the anchor."""
        self.tuples: frozenset[Attributes] = frozenset(self._chosen(Counter(preferences)))
        """The tuples that are open."""

    def path(self, found: Equalities, clauses: int) -> Attributes:
        """Return the attributes to file a clause under; none is the scan list."""
        preference = preferred_keys(found, clauses)
        path = self._paths.get(preference)
        if path is None:
            options = self._options(preference)
            inside = {path: chance for path, chance in options.items() if path in self.tuples}
            path = self._paths[preference] = min(
                inside or options, key=lambda path: (options[path], len(path), path), default=SCAN
            )
        return path

    def _options(self, preference: PreferredKeys) -> dict[Attributes, float]:
        """Return the tuples a preference can be filed under, with the chance that a message finds one of its
        clauses.
        """
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
        """Return the chance that a message carries an attribute: more than the share of the clauses that read
        it.
        """
        return sqrt(min(1.0, self._statistics.total(name) / self._clauses))

    def _opening(self, path: Attributes) -> float:
        """Return what a tuple costs by being open."""
        return self._skip_ns + len(path) * PROBE_NS * min(self._met[path], max(map(self._presence, path)))

    def _chosen(self, preferences: Counter[PreferredKeys]) -> set[Attributes]:
        served: dict[PreferredKeys, float] = {}
        costs: dict[Attributes, dict[PreferredKeys, float]] = {}
        for preference, count in preferences.most_common(MAX_PREFERENCES):
            if preference:
                served[preference] = count * JUDGE_NS * 2  # on the scan list nothing narrows down
                options = self._options(preference)
                for path, chance in options.items():
                    costs.setdefault(path, {})[preference] = count * chance * JUDGE_NS
                    self._met[path] += count * min(options[name,] for name in path)
        # Opening a tuple saves the less the more others are open, so a saving that was once computed is a
        # bound: only the best one is looked at again.
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
        self, path: Attributes, costs: Mapping[PreferredKeys, float], served: Mapping[PreferredKeys, float]
    ) -> float:
        saved = sum(max(0.0, served[preference] - cost) for preference, cost in costs.items())
        return saved - self._opening(path)

    def _close(
        self, opened: set[Attributes], costs: Mapping[Attributes, Mapping[PreferredKeys, float]]
    ) -> None:
        """Close the tuples whose preferences others serve nearly as well."""
        serving: dict[PreferredKeys, dict[Attributes, float]] = {}
        for path in opened:
            for preference, cost in costs[path].items():
                serving.setdefault(preference, {})[path] = cost
        for path in sorted(opened, key=lambda path: (len(costs[path]), path)):
            loss = 0.0
            for preference, cost in costs[path].items():
                others = [other for one, other in serving[preference].items() if one != path]
                if not others:
                    break
                loss += max(0.0, min(others) - cost)
            else:
                if loss < self._opening(path):
                    opened.remove(path)
                    for preference in costs[path]:
                        del serving[preference][path]
