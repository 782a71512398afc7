"""Match kernel: from codes to runs of matching entries, then to their ordinals in one allocation.

A block of rows goes through these stages, each a loop over plain arrays::

    encode  columns of the rows → codes, if the whole batch need not be encoded before
    find    codes of the rows   → visits: the leaves of each row
    scan    the scan list       → accepted: spans of it whose residuals hold, column by column
    narrow  groups of the leaves → spans: the entries of a group whose range holds
    judge   residuals of a span  → held: which of its entries hold
    join    spans and held       → runs of entries, each subscription once a row

Without residuals and the like, groups lead to runs at once: see ``plain_groups``. Rows are independent within
a stage, so a processor overlaps the cache misses of many rows.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import CODE_MULTIPLIER
from selectroute.match.array_pool import take_array
from selectroute.match.compiled import compiled, inlined
from selectroute.match.encoding.blocks import BLOCK, encode_block
from selectroute.match.kernel.plain_groups import plain_runs
from selectroute.match.kernel.run_residual import judge
from selectroute.match.kernel.scan_list import by_column, by_row, scan, words_of
from selectroute.match.memory import address_of, copy, prefetch
from selectroute.match.ranges.range_search import fetch_bounds, narrow

_MULTIPLIER = np.uint64(CODE_MULTIPLIER)

PROBES, FOUND, JUDGED = 0, 1, 2
"""Counters: keys looked up, leaves found, residuals judged."""

FEWEST = 32
"""Runs, leaves and spans for which there is room at first in a batch of a few rows: what is so small the C
library gives out and takes back at once.
"""

SHORT = 16
"""Length of the runs that are copied at once, with what follows them: a call of memcpy takes longer."""

HELD = 1 << 20
"""Entries with residuals that are judged in one call, rounded up to whole rows."""


@compiled
def collect(
    rows, sources, short, plain, tables, columns, terms, shared_terms, single, stack, seen, mark, counters
):  # fmt: skip
    """Return the runs of matching entries: the first pass.

    ``runs`` is int64[r, 2], slices of ``entry_ordinal`` in the order of the rows; ``offsets`` int64[rows + 1]
    has the start of each row's matches. ``terms`` and ``shared_terms`` are `Segment.scan_terms`, ``single``
    is `single_terms`. ``short`` are the segment's `ShortStrings`, ``plain`` is `Segment.plain`. With
    `sources` each block is encoded here, by `encode_block`; without, `columns` has all rows. Row r is ``mark
    + r`` in `seen` and the stack's memo, which have smaller numbers.
    """
    runs = np.empty((max(FEWEST, rows), 2), np.int64)
    used = 0
    offsets = np.zeros(rows + 1, np.int64)
    most = min(BLOCK, rows)
    room = max(FEWEST, 4 * most)
    visits = np.empty((2, room), np.int32)
    leaves, rows_of = np.empty(room, np.int32), np.empty(room, np.int32)
    firsts = np.empty(most + 1, np.int64)
    places = np.empty((room, 4), np.int64)
    hashes = np.empty(most if len(sources) else 0, np.uint64)
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
        base = 0
        if len(sources):
            encode_block(sources, block, stop, tables, short, columns, hashes)
            base = block
        begin, end, first_mark = block - base, stop - base, mark + base
        invalid_names, row_offsets = columns.invalid_names[base:], offsets[base:]
        found = -1
        while found < 0:
            found = find(
                begin, end, columns.codes, columns.anchors, tables.code_low, tables.code_first,
                tables.code_leaf, tables.code_posting, tables.posting_attribute, tables.posting_filter,
                tables.slot_first, tables.slot, tables.tuple_leaf[-1], len(tables.divided_tuple),
                columns.prefixed, tables.prefix_parent, tables.prefix_leaf, visits, leaves, rows_of,
                firsts, places, counters,
            )  # fmt: skip
            if found < 0:
                visits = np.empty((2, 2 * visits.shape[1]), np.int32)
                leaves = np.empty(visits.shape[1], np.int32)
                rows_of = np.empty(visits.shape[1], np.int32)
        if scanned:
            accepted, total, spans, judged = scan(
                begin, end, tables, columns, terms, stack, first_mark, single[0], single[1], single[2],
                shared, columnwise, leaves, zeros, spans, accepted,
            )  # fmt: skip
            order = by_row(accepted, total, begin, accepted_first, order)
            counters[JUDGED] += judged
        groups = fetch_bounds(leaves, found, tables.group_first, tables.entry_first, tables.entry_bound)
        if plain:
            if used + groups >= len(runs):
                runs = longer(runs, used, groups)
            used = plain_runs(
                begin, end, rows_of, leaves, found, columns.tags, columns.bits, columns.reals, invalid_names,
                tables.group_first, tables.group_flags, tables.group_attribute, tables.entry_first,
                tables.entry_bound, tables.ordinal_first, runs, used, row_offsets,
            )  # fmt: skip
            continue
        row = begin
        while row < end:
            next_row, spanned, judged = narrow(
                row, end, begin, leaves, firsts, columns.tags, columns.bits, columns.reals,
                invalid_names, tables.group_first, tables.group_flags, tables.group_attribute,
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
                    columns.cells, stack[0], stack[1], stack[2], stack[3], stack[4], first_mark, held,
                )  # fmt: skip
            room = spanned + judged
            if used + room > len(runs):
                runs = longer(runs, used, room)
            used = join(
                row, next_row, spans, spanned, held, tables.ordinal_first, tables.entry_ordinal, seen,
                first_mark, runs, used, row_offsets,
            )  # fmt: skip
            row = next_row
    return runs[:used], offsets


@compiled
def longer(runs, used, more):
    """Return the ``used`` runs with room for at least so many more."""
    larger = np.empty((2 * len(runs) + more, 2), np.int64)
    larger[:used] = runs[:used]
    return larger


@compiled
def find(
    block, stop, codes, anchors, code_low, code_first, code_leaf, code_posting, posting_attribute,
    posting_filter, slot_first, slots, first_divided, divided, prefixed, prefix_parent, prefix_leaf, visits,
    leaves, rows_of, firsts, places, counters,
):  # fmt: skip
    """Write the leaves of the rows from `block` to `stop` into `leaves`, those of row r from ``firsts[r -
    block]`` on, and the rows of the leaves, less `block`, into `rows_of`. Returns their number; -1 if they do
    not fit. ``places`` is int64[n, 4], scratch memory.
    """
    room = len(leaves)
    found = probes = 0
    for number in range(len(anchors)):
        attribute = anchors[number]
        low, first = np.int64(code_low[attribute]), code_first[attribute]
        many = code_first[attribute + 1] - first
        row = block
        while row < stop:
            # First the places of the slots, then what is there: so their cache misses overlap.
            waiting = 0
            while row < stop:
                place = codes[attribute, row] - low
                if place < 0 or place >= many:
                    row += 1
                    continue  # a value that no clause has
                place += first
                leaf = code_leaf[place]
                first_posting, last_posting = code_posting[place], code_posting[place + 1]
                if waiting + 1 + last_posting - first_posting > len(places):
                    if waiting:
                        break
                    places = np.empty((2 + last_posting - first_posting, 4), np.int64)
                if leaf >= 0:
                    probes += 1
                    places[waiting, 0], places[waiting, 1] = row - block, ~np.int64(leaf)
                    waiting += 1
                for posting in range(first_posting, last_posting):
                    other = np.int64(codes[posting_attribute[posting], row])
                    if other < 0 or not posting_filter[posting] >> np.uint64(other & 63) & np.uint64(1):
                        continue
                    probes += 1
                    at = first_slot(other, posting, slot_first)
                    prefetch(address_of(slots), at)
                    places[waiting, 0], places[waiting, 1] = row - block, at
                    places[waiting, 2], places[waiting, 3] = other, posting
                    waiting += 1
                row += 1
            if found + waiting > room:
                return -1
            for k in range(waiting):
                at, other = places[k, 1], places[k, 2]
                slot = ~at << 32
                if at >= 0:
                    slot = slots[at]
                    if slot >= 0 and slot & 0xFFFFFFFF != other:
                        slot = slot_of(other, places[k, 3], slot_first, slots)
                visits[0, found], visits[1, found] = places[k, 0], slot >> 32
                found += slot >= 0
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
    firsts[:] = 0
    for visit in range(found):
        firsts[visits[0, visit]] += 1
    total = 0
    for row in range(len(firsts)):
        total += firsts[row]
        firsts[row] = total
    if len(anchors) + len(prefixed) <= 1 and not divided:  # they are sorted already
        for visit in range(found):
            firsts[visits[0, visit]] -= 1
            leaves[visit], rows_of[visit] = visits[1, visit], visits[0, visit]
        return found
    # Counting sort by row.
    for visit in range(found - 1, -1, -1):
        row = visits[0, visit]
        firsts[row] -= 1
        leaves[firsts[row]], rows_of[firsts[row]] = visits[1, visit], row
    return found


@inlined
def first_slot(code, posting, slot_first):
    """Return the place of the first slot that a code may have in a posting."""
    begin = slot_first[posting]
    mask = slot_first[posting + 1] - begin - 1
    return begin + (np.int64((np.uint64(code) * _MULTIPLIER) >> np.uint64(16)) & mask)


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
        if count <= SHORT and start + SHORT <= len(source) and at + SHORT <= len(target):
            copy(target, at, source, start, SHORT)  # a few instructions; the next run overwrites the rest
        else:
            copy(target, at, source, start, count)
        at += count
