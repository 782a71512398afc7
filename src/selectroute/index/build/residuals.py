"""Residuals as arrays: the equalities among their terms, and the residuals without one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import distinct_pairs
from selectroute.index.plan.cost import MOST_COPIES

Others: TypeAlias = dict[str, t.Array]
"""Arrays of programs and constants, see `Tables`."""


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
        one, several = plain & (operation == t.IS_KEY), plain & (operation == t.IN)
        counts = one.astype(np.int64)
        sets = argument[several]
        counts[several] = item_first[sets + 1] - item_first[sets]
        counts[counts > MOST_COPIES] = 0
        begin = np.concatenate(([0], np.cumsum(counts)))
        codes = np.empty(begin[-1], np.int64)
        codes[begin[:-1][one]] = argument[one]
        several &= counts > 0
        sets = argument[several]
        places = slices(begin[:-1][several], counts[several])
        codes[places] = item[slices(item_first[sets], counts[several])]
        return cls(np.where(counts > 0, attribute, -1), begin, codes)


def slices(first: t.Array, count: t.Array) -> t.Array:
    """Return the concatenated indices of the slices that begin at ``first`` and have ``count`` elements."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def terms_before(found: EqualityPrograms, others: Others) -> t.Array:
    """Return the number of equalities in the residuals before each one, int64[residuals + 1]."""
    usable = (found.attribute[others["term_program"]] >= 0) & (others["term_wanted"] == 1)
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
    for i, (one, without) in enumerate(keys.tolist()):
        left = [place for place in range(first[one], first[one + 1]) if place != without]
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
