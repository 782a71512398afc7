"""Match kernel: from codes to runs of matching entries, then to their ordinals in one allocation.

A block of rows goes through five stages, each a loop over plain arrays::

    find    codes of the rows   → visits: the leaves of each row
    scan    the scan list       → accepted: spans of it whose residuals hold, column by column
    narrow  groups of the leaves → spans: the entries of a group whose range holds
    judge   residuals of a span  → held: which of its entries hold
    join    spans and held       → runs of entries, each subscription once a row

Rows are independent within a stage, so a processor overlaps the cache misses of many rows.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import CODE_MULTIPLIER
from selectroute.match.array_pool import take_array
from selectroute.match.compiled import compiled, inlined
from selectroute.match.kernel.run_residual import judge
from selectroute.match.kernel.scan_list import by_column, by_row, scan, words_of
from selectroute.match.memory import copy
from selectroute.match.ranges.range_search import narrow

_MULTIPLIER = np.uint64(CODE_MULTIPLIER)

PROBES, FOUND, JUDGED = 0, 1, 2
"""Counters: keys looked up, leaves found, residuals judged."""

BLOCK = 1024
"""Rows that go through the stages together: their data stays in the cache, and they share the cost of calls.
"""

FEWEST = 32
"""Runs, leaves and spans for which there is room at first in a batch of a few rows: what is so small the C
library gives out and takes back at once.
"""

HELD = 1 << 20
"""Entries with residuals that are judged in one call, rounded up to whole rows."""


@compiled
def collect(rows, tables, columns, terms, shared_terms, single, stack, seen, mark, counters):
    """Return the runs of matching entries: the first pass.

    ``runs`` is int64[r, 2], slices of ``entry_ordinal`` in the order of the rows; ``offsets`` int64[rows + 1]
    has the start of each row's matches. ``terms`` and ``shared_terms`` are `Segment.scan_terms`, ``single``
    is `single_terms`. Row r is ``mark + r`` in `seen` and the stack's memo, which have smaller numbers.
    """
    runs = np.empty((max(FEWEST, rows), 2), np.int64)
    used = 0
    offsets = np.zeros(rows + 1, np.int64)
    most = min(BLOCK, rows)
    room = max(FEWEST, 4 * most)
    visits = np.empty((2, room), np.int32)
    leaves = np.empty(room, np.int32)
    firsts = np.empty(most + 1, np.int64)
    spans = np.empty((room, 4), np.int64)
    held = np.empty(room, np.bool_)
    accepted_first, zeros = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)
    accepted, order = np.empty((16, 4), np.int64), np.empty(0, np.int32)
    columnwise = by_column(rows, tables, columns, terms, leaves, zeros, accepted, spans)
    scanned = columnwise.any()
    words = words_of(shared_terms) if scanned else 16
    known = np.empty((shared_terms if scanned else 0, words), np.uint64)
    shared = (known, np.empty_like(known), np.full(len(known), -1, np.int64))
    size = min(BLOCK, words << 6)
    for block in range(0, rows, size):
        stop = min(block + size, rows)
        found = -1
        while found < 0:
            found = find(
                block, stop, columns.codes, columns.anchors, tables.code_low, tables.code_first,
                tables.code_leaf, tables.code_posting, tables.posting_attribute, tables.posting_filter,
                tables.slot_first, tables.slot, tables.tuple_leaf[-1], len(tables.divided_tuple),
                columns.prefixed, tables.prefix_parent, tables.prefix_leaf, visits, leaves, firsts, counters,
            )  # fmt: skip
            if found < 0:
                visits = np.empty((2, 2 * visits.shape[1]), np.int32)
                leaves = np.empty(visits.shape[1], np.int32)
        if scanned:
            accepted, total, spans, judged = scan(
                block, stop, tables, columns, terms, stack, mark, single[0], single[1], single[2], shared,
                columnwise, leaves, zeros, spans, accepted,
            )  # fmt: skip
            order = by_row(accepted, total, block, accepted_first, order)
            counters[JUDGED] += judged
        row = block
        while row < stop:
            next_row, spanned, judged = narrow(
                row, stop, block, leaves, firsts, columns.tags, columns.bits, columns.reals,
                columns.invalid_names, tables.group_first, tables.group_flags, tables.group_attribute,
                tables.entry_first, tables.entry_bound, tables.group_high, tables.high, 0,
                tables.group_first[1], columnwise, accepted, order, accepted_first, HELD, spans,
            )  # fmt: skip
            if next_row == row:  # not even one row
                spans = np.empty((2 * len(spans), 4), np.int64)
                continue
            if judged > len(held):
                held = np.empty(2 * judged, np.bool_)
            if judged:
                counters[JUDGED] += judge(
                    spans, spanned, tables.entry_residual, tables.term_first, tables.term_program,
                    tables.term_wanted, tables.step_first, tables.step, tables.item_first, tables.item,
                    tables.level_first, tables.level_bytes, columns.tags, columns.codes, columns.bits,
                    columns.sizes, columns.text, columns.strings, columns.patterns, columns.pattern,
                    columns.cells, stack[0], stack[1], stack[2], stack[3], stack[4], mark, held,
                )  # fmt: skip
            room = spanned + judged
            if used + room > len(runs):
                larger = np.empty((2 * len(runs) + room, 2), np.int64)
                larger[:used] = runs[:used]
                runs = larger
            used = join(
                row, next_row, spans, spanned, held, tables.ordinal_first, tables.entry_ordinal, seen, mark,
                runs, used, offsets,
            )  # fmt: skip
            row = next_row
    return runs[:used], offsets


@compiled
def find(
    block, stop, codes, anchors, code_low, code_first, code_leaf, code_posting, posting_attribute,
    posting_filter, slot_first, slots, first_divided, divided, prefixed, prefix_parent, prefix_leaf, visits,
    leaves, firsts, counters,
):  # fmt: skip
    """Write the leaves of the rows from `block` to `stop` into `leaves`, those of row r from ``firsts[r -
    block]`` on. Returns their number; -1 if they do not fit.
    """
    room = len(leaves)
    found = probes = 0
    for number in range(len(anchors)):
        attribute = anchors[number]
        low, first = np.int64(code_low[attribute]), code_first[attribute]
        many = code_first[attribute + 1] - first
        for row in range(block, stop):
            place = codes[attribute, row] - low
            if place < 0 or place >= many:
                continue  # a value that no clause has
            place += first
            leaf = code_leaf[place]
            if leaf >= 0:
                if found == room:
                    return -1
                probes += 1
                visits[0, found], visits[1, found] = row - block, leaf
                found += 1
            for posting in range(code_posting[place], code_posting[place + 1]):
                other = np.int64(codes[posting_attribute[posting], row])
                if other < 0 or not posting_filter[posting] >> np.uint64(other & 63) & np.uint64(1):
                    continue
                probes += 1
                slot = slot_of(other, posting, slot_first, slots)
                if slot >= 0:
                    if found == room:
                        return -1
                    visits[0, found], visits[1, found] = row - block, slot >> 32
                    found += 1
    for number in range(len(prefixed)):
        for row in range(block, stop):
            prefix = prefixed[number, row]
            while prefix >= 0:
                if found == room:
                    return -1
                probes += 1
                visits[0, found], visits[1, found] = row - block, prefix_leaf[prefix]
                found += 1
                prefix = prefix_parent[prefix]
    if divided:
        # Leaves found beneath a divided leaf are appended, and visited later.
        visit = 0
        while visit < found:
            row, leaf = visits[0, visit] + block, visits[1, visit]
            visit += 1
            if leaf < first_divided:
                continue
            place = len(code_leaf) + leaf - first_divided
            for posting in range(code_posting[place], code_posting[place + 1]):
                other = np.int64(codes[posting_attribute[posting], row])
                if other < 0 or not posting_filter[posting] >> np.uint64(other & 63) & np.uint64(1):
                    continue
                probes += 1
                slot = slot_of(other, posting, slot_first, slots)
                if slot >= 0:
                    if found == room:
                        return -1
                    visits[0, found], visits[1, found] = row - block, slot >> 32
                    found += 1
    counters[PROBES] += probes
    counters[FOUND] += found
    # Counting sort by row.
    firsts[:] = 0
    for visit in range(found):
        firsts[visits[0, visit]] += 1
    total = 0
    for row in range(len(firsts)):
        total += firsts[row]
        firsts[row] = total
    for visit in range(found - 1, -1, -1):
        row = visits[0, visit]
        firsts[row] -= 1
        leaves[firsts[row]] = visits[1, visit]
    return found


@inlined
def slot_of(code, posting, slot_first, slots):
    """Return the slot of a code in a posting; negative if it has none."""
    begin = slot_first[posting]
    mask = slot_first[posting + 1] - begin - 1
    at = np.int64((np.uint64(code) * _MULTIPLIER) >> np.uint64(16)) & mask
    slot = slots[begin + at]
    while slot >= 0 and slot & 0xFFFFFFFF != code:
        at = (at + 1) & mask
        slot = slots[begin + at]
    return slot


@compiled
def join(
    row, stop, spans, spanned, held, ordinal_first, entry_ordinal, seen, mark, runs, used, offsets
):  # fmt: skip
    """Append the runs of the rows from `row` to `stop` to the ``used`` ones; return their new number."""
    shares = len(ordinal_first) > 0
    span = judged = 0
    total = offsets[row]
    while row < stop:
        first_run = used
        while span < spanned and spans[span, 0] == row:
            start, end, flags = spans[span, 1], spans[span, 2], spans[span, 3]
            span += 1
            if flags & t.UNIFORM:
                judged += 1
                if not held[judged - 1]:
                    continue
                flags ^= t.RESIDUAL
            if not flags & (t.RESIDUAL | t.REPEATED):
                if shares:
                    start, end = ordinal_first[start], ordinal_first[end]
                runs[used, 0], runs[used, 1] = start, end
                used += 1
                total += end - start
                continue
            for entry in range(start, end):
                if flags & t.RESIDUAL:
                    judged += 1
                    if not held[judged - 1]:
                        continue
                first, last = entry, entry + 1
                if shares:
                    first, last = ordinal_first[entry], ordinal_first[last]
                if flags & t.REPEATED:
                    if seen[entry_ordinal[first]] == row + mark:  # stands for all that share the entry
                        continue
                    seen[entry_ordinal[first]] = row + mark
                total += last - first
                if used > first_run and runs[used - 1, 1] == first:
                    runs[used - 1, 1] = last  # the run before ends here: extend it
                else:
                    runs[used, 0], runs[used, 1] = first, last
                    used += 1
        row += 1
        offsets[row] = total
    return used


def emit(runs: t.Array, offsets: t.Array, entry_ordinal: t.Array) -> t.Array:
    """Return the ordinals of all runs, in order, int32[offsets[-1]]: the second pass."""
    ordinals = take_array(int(offsets[-1]))
    _copy_runs(runs, entry_ordinal, ordinals)
    return ordinals


@compiled
def _copy_runs(runs, source, target):
    at = 0
    for number in range(len(runs)):
        start = runs[number, 0]
        count = runs[number, 1] - start
        copy(target, at, source, start, count)
        at += count
