"""Choice of the keys of a clause: tuples of shared equalities, prefixes, and a range that sorts.

One attribute alone is skewed: of clauses with ``JMSType = …`` and ``color = …``, all those with the most
common type would be candidates for most messages. Two attributes divide the clauses by both (measured:
11.6-fold at a million clauses). But every tuple of attributes in use is one probe for each message, so the
number of tuples is bounded.

A message meets a tuple if its value of the anchor occurs in some clause there (see ``tables``); that is a
probe, and every clause found by a probe must be judged: more tuples divide better, but cost more probes. The
attributes that a clause requires to be equal are its *preference*; many clauses share one. A preference
filed under a tuple costs the clauses that a message finds there, estimated from the constants: a message
that has an attribute has each key as often as the clauses do, and the fewer clauses read an attribute, the
fewer messages have it.

Choosing tuples is a facility location problem: opening a tuple costs its probes, and a preference is served
by the cheapest open one. The greedy method opens the tuple that saves most until none saves; then tuples
that later ones made superfluous are closed. Both consider few options for each preference, so the time is
linear in the preferences.

Estimates from all clauses are wrong for uneven distributions: one pair of values may have more clauses than
all others together. The clauses under each key are therefore counted, and a crowded key is divided further:
see ``hot_keys``.

A clause with ``LIKE 'abc%'`` and no equality is filed under its prefix. A value has many prefixes, so they
are not keys of an attribute: they are sorted, each has its longest other prefix as parent, and a value is
looked up for its longest prefix, whose ancestors are the shorter ones::

    prefix   "a"   "ab"   "abcd"   "b"         value "abcx" → last that is not greater: "ab"
    parent   -1    0      1        -1                       → leaves of "ab" and of "a"
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod, sqrt
from typing import Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.clauses.access import Equalities, Key
from selectroute.clauses.predicate import Clause, ClauseLiteral, Test
from selectroute.index.compile.residuals import bits_of
from selectroute.selector.values import VOID, Float, Long, Number, Value
from selectroute.topics.filter import TOPIC


def chosen_range(literals: Sequence[ClauseLiteral]) -> tuple[ClauseLiteral, ClauseLiteral | None, int] | None:
    """Return the range to sort by, if there is one; an upper end of the same attribute; and both flags.

    An interval narrows down more than one end, so a pair is preferred. O(ranges²), which are few.
    """
    ranges = [literal for literal in literals if _constant(literal) is not None]
    for low in ranges:
        if _is_upper(low):
            continue
        for high in ranges:
            if _is_upper(high) and name_of(low) == name_of(high) and _alike(low, high):
                return low, high, _flags(low) | t.INTERVAL | (t.EXCLUSIVE if _is_exclusive(high) else 0)
    return (ranges[0], None, _flags(ranges[0])) if ranges else None


def bound_of(ranged: ClauseLiteral) -> int:
    """Return the bound of a range, as in `Tables`."""
    constant = _constant(ranged)
    assert constant is not None
    return bits_of(constant)[1]


def _constant(literal: ClauseLiteral) -> Value | None:
    """Return the bound of a literal that is a range."""
    predicate = literal.predicate
    if isinstance(predicate, Test) and predicate.op in t.RANGE_OPERATORS:
        return predicate.constant if isinstance(predicate.constant, Number) else None
    return None


def _test(ranged: ClauseLiteral) -> Test:
    assert isinstance(ranged.predicate, Test)
    return ranged.predicate


def name_of(ranged: ClauseLiteral) -> str:
    """Return the attribute of a range."""
    return _test(ranged).name


def _is_upper(ranged: ClauseLiteral) -> bool:
    """Return whether the values that satisfy a range are below its bound."""
    return (_test(ranged).op in ("<", "<=")) is ranged.wanted


def _is_exclusive(ranged: ClauseLiteral) -> bool:
    """Return whether the bound itself does not satisfy the range."""
    return (_test(ranged).op in ("<", ">")) is ranged.wanted


def _alike(low: ClauseLiteral, high: ClauseLiteral) -> bool:
    """Return whether two ranges compare in the same way, and hold for the same values except for the bounds.

    For values of another type, and NaN, a range wanted FALSE holds and one wanted TRUE does not.
    """
    return low.wanted is high.wanted and (_flags(low) ^ _flags(high)) & ~(3 << t.OPERATOR_SHIFT) == 0


def _flags(ranged: ClauseLiteral) -> int:
    test, constant = _test(ranged), _constant(ranged)
    kind = t.BOUND_LONG if isinstance(constant, Long) else t.BOUND_DOUBLE
    if isinstance(constant, Float):
        kind = t.BOUND_FLOAT
    return (
        t.SORTED
        | t.RANGE_OPERATORS.index(test.op) << t.OPERATOR_SHIFT
        | kind << t.BOUND_SHIFT
        | (t.WANTED if ranged.wanted else 0)
        | (t.STRICT if test.dialect.unlike_types is VOID else 0)
    )


class Prefixes(NamedTuple):
    """Prefixes of each attribute, ascending by their bytes."""

    of_attribute: dict[int, list[bytes]]

    def first(self, attributes: int) -> t.Array:
        """Return the offsets of the prefixes of each attribute."""
        counts = [len(self.of_attribute.get(attribute, ())) for attribute in range(attributes)]
        return np.cumsum([0, *counts])

    def arrays(self, attributes: int) -> dict[str, t.Array]:
        """Return the arrays ``prefix…`` of `Tables`, except the leaves."""
        texts = [text for attribute in sorted(self.of_attribute) for text in self.of_attribute[attribute]]
        first = self.first(attributes)
        parents: list[int] = []
        for attribute in range(attributes):
            above: list[int] = []
            for number in range(first[attribute], first[attribute + 1]):
                while above and not texts[number].startswith(texts[above[-1]]):
                    above.pop()
                parents.append(above[-1] if above else -1)
                above.append(number)
        return {
            "prefix_first": first,
            "prefix_parent": np.array(parents, np.int32),
            "prefix_key": np.array([prefix_key(text) for text in texts], np.int64),
            "prefix_byte_first": np.cumsum([0, *map(len, texts)]),
            "prefix_bytes": np.frombuffer(b"".join(texts), np.uint8),
        }


def prefix_key(text: bytes) -> int:
    """Return the first eight bytes, padded with zeros, as a long in the order of the bytes."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "big") - (1 << 63)


class Filing(NamedTuple):
    """Residuals with a prefix: attribute and prefix of each, and the rest of the residual, or -1."""

    residual: list[int]
    attribute: list[int]
    prefix: list[bytes]
    left: list[int]


def prefix_filing(residuals: Sequence[int], others: dict[str, t.Array]) -> Filing:
    """Return the prefixes of residuals with a LIKE that must be TRUE.

    The rest of a residual that the prefix decides in part is added to ``others``, the arrays of programs.
    """
    candidates = _patterns(others)
    term_first, programs, wanted = (others[name] for name in ("term_first", "term_program", "term_wanted"))
    filing = Filing([], [], [], [])
    lengths: list[int] = []
    added: list[int] = []
    if not candidates:
        return filing
    for residual in residuals:
        terms = range(term_first[residual], term_first[residual + 1])
        likes = [term for term in terms if wanted[term] and int(programs[term]) in candidates]
        if not likes:
            continue
        term = max(likes, key=lambda like: len(candidates[int(programs[like])][1]))
        attribute, prefix, exact = candidates[int(programs[term])]
        left = residual
        if exact:
            rest = [other for other in terms if other != term]
            left = len(term_first) - 1 + len(lengths) if rest else -1
            if rest:
                lengths.append(len(rest))
                added += rest
        filing.residual.append(residual)
        filing.attribute.append(attribute)
        filing.prefix.append(prefix)
        filing.left.append(left)
    if lengths:
        others["term_first"] = np.append(term_first, term_first[-1] + np.cumsum(lengths))
        others["term_program"] = np.append(programs, programs[added])
        others["term_wanted"] = np.append(wanted, wanted[added])
    return filing


def _patterns(others: Mapping[str, t.Array]) -> dict[int, tuple[int, bytes, bool]]:
    """Return for each program that is a LIKE with a prefix: attribute, prefix, and whether it is exact."""
    step_first, step = others["step_first"], others["step"].reshape(-1, 3)
    item_first, item = others["item_first"], others["item"]
    sizes = np.diff(step_first)
    patterns = {}
    for program in np.flatnonzero(step[step_first[:-1], 0] == t.LIKE):
        first = step_first[program]
        if sizes[program] > 2 or (sizes[program] == 2 and step[first + 1, 0] != t.CHECK_TYPE):
            continue
        attribute, pattern = int(step[first, 1]), int(step[first, 2])
        symbols = item[item_first[pattern] : item_first[pattern + 1]].tolist()
        plain = next((i for i, symbol in enumerate(symbols) if symbol < 0), len(symbols))
        if plain:
            prefix = "".join(map(chr, symbols[:plain])).encode("utf-8", "surrogatepass")
            patterns[int(program)] = (attribute, prefix, symbols[plain:] == [t.ANY_MANY])
    return patterns


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

    For clauses known from the start, ``cost`` makes a better plan.
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


PreferredKeys = tuple[tuple[str, int], ...]
"""Attributes under which a clause can be filed, sorted, each with the number of keys."""

PROBE_NS: Final = 3.0
"""Cost per attribute of a tuple that is met: reading its leaf, or the filter and perhaps the slots."""

SKIP_NS: Final = 0.02
"""Cost of a tuple that is not met: its share of the cache."""

JUDGE_NS: Final = 20.0
"""Cost of a clause that is found: a step of a binary search, or a residual to judge."""

COMMON: Final = 8
"""Minimum entries of a leaf with one residual that become a group: one search, one residual to judge."""

WORTH: Final = 8
"""Minimum residuals that the division of a leaf saves a message: worth a probe and the memory of leaves."""

MAX_PREFERENCES: Final = 4_096
"""Maximum preferences that are planned; rarer ones are served by the tuples of these."""

_OPTIONS: Final = 4
"""Maximum attributes of a preference, those that divide best, from which tuples are made."""


def preferred_keys(equal: Equalities, clauses: int) -> PreferredKeys:
    """Return the preference of a clause; ``clauses`` is the number of clauses of the subscription."""
    most = MAX_ENTRIES // clauses
    return tuple(sorted((name, len(keys)) for name, keys in equal.keys.items() if len(keys) <= most))


class CostPlan:
    """Tuples with the least cost for the preferences, each with its number of clauses."""

    def __init__(
        self, statistics: KeyStatistics, preferences: Mapping[PreferredKeys, int], skip_ns: float = SKIP_NS
    ) -> None:
        """Choose the tuples; ``skip_ns`` is the cost of a tuple for each message that does not meet it."""
        self._statistics = statistics
        self._skip_ns = skip_ns
        self._clauses = max(1, sum(preferences.values()))
        self._paths: dict[PreferredKeys, Attributes] = {}
        self._met: defaultdict[Attributes, float] = defaultdict(float)
        """Number of clauses of a tuple with the message's value of the anchor."""
        self.tuples: frozenset[Attributes] = frozenset(self._chosen(Counter(preferences)))
        """Open tuples."""

    def path(self, equal: Equalities, clauses: int) -> Attributes:
        """Return the attributes under which to file a clause; none for the scan list."""
        preference = preferred_keys(equal, clauses)
        path = self._paths.get(preference)
        if path is None:
            options = self._options(preference)
            inside = {path: chance for path, chance in options.items() if path in self.tuples}
            path = self._paths[preference] = min(
                inside or options, key=lambda path: (options[path], len(path), path), default=SCAN
            )
        return path

    def _options(self, preference: PreferredKeys) -> dict[Attributes, float]:
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

    def _chosen(self, preferences: Counter[PreferredKeys]) -> set[Attributes]:
        served: dict[PreferredKeys, float] = {}
        costs: dict[Attributes, dict[PreferredKeys, float]] = {}
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
        self, path: Attributes, costs: Mapping[PreferredKeys, float], served: Mapping[PreferredKeys, float]
    ) -> float:
        saved = sum(max(0.0, served[preference] - cost) for preference, cost in costs.items())
        return saved - self._opening(path)

    def _close(
        self, opened: set[Attributes], costs: Mapping[Attributes, Mapping[PreferredKeys, float]]
    ) -> None:
        """Close tuples whose preferences other tuples serve nearly as well."""
        serving: dict[PreferredKeys, dict[Attributes, float]] = {}
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
