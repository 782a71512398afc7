"""Division of hot keys by further attributes: corrects `CostPlan`, which knows only averages.

A tuple has at most two attributes, and each of its keys has a leaf. If many clauses share a key, a message
that finds the key judges all of them, also those with a further equality that the message lacks. Such a leaf
is *divided*: it gets its own postings, as a code has, and clauses are moved to the leaves of these postings::

    JMSType, color = 'car', 'red' → leaf 7, divided → posting of region: 'r01' → leaf 8, 'r02' → leaf 9, …
                                                     → posting of customer: 'c17' → leaf 42, divided → …

A moved clause has the equality as a key, and no longer in its residual. Clauses without it stay, and may be
divided by another one. Only messages that find the leaf look up its postings, so the tuples of two, which all
messages look up, remain few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.rows import changes, distinct_pairs, numbered, slices
from selectroute.index.compile.cost_plan import COMMON
from selectroute.index.compile.entries import Entries
from selectroute.index.compile.residuals import Others


class Divided(NamedTuple):
    """Divided leaves, in the order of their numbers, and the tuples beneath them.

    ``tuple_`` int64[n] and ``codes`` uint64[n] are the keys of leaf i, as in `Entries`. ``beneath`` has
    (attribute, `BENEATH`) for each further tuple, ``above`` the number of the tuple above it.
    Entries of a further tuple have the number of the divided leaf as their first code; those in divided leaf
    i itself have tuple `OWN` and code i.
    """

    tuple_: t.Array
    codes: t.Array
    beneath: list[Sequence[int]]
    above: list[int]


OWN = np.iinfo(np.int64).max
"""Tuple of the entries in a divided leaf itself: sorts last."""

NOTHING = Divided(np.zeros(0, np.int64), np.zeros(0, np.uint64), [], [])


def divide(entries: Entries, tuples: Sequence[Sequence[int]], others: Others) -> tuple[Entries, Divided]:
    """Divide the leaves of hot keys where it pays, and drop unused programs from ``others``. O(entries × log
    entries × depth), for entries with an equality to judge.
    """
    lookups = EqualityPrograms.of(others)
    by_key = np.array([0, *(len(attributes) < 2 or attributes[1] >= 0 for attributes in tuples)], np.bool_)
    rows = np.flatnonzero((entries.residual >= 0) & by_key[entries.tuple_])
    rows = rows[np.diff(terms_before(lookups, others))[entries.residual[rows]] > 0]
    if len(rows) < WORTH:
        return entries, NOTHING
    division = _Division(entries, rows, len(tuples), lookups, others)
    while division.round():
        pass
    if not division.divided:
        return entries, NOTHING
    return division.result()


class _Choices(NamedTuple):
    """Ways to move a row: (row, term), the attribute and a code of the term, and the leaf of the row."""

    row: t.Array
    term: t.Array
    leaf: t.Array
    attribute: t.Array
    code: t.Array


class _Division:
    """Rows of entries that can be divided, with their leaves and residuals."""

    def __init__(
        self, entries: Entries, rows: t.Array, tuples: int, lookups: EqualityPrograms, others: Others
    ) -> None:
        self._entries, self._lookups, self._others = entries, lookups, others
        self._row, self._residual = rows, entries.residual[rows].astype(np.int64)
        self._moved = np.zeros(len(rows), np.bool_)
        self._copies = np.ones(len(rows), np.int64)
        self._tuples = tuples
        self._tuple, self._codes = np.zeros(0, np.int64), np.zeros(0, np.uint64)  # of each leaf
        self._leaf = self._leaves(entries.tuple_[rows], entries.codes[rows])
        self._residuals: dict[bytes, int] = {}
        self._active = np.ones(len(rows), np.bool_)
        """Rows in leaves that changed in the previous round."""
        self._beneath: dict[tuple[int, int], int] = {}  # (tuple, attribute): the tuple beneath
        self.divided: dict[int, int] = {}
        """Divided leaves, with their numbers."""

    def round(self) -> bool:
        """Divide each leaf once by the attribute that saves most, if it pays; return whether any was."""
        choices = self._choices()
        best = self._best(choices)
        taken = best[choices.leaf] == choices.attribute
        if not taken.any():
            return False
        self._move(_Choices(*(column[taken] for column in choices)), best)
        return True

    def _leaves(self, tuple_: t.Array, codes: t.Array) -> t.Array:
        """Return the numbers of new leaves for rows with these tuples and codes."""
        shown, number = numbered(codes, tuple_)
        first = len(self._tuple)
        self._tuple = np.append(self._tuple, tuple_[shown])
        self._codes = np.append(self._codes, codes[shown])
        return first + number

    def _choices(self) -> _Choices:
        others, lookups = self._others, self._lookups
        rows = np.flatnonzero(self._active)
        first = others["term_first"].astype(np.int64)
        residual = self._residual[rows]
        count = np.where(residual >= 0, first[residual + 1] - first[residual], 0)
        rows, term = np.repeat(rows, count), slices(first[np.maximum(residual, 0)], count)
        program = others["term_program"][term]
        count = lookups.first[program + 1] - lookups.first[program]
        usable = (lookups.attribute[program] >= 0) & (others["term_wanted"][term] == 1)
        usable &= count * self._copies[rows] <= MOST_COPIES
        rows, term, program, count = rows[usable], term[usable], program[usable], count[usable]
        code = lookups.codes[slices(lookups.first[program], count)]
        rows, term = np.repeat(rows, count), np.repeat(term, count)
        attribute = np.repeat(lookups.attribute[program], count)
        # The first of several equalities of one attribute.
        order = np.lexsort((term, attribute, rows))
        new = changes(rows[order], attribute[order])
        chosen = np.empty(len(order), np.int64)
        chosen[order] = term[order[new]][np.cumsum(new) - 1]
        keep = chosen == term
        return _Choices(rows[keep], term[keep], self._leaf[rows[keep]], attribute[keep], code[keep])

    def _best(self, choices: _Choices) -> t.Array:
        """Return the attribute that divides each leaf best, or -1."""
        best = np.full(len(self._tuple), -1, np.int64)
        if not len(choices.row):
            return best
        # A residual shared by many entries is judged once.
        rows = np.flatnonzero(self._active)
        equal = alike(self._leaf[rows], self._entries.shape[self._row[rows]], self._residual[rows])
        judged = np.ones(len(self._row))
        judged[rows] = np.where(equal >= COMMON, 1 / equal, 1.0)
        weight = judged[choices.row]
        order = np.lexsort((choices.row, choices.code, choices.attribute, choices.leaf))
        row, leaf, attribute, code, weight = (
            column[order] for column in (choices.row, choices.leaf, choices.attribute, choices.code, weight)
        )
        new_way = changes(leaf, attribute)
        ways, values = np.flatnonzero(new_way), np.flatnonzero(new_way | changes(code))
        way_of_value = np.searchsorted(ways, values, side="right") - 1
        # Assume that messages have a value as often as the clauses of the leaf. Undivided, a message judges
        # all clauses; divided, those with its value.
        judged = np.add.reduceat(weight, values)
        clauses = np.diff(values, append=len(row))
        all_judged, all_clauses = np.add.reduceat(weight, ways), np.diff(ways, append=len(row))
        # A clause with several codes counts once among those judged undivided.
        copies = np.add.reduceat(weight * (1 - 1 / alike(row, attribute)), ways)
        expected = np.bincount(way_of_value, judged * clauses, minlength=len(ways)) / all_clauses
        saved = all_judged - copies - expected
        order = np.lexsort((attribute[ways], -saved, leaf[ways]))
        top = order[changes(leaf[ways[order]])]
        top = top[saved[top] >= WORTH]
        best[leaf[ways[top]]] = attribute[ways[top]]
        return best

    def _move(self, taken: _Choices, best: t.Array) -> None:
        for leaf in np.unique(taken.leaf).tolist():
            self.divided.setdefault(leaf, len(self.divided))
        number = np.zeros(len(best), np.int64)
        number[list(self.divided)] = list(self.divided.values())
        ways, way = distinct_pairs(self._tuple[taken.leaf], taken.attribute)
        beneath = [
            self._beneath.setdefault((above, attribute), self._tuples + len(self._beneath) + 1)
            for above, attribute in ways.tolist()
        ]
        codes = number[taken.leaf].astype(np.uint64) << np.uint64(32) | taken.code.astype(np.uint64)
        leaf = self._leaves(np.array(beneath)[way], codes)
        left = without(self._residual[taken.row], taken.term, self._residuals, self._others)
        stays = np.ones(len(self._row), np.bool_)
        stays[taken.row] = False
        changed = np.zeros(len(self._tuple), np.bool_)
        changed[taken.leaf] = True
        changed[leaf] = True
        copies = self._copies[taken.row] * alike(taken.row)
        self._copies = np.append(self._copies[stays], copies)
        self._row = np.append(self._row[stays], self._row[taken.row])
        self._leaf = np.append(self._leaf[stays], leaf)
        self._residual = np.append(self._residual[stays], left)
        self._moved = np.append(self._moved[stays], np.ones(len(left), np.bool_))
        self._active = changed[self._leaf]

    def result(self) -> tuple[Entries, Divided]:
        """Return the entries under their new keys, and the divided leaves."""
        entries, leaves = self._entries, np.array(list(self.divided))
        stay = np.ones(len(entries.ordinal), np.bool_)
        stay[self._row[self._moved]] = False
        stayed, moved = np.flatnonzero(stay), np.flatnonzero(self._moved)
        rows = np.append(stayed, self._row[moved])
        tuple_ = np.append(entries.tuple_[stayed], self._tuple[self._leaf[moved]])
        codes = np.append(entries.codes[stayed], self._codes[self._leaf[moved]])
        residual = np.append(entries.residual[stayed], self._residual[moved])
        divided = Divided(
            self._tuple[leaves],
            self._codes[leaves],
            [(attribute, t.BENEATH) for _, attribute in self._beneath],
            [above for above, _ in self._beneath],
        )
        own = _own(tuple_, codes, divided)
        tuple_, codes = np.where(own >= 0, OWN, tuple_), np.where(own >= 0, own.astype(np.uint64), codes)
        shape = entries.shape[rows] & np.where(residual < 0, ~t.RESIDUAL, -1)
        return Entries(
            tuple_=tuple_,
            codes=codes,
            shape=shape,
            bound=entries.bound[rows],
            residual=compacted(residual, self._others),
            ordinal=entries.ordinal[rows],
            high=entries.high[rows],
        ), divided


def alike(*columns: t.Array) -> t.Array:
    """Return for each row the number of equal rows."""
    _, number = numbered(*columns)
    counts: t.Array = np.bincount(number)[number]
    return counts


def _own(tuple_: t.Array, codes: t.Array, divided: Divided) -> t.Array:
    """Return the divided leaf of each entry that is in one itself, or -1."""
    own = np.full(len(tuple_), -1, np.int64)
    for number in np.unique(divided.tuple_).tolist():
        leaves = np.flatnonzero(divided.tuple_ == number)
        leaves = leaves[np.argsort(divided.codes[leaves])]
        rows = np.flatnonzero(tuple_ == number)
        place = np.minimum(np.searchsorted(divided.codes[leaves], codes[rows]), len(leaves) - 1)
        same = divided.codes[leaves[place]] == codes[rows]
        own[rows[same]] = leaves[place[same]]
    return own


MOST_COPIES: Final = 16
"""Maximum copies of a clause in divided leaves for each of its keys (IN lists multiply)."""


class EqualityPrograms(NamedTuple):
    """Programs that are equalities: for each program its attribute, or -1, and the few codes it allows."""

    attribute: t.Array
    first: t.Array
    codes: t.Array

    @classmethod
    def of(cls, others: Mapping[str, t.Array]) -> EqualityPrograms:
        """Return the programs that look up one code, or at most `MOST_COPIES`. O(steps)."""
        step_first, step = others["step_first"].astype(np.int64), others["step"].reshape(-1, 3)
        item_first, item = others["item_first"].astype(np.int64), others["item"]
        first, sizes = step_first[:-1], np.diff(step_first)
        operation, attribute, argument = step[first].T.copy()
        # Only a type check can follow a lookup, and a value with the code passes it.
        plain = (sizes == 1) | (
            (sizes == 2) & (step[np.minimum(first + 1, len(step) - 1), 0] == t.CHECK_TYPE)
        )
        single, several = plain & (operation == t.IS_KEY), plain & (operation == t.IN)
        counts = single.astype(np.int64)
        sets = argument[several]
        counts[several] = item_first[sets + 1] - item_first[sets]
        counts[counts > MOST_COPIES] = 0
        begin = np.concatenate(([0], np.cumsum(counts)))
        codes = np.empty(begin[-1], np.int64)
        codes[begin[:-1][single]] = argument[single]
        several &= counts > 0
        sets = argument[several]
        places = slices(begin[:-1][several], counts[several])
        codes[places] = item[slices(item_first[sets], counts[several])]
        return cls(np.where(counts > 0, attribute, -1), begin, codes)


def terms_before(lookups: EqualityPrograms, others: Others) -> t.Array:
    """Return the number of equalities in the residuals before each one, int64[residuals + 1]."""
    usable = (lookups.attribute[others["term_program"]] >= 0) & (others["term_wanted"] == 1)
    before: t.Array = np.concatenate(([0], np.cumsum(usable)))[others["term_first"]]
    return before


def without(residual: t.Array, term: t.Array, known: dict[bytes, int], others: Others) -> t.Array:
    """Return the residuals each without one of its terms, int64, or -1 without other terms.

    New residuals are added to ``others``; equal ones have one number, by ``known``, which all calls share.
    """
    first, programs, wanted = (others[name] for name in ("term_first", "term_program", "term_wanted"))
    keys, number = distinct_pairs(residual, term)
    made = np.empty(len(keys), np.int64)
    lengths: list[int] = []
    added: list[int] = []
    for i, (old, without) in enumerate(keys.tolist()):
        left = [place for place in range(first[old], first[old + 1]) if place != without]
        key = programs[left].tobytes() + wanted[left].tobytes()
        made[i] = known.setdefault(key, len(first) - 1 + len(lengths)) if left else -1
        if made[i] == len(first) - 1 + len(lengths):
            lengths.append(len(left))
            added += left
    others["term_first"] = np.append(first, first[-1] + np.cumsum(lengths, dtype=np.int64))
    others["term_program"] = np.append(programs, programs[added])
    others["term_wanted"] = np.append(wanted, wanted[added])
    return made[number]


def compacted(residual: t.Array, others: Others) -> t.Array:
    """Return the residuals of entries, renumbered after unused residuals and programs are dropped."""
    has = residual >= 0
    used, number = np.unique(residual[has], return_inverse=True)
    first = others["term_first"].astype(np.int64)
    counts = first[used + 1] - first[used]
    terms = slices(first[used], counts)
    programs, of_term = np.unique(others["term_program"][terms], return_inverse=True)
    others["term_first"] = np.concatenate(([0], np.cumsum(counts)))
    others["term_program"], others["term_wanted"] = of_term, others["term_wanted"][terms]
    first = others["step_first"].astype(np.int64)
    counts = first[programs + 1] - first[programs]
    others["step"] = others["step"].reshape(-1, 3)[slices(first[programs], counts)]
    others["step_first"] = np.concatenate(([0], np.cumsum(counts)))
    result = np.full(len(residual), -1, np.int32)
    result[has] = number.reshape(-1)
    return result


WORTH: Final = 8
"""Minimum residuals that the division of a leaf saves a message: worth a probe and the memory of leaves."""
