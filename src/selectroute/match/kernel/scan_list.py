"""Scan list, column by column: its entries, visited by every message, are judged for a block of rows.

An entry has bits for each message of the block: whether it is in range, and whether each of its terms holds.
Terms shared by many entries are looked up; an entry costs an AND of sixteen words for a thousand messages::

    entries sorted by bound  │ rows in range        │ weight > 5 (shared)  │ s LIKE '%a' (only where asked)
    90                       │ 1111 0100 …          │ 1010 0110 …          │ ?0?? ?1?? …  → row 5
    91                       │ 1111 0000 …  row 5 left: ranges end from entry to entry
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled
from selectroute.match.encoding.verdicts import FEWEST_ROWS
from selectroute.match.kernel.scan_terms import judge_column
from selectroute.match.memory import trailing_zeros
from selectroute.match.ranges.range_search import narrow

WORDS = 16
"""Maximum words for the bits of a block's rows."""

SHARED_WORDS = 1 << 19
"""Words for terms shared by several entries: 4 MiB for known bits, and as much for the bits that hold."""

_ALL = np.uint64(0xFFFFFFFF_FFFFFFFF)
_ONE = np.uint64(1)


@compiled
def words_of(shared):
    """Return the words of a block's rows for this number of shared terms: the more terms, the fewer words."""
    return max(1, min(WORDS, SHARED_WORDS // max(1, shared)))


SAMPLE, DENSE = 64, 8
"""A sorted group is judged column by column if on a sample of rows at least one of `DENSE` entries is in
range: a column of an entry costs as much as some thirty rows.
"""


@compiled
def by_column(rows, segment, batch, leaves, zeros, accepted, spans):
    """Return which groups of the scan list are judged column by column, bool[groups of the scan list]."""
    arrays, invalid_names = segment_at(segment), columns_at(batch).invalid_names
    tables = arrays.tables
    columnwise = np.zeros(tables.group_first[1], np.bool_)
    none = np.zeros_like(columnwise)
    if len(arrays.terms) == 0 or rows < FEWEST_ROWS:
        return columnwise
    for group in range(len(columnwise)):
        flags = np.int64(tables.group_flags[group])
        if not flags & t.RESIDUAL:
            continue
        if not flags & t.SORTED:
            columnwise[group] = True
        elif not flags & t.UNIFORM and rows >= 4 * SAMPLE:
            next_row, _, judged = narrow(
                0, SAMPLE, 0, leaves, zeros, segment, batch, invalid_names, group, group + 1, none, accepted,
                leaves, zeros, np.int64(1) << 62, spans,
            )  # fmt: skip
            entries = tables.entry_first[group + 1] - tables.entry_first[group]
            columnwise[group] = judged * DENSE >= next_row * entries > 0
    return columnwise


@compiled
def scan(
    block, stop, segment, batch, stack, mark, shared, columnwise, leaves, zeros, spans, accepted
):  # fmt: skip
    """Judge the residuals of the `columnwise` groups of the scan list (see `by_column`) on the rows from
    `block` to `stop`.

    ``shared`` is (known, held, block) of the shared terms, uint64[terms, words] and int64[terms]. Returns the
    spans that hold, in the form of `narrow` but without `RESIDUAL`, their number, the array of spans, and the
    number of residuals judged.
    """
    arrays, invalid_names = segment_at(segment), columns_at(batch).invalid_names
    tables, terms = arrays.tables, arrays.terms
    known, held, block_of = shared
    words = known.shape[1]
    term_first, term_program, term_wanted = tables.term_first, tables.term_program, tables.term_wanted
    entry_residual = tables.entry_residual
    found = judged = 0
    none = np.zeros_like(columnwise)
    scratch = np.zeros(words << 6, np.bool_)
    single = np.empty((max(stop - block, 1), 4), np.int64)
    active, rows_of = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    own_known, own_held = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    for group in range(tables.group_first[1]):
        if not columnwise[group]:
            continue
        flags = np.int64(tables.group_flags[group])
        start, end = tables.entry_first[group], tables.entry_first[group + 1]
        is_sorted, uniform = flags & t.SORTED != 0, flags & t.UNIFORM != 0
        next_row, spanned = block, 0
        while is_sorted and next_row < stop:
            next_row, spanned, to_judge = narrow(
                block, stop, block, leaves, zeros, segment, batch, invalid_names, group, group + 1, none,
                accepted, leaves, zeros, np.int64(1) << 62, spans,
            )  # fmt: skip
            if next_row < stop:
                spans = np.empty((2 * len(spans), 4), np.int64)
        active[:] = 0
        if is_sorted:
            judged += to_judge
            turns_first, turns = _turns(spans, spanned, block, start, end)
        else:
            for row in range(block, stop):
                if not (flags & t.VALID_NAMES and invalid_names[row]):
                    active[(row - block) >> 6] |= _ONE << np.uint64((row - block) & 63)
                    judged += 1 if uniform else end - start
        for entry in range(start, end):
            if is_sorted:
                for turn in range(turns_first[entry - start], turns_first[entry - start + 1]):
                    active[turns[turn] >> 6] ^= _ONE << np.uint64(turns[turn] & 63)
            left = np.uint64(0)
            for word in range(words):
                rows_of[word] = active[word]
                left |= active[word]
            if left == 0:
                continue
            residual = entry_residual[entry]
            for term in range(term_first[residual], term_first[residual + 1]):
                place = terms[term]
                if place >= 0:
                    if block_of[place] != block:
                        block_of[place] = block
                        known[place, :] = 0
                        held[place, :] = 0
                    left = np.uint64(0)
                    for word in range(words):
                        left |= rows_of[word] & ~known[place, word]
                    is_known, is_held = known[place], held[place]
                else:
                    own_known[:] = 0
                    own_held[:] = 0
                    left = _ALL
                    is_known, is_held = own_known, own_held
                if left:
                    judge_column(
                        term_program[term], term_wanted[term] & 1, place >= 0, block, stop, segment, batch,
                        stack, mark, single, scratch, rows_of, is_known, is_held,
                    )  # fmt: skip
                left = np.uint64(0)
                for word in range(words):
                    rows_of[word] &= is_held[word]
                    left |= rows_of[word]
                if left == 0:
                    break
            if left == 0:
                continue
            after = end if uniform else entry + 1
            for word in range(words):
                left = rows_of[word]
                while left:
                    if found == len(accepted):
                        accepted = _larger(accepted)
                    accepted[found, 0] = block + (word << 6) + trailing_zeros(left)
                    accepted[found, 1], accepted[found, 2] = entry, after
                    accepted[found, 3] = flags & t.REPEATED
                    left &= left - _ONE
                    found += 1
            if uniform:
                break
    return accepted, found, spans, judged


@compiled
def _turns(spans, spanned, block, start, end):
    """Return the rows whose spans of a sorted group begin or end at each entry: offsets by entry, rows."""
    first = np.zeros(end - start + 2, np.int64)
    for span in range(spanned):
        first[spans[span, 1] - start] += 1
        first[spans[span, 2] - start] += 1
    total = 0
    for at in range(len(first)):
        total += first[at]
        first[at] = total
    turns = np.empty(total, np.int32)
    for span in range(spanned):
        for side in (1, 2):
            at = spans[span, side] - start
            first[at] -= 1
            turns[first[at]] = spans[span, 0] - block
    return first, turns


@compiled
def _larger(array):
    larger = np.empty((2 * len(array), 4), np.int64)
    # One by one: for a two-dimensional assignment numba also compiles the error text about sizes.
    for row in range(len(array)):
        for column in range(4):
            larger[row, column] = array[row, column]
    return larger


@compiled
def by_row(accepted, found, block, first, order):
    """Write the numbers of the accepted spans, sorted by row, to `order`, those of row r from ``first[r -
    block]`` on. Returns `order`, or a longer array.
    """
    if found > len(order):
        order = np.empty(2 * found, np.int32)
    first[:] = 0
    for number in range(found):
        first[accepted[number, 0] - block] += 1
    total = 0
    for row in range(len(first)):
        total += first[row]
        first[row] = total
    for number in range(found - 1, -1, -1):
        row = accepted[number, 0] - block
        first[row] -= 1
        order[first[row]] = number
    return order
