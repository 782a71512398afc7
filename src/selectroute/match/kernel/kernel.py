"""Match kernel: from codes to runs of matching entries, then to their ordinals in one allocation.

A block of rows goes through these stages, each a loop over plain arrays::

    encode  columns of the rows → codes, if the whole batch need not be encoded before
    find    codes of the rows   → visits: the leaves of each row
    scan    the scan list       → accepted: spans of it whose residuals hold, column by column
    narrow  groups of the leaves → spans: the entries of a group whose range holds
    judge   residuals of a span  → held: which of its entries hold
    join    spans and held       → runs of entries, each subscription once a row

Groups without residuals, intervals and subscriptions of several clauses are the most frequent. Each is at
most one run of entries, so `plain_runs` leads to runs at once. Rows are independent within a stage, so a
processor overlaps the cache misses of many rows.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import CODE_MULTIPLIER
from selectroute.arrays.segment import ATTRIBUTE_LIMIT, LEAF_ATTRIBUTE, LEAF_ENTRIES, LEAF_FLAGS
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.encoding.blocks import BLOCK, encode_block
from selectroute.match.kernel.residual import judge
from selectroute.match.kernel.scan import by_column, by_row, scan, words_of
from selectroute.match.memory import (
    address_of,
    byte_at,
    copy,
    copy_sixteen,
    int_at,
    long_at,
    prefetch,
    real_at,
    short_at,
    take_array,
)
from selectroute.match.ranges import FAR, fetch_bounds, fetch_first_bounds, fetch_groups, narrow, range_of


@compiled
def fetch_plain(leaves, visits, segment, others):
    """Begin to load the first bounds of each leaf to visit. Returns how many groups the leaves have.
    ``others`` is scratch memory for as many.
    """
    arrays = segment_at(segment)
    words, entry_bound = address_of(arrays.leaf_groups), arrays.tables.entry_bound
    bounds, is_far = address_of(entry_bound), len(entry_bound) >= FAR
    groups = np.int64(0)
    left = 0
    for visit in range(visits):
        leaf = np.int64(leaves[visit])
        start, word = long_at(words, 2 * leaf), long_at(words, 2 * leaf + 1)
        if word < 0:
            groups += ~word
            others[left] = start
            left += word < -1
            continue
        groups += 1
        if is_far and word & t.SORTED:
            fetch_first_bounds(bounds, start, word >> LEAF_ENTRIES)
    if left:
        fetch_groups(others, left, segment)
    return groups


@compiled
def plain_runs(begin, end, rows, leaves, count, segment, batch, invalid_names, runs, used, offsets):
    """Append the runs of the first `count` leaves to the ``used`` ones, which have room for all groups of
    these; return their new number. ``rows`` are those of the leaves, counted from `begin`.
    """
    arrays, columns = segment_at(segment), columns_at(batch)
    tables = arrays.tables
    bounds, total = address_of(tables.entry_bound), len(tables.entry_bound)
    shares, ordinals = len(tables.ordinal_first) > 0, address_of(tables.ordinal_first)
    words, first_entries = address_of(arrays.leaf_groups), address_of(tables.entry_first)
    flags_of, attribute_of = address_of(tables.group_flags), address_of(tables.group_attribute)
    tags_of, values_of, width = address_of(columns.tags), address_of(columns.bits), columns.tags.shape[1]
    for visit in range(count):
        row, leaf = begin + np.int64(rows[visit]), np.int64(leaves[visit])
        start, word = long_at(words, 2 * leaf), long_at(words, 2 * leaf + 1)
        flags, stop = word & LEAF_FLAGS, start + (word >> LEAF_ENTRIES)
        attribute = word >> LEAF_ATTRIBUTE & ATTRIBUTE_LIMIT - 1
        # One body for both kinds of leaves, which is inlined once: a leaf with a word goes through it once,
        # and its group has no number.
        group, end_group = np.int64(0), np.int64(1)
        if word < 0:
            group, end_group = start, start + ~word
        while group < end_group:
            if word < 0:
                flags, attribute = np.int64(short_at(flags_of, group)), int_at(attribute_of, group)
                start, stop = long_at(first_entries, group), long_at(first_entries, group + 1)
            group += 1
            if flags & t.SORTED:
                place = attribute * width + row
                tag = np.int8(byte_at(tags_of, place))
                value, real = long_at(values_of, place), real_at(values_of, place)
                start, stop = range_of(flags, start, stop, tag, value, real, bounds, total)
            if flags & t.VALID_NAMES and invalid_names[row]:
                stop = start
            if shares:
                start, stop = long_at(ordinals, start), long_at(ordinals, stop)
            # Without a branch, which half of the messages would take: the next run overwrites an empty one.
            runs[used, 0], runs[used, 1] = start, stop
            used += start < stop
            offsets[row + 1] += stop - start
    reached = offsets[begin]
    for row in range(begin, end):
        reached += offsets[row + 1]
        offsets[row + 1] = reached
    return used


_MULTIPLIER = np.uint64(CODE_MULTIPLIER)

PROBES, FOUND, JUDGED = 0, 1, 2
"""Counters: keys looked up, leaves found, residuals judged."""

FEWEST = 32
"""Runs, leaves and spans for which there is room at first: so small an allocation takes almost no time."""

SHORT = 16
"""Length of the runs that are copied at once, with what follows them: a call of memcpy takes longer."""

AHEAD = 16
"""Runs from the one that is copied to the one that is loaded."""

WAITING = 256
"""Slots that are loaded at the same time; what is noted of them is in the nearest cache."""

HELD = 1 << 20
"""Entries with residuals that are judged in one call, rounded up to whole rows."""


@compiled
def collect(rows, sources, anchors, segment, batch, stack, seen, mark, counters):
    """Return the runs of matching entries: the first pass.

    ``runs`` is int64[r, 2], slices of ``entry_ordinal`` in the order of the rows; ``offsets`` int64[rows + 1]
    has the start of each row's matches. ``anchors`` int64[n] are the attributes of the batch whose codes lead
    to leaves. With `sources` each block is encoded here, by `encode_block`; without, the columns have all
    rows. Row r is ``mark + r`` in `seen` and the stack's memo, which have smaller numbers.
    """
    arrays, columns = segment_at(segment), columns_at(batch)
    tables, leaf_groups, shared_terms = arrays.tables, arrays.leaf_groups, arrays.shared_terms[0]
    runs = np.empty((max(FEWEST, rows), 2), np.int64)
    used = 0
    plain = len(leaf_groups) > 0
    offsets = np.zeros(rows + 1, np.int64)
    most = min(BLOCK, rows)
    room = max(FEWEST, 4 * most)
    visits = np.empty((2, room), np.int32)
    leaves, rows_of = np.empty(room, np.int32), np.empty(room, np.int32)
    firsts = np.empty(most + 1, np.int64)
    hashes = np.empty(most if len(sources) else 0, np.uint64)
    spans = np.empty((room, 4), np.int64)
    held = np.empty(room, np.bool_)
    accepted_first, zeros = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)
    accepted, order = np.empty((16, 4), np.int64), np.empty(0, np.int32)
    columnwise = by_column(rows, segment, batch, leaves, zeros, accepted, spans)
    scanned = columnwise.any()
    words = words_of(shared_terms) if scanned else 16
    known = np.empty((shared_terms if scanned else 0, words), np.uint64)
    shared = (known, np.empty_like(known), np.full(len(known), -1, np.int64))
    size = min(BLOCK, words << 6)
    for block in range(0, rows, size):
        stop = min(block + size, rows)
        base = 0  # with sources the columns have only this block, so its rows count from 0
        if len(sources):
            encode_block(sources, block, stop, segment, batch, hashes)
            base = block
        begin, end, first_mark = block - base, stop - base, mark + base
        invalid_names, row_offsets = columns.invalid_names[base:], offsets[base:]
        count = -1
        while count < 0:
            count = find(begin, end, anchors, segment, batch, visits, leaves, rows_of, firsts, counters)
            if count < 0:
                visits = np.empty((2, 2 * visits.shape[1]), np.int32)
                leaves = np.empty(visits.shape[1], np.int32)
                rows_of = np.empty(visits.shape[1], np.int32)
        if scanned:
            accepted, total, spans, judged = scan(
                begin,
                end,
                segment,
                batch,
                stack,
                first_mark,
                shared,
                columnwise,
                leaves,
                zeros,
                spans,
                accepted,
            )
            order = by_row(accepted, total, begin, accepted_first, order)
            counters[JUDGED] += judged
        if plain:
            groups = fetch_plain(leaves, count, segment, visits[0])
            if used + groups >= len(runs):
                runs = longer(runs, used, groups)
            used = plain_runs(
                begin, end, rows_of, leaves, count, segment, batch, invalid_names, runs, used, row_offsets
            )
            continue
        fetch_bounds(leaves, count, segment, visits[0])
        row = begin
        while row < end:
            next_row, spanned, judged = narrow(
                row, end, begin, leaves, firsts, segment, batch, invalid_names, 0, tables.group_first[1],
                columnwise, accepted, order, accepted_first, HELD, spans,
            )  # fmt: skip
            if next_row == row:  # not even one row
                spans = np.empty((2 * len(spans), 4), np.int64)
                continue
            if judged > len(held):
                held = np.empty(2 * judged, np.bool_)
            if judged:
                counters[JUDGED] += judge(
                    spans, spanned, tables.entry_residual, tables.term_first, tables.term_program,
                    tables.term_wanted, segment, batch, stack, first_mark, held,
                )  # fmt: skip
            if used + spanned > len(runs):
                runs = longer(runs, used, spanned)
            runs, used = join(
                row, next_row, spans, spanned, held, segment, seen, first_mark, runs, used, row_offsets
            )
            row = next_row
    return runs[:used], offsets


@compiled
def longer(runs, used, more):
    """Return the ``used`` runs with room for at least so many more."""
    larger = np.empty((2 * len(runs) + more, 2), np.int64)
    larger[:used] = runs[:used]
    return larger


@compiled
def find(block, stop, anchors, segment, batch, visits, leaves, rows_of, firsts, counters):
    """Write the leaves of the rows from `block` to `stop` into `leaves`, row by row, and the rows of the
    leaves, less `block`, into `rows_of`. Returns their number; -1 if they do not fit. Those of row r are from
    ``firsts[r - block]`` on, which is left as it is where all groups are plain and the leaves come in the
    order of the rows: there it is not needed.
    ``visits`` is scratch memory for as many.
    """
    arrays, columns = segment_at(segment), columns_at(batch)
    tables, prefixed = arrays.tables, columns.prefixed
    code_leaf, code_posting = tables.code_leaf, tables.code_posting
    first_divided, divided = tables.tuple_leaf[-1], len(tables.divided_tuple)
    plain = len(arrays.leaf_groups) > 0
    # Where to look next for a leaf.
    near, size = (address_of(arrays.leaf_groups), 16) if plain else (address_of(tables.group_first), 4)
    room = len(leaves)
    is_sorted = len(anchors) + len(prefixed) <= 1 and not divided
    rows, found_leaves = (rows_of, leaves) if is_sorted else (visits[0], visits[1])
    count = probes = 0
    codes_of, width = address_of(columns.codes), columns.codes.shape[1]
    leaf_of, posting_of = address_of(code_leaf), address_of(code_posting)
    attribute_of, filter_of = address_of(tables.posting_attribute), address_of(tables.posting_filter)
    slot_firsts, all_slots = address_of(tables.slot_first), address_of(tables.slot)
    places = np.empty((WAITING, 5), np.int64)
    for number in range(len(anchors)):
        attribute = anchors[number]
        low, first = np.int64(tables.code_low[attribute]), tables.code_first[attribute]
        many = tables.code_first[attribute + 1] - first
        row = block
        while row < stop:
            # First the places of the slots, then what is there: so their cache misses overlap.
            waiting = 0
            while row < stop:
                place = int_at(codes_of, attribute * width + row) - low
                if place < 0 or place >= many:
                    row += 1
                    continue  # a value that no clause has
                place += first
                leaf = int_at(leaf_of, place)
                first_posting = np.int64(int_at(posting_of, place))
                last_posting = np.int64(int_at(posting_of, place + 1))
                if waiting + 1 + last_posting - first_posting > WAITING:
                    break
                if leaf >= 0:
                    probes += 1
                    places[waiting, 0], places[waiting, 1] = row - block, ~np.int64(leaf)
                    waiting += 1
                for posting in range(first_posting, last_posting):
                    other = np.int64(int_at(codes_of, int_at(attribute_of, posting) * width + row))
                    if other < 0 or not _may_have(other, long_at(filter_of, posting)):
                        continue
                    probes += 1
                    at, after = first_slots(other, posting, slot_firsts)
                    prefetch(all_slots, at)
                    places[waiting, 0], places[waiting, 1], places[waiting, 2] = row - block, at, after
                    places[waiting, 3], places[waiting, 4] = other, posting
                    waiting += 1
                row += 1
            if count + waiting > room:
                return -1
            for k in range(waiting):
                at, other = places[k, 1], places[k, 3]
                slot = ~at << 32
                if at >= 0:
                    # A quarter of probes collide, unpredictably: so two slots are read, without a branch.
                    slot, after = long_at(all_slots, at), long_at(all_slots, places[k, 2])
                    slot = after if _is_of_another(slot, other) else slot
                    if _is_of_another(slot, other):
                        slot = slot_of(other, places[k, 4], slot_firsts, all_slots)
                leaf = slot >> 32
                prefetch(near + size * leaf, 0)
                rows[count], found_leaves[count] = places[k, 0], leaf
                count += slot >= 0
            if row < stop and not waiting:  # a value with more postings than can wait
                leaf = int_at(leaf_of, place)
                if leaf >= 0:
                    if count == room:
                        return -1
                    rows[count], found_leaves[count] = row - block, leaf
                    count += 1
                count, probed = _visit_postings(row, block, place, segment, batch, rows, found_leaves, count)
                probes += probed + (leaf >= 0)
                if count < 0:
                    return -1
                row += 1
    for number in range(len(prefixed)):
        for row in range(block, stop):
            prefix = prefixed[number, row]
            while prefix >= 0:
                if count == room:
                    return -1
                probes += 1
                rows[count], found_leaves[count] = row - block, tables.prefix_leaf[prefix]
                count += 1
                prefix = tables.prefix_parent[prefix]
    if divided:
        # Leaves found beneath a divided leaf are appended, and visited later.
        visit = 0
        while visit < count:
            row, leaf = rows[visit] + block, found_leaves[visit]
            visit += 1
            if leaf < first_divided:
                continue
            place = len(code_leaf) + leaf - first_divided
            count, probed = _visit_postings(row, block, place, segment, batch, rows, found_leaves, count)
            probes += probed
            if count < 0:
                return -1
    counters[PROBES] += probes
    counters[FOUND] += count
    if is_sorted and plain:
        return count
    firsts[:] = 0
    for visit in range(count):
        firsts[rows[visit]] += 1
    total = 0
    for row in range(len(firsts)):
        total += firsts[row]
        firsts[row] = total
    # Counting sort by row.
    for visit in range(count - 1, -1, -1):
        row = rows[visit]
        firsts[row] -= 1
        if not is_sorted:
            leaves[firsts[row]], rows_of[firsts[row]] = found_leaves[visit], row
    return count


@compiled
def _visit_postings(row, block, place, segment, batch, rows, leaves, count):
    """Write the leaves that the postings of a code or divided leaf lead to for a row, and the row, less
    `block`, after the first `count`; return their new number, -1 if they do not fit, and how many keys were
    looked up.
    """
    tables, codes = segment_at(segment).tables, columns_at(batch).codes
    slot_firsts, slots = address_of(tables.slot_first), address_of(tables.slot)
    probes = 0
    for number in range(tables.code_posting[place], tables.code_posting[place + 1]):
        other = np.int64(codes[tables.posting_attribute[number], row])
        if other < 0 or not _may_have(other, tables.posting_filter[number]):
            continue
        probes += 1
        slot = slot_of(other, number, slot_firsts, slots)
        if slot >= 0:
            if count == len(leaves):
                return -1, probes
            rows[count], leaves[count] = row - block, slot >> 32
            count += 1
    return count, probes


@inlined
def _may_have(code, posting_filter):
    """Return whether a posting with this filter may have a slot for a code."""
    return np.uint64(posting_filter) >> np.uint64(code & 63) & np.uint64(1) != 0


@inlined
def first_slots(code, posting, slot_firsts):
    """Return the places of the first two slots that a code may have in a posting; ``slot_firsts`` is an
    address.
    """
    begin = long_at(slot_firsts, posting)
    mask = long_at(slot_firsts, posting + 1) - begin - 1
    at = np.int64((np.uint64(code) * _MULTIPLIER) >> np.uint64(16))
    return begin + (at & mask), begin + (at + 1 & mask)


@inlined
def slot_of(code, posting, slot_firsts, slots):
    """Return the slot of a code in a posting; negative if it has none. Both arrays are addresses."""
    begin = long_at(slot_firsts, posting)
    mask = long_at(slot_firsts, posting + 1) - begin - 1
    at = np.int64((np.uint64(code) * _MULTIPLIER) >> np.uint64(16)) & mask
    slot = long_at(slots, begin + at)
    while _is_of_another(slot, code):
        at = at + 1 & mask
        slot = long_at(slots, begin + at)
    return slot


@inlined
def _is_of_another(slot, code):
    return (slot >= 0) & (slot & 0xFFFFFFFF != code)


@compiled
def join(row, stop, spans, spanned, held, segment, seen, mark, runs, used, offsets):
    """Append the runs of the rows from `row` to `stop` to the ``used`` ones, after which there is room for as
    many as spans. Returns the runs, in a longer array if there are more, and their new number.
    """
    tables = segment_at(segment).tables
    ordinal_first, entry_ordinal = tables.ordinal_first, tables.entry_ordinal
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
            # Each of its entries may become a run, and the spans after it need one each. Room is made span by
            # span: for all rows of a block at once it could be gigabytes, of which few are used.
            room = end - start + spanned - span
            if used + room > len(runs):
                runs = longer(runs, used, room)
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
    return runs, used


def emit(runs: t.Array, offsets: t.Array, entry_ordinal: t.Array) -> t.Array:
    """Return the ordinals of all runs, in order, int32[offsets[-1]]: the second pass."""
    ordinals = take_array(int(offsets[-1]))
    _copy_runs(runs, entry_ordinal, ordinals)
    return ordinals


@compiled
def _copy_runs(runs, source, target):
    of, to = address_of(source), address_of(target)
    at = 0
    for number in range(len(runs)):
        start = runs[number, 0]
        count = runs[number, 1] - start
        later = runs[min(number + AHEAD, len(runs) - 1), 0]
        prefetch(of + 4 * later, 0)
        prefetch(of + 4 * (later + SHORT - 1), 0)
        if count <= SHORT and start + SHORT <= len(source) and at + SHORT <= len(target):
            copy_sixteen(to, at, of, start)  # the next run overwrites what is more
        else:
            copy(target, at, source, start, count)
        at += count
