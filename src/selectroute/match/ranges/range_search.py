"""Entries of a row's leaves whose ranges hold: a search in each group instead of a test of each entry."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import address_of, int_at, long_at, prefetch
from selectroute.match.ranges.range_kernel import FROM, NONE, exceeding, range_of, threshold

LINE = 8
"""Bounds of a cache line."""

FAR = 1 << 16
"""Entries whose bounds are probably in the cache anyway."""


@compiled
def fetch_bounds(leaves, visits, segment, groups):
    """Begin to load the first group of each leaf to visit, and its first bounds. ``groups`` is scratch memory
    for as many.
    """
    tables = segment_at(segment).tables
    if len(tables.entry_bound) < FAR:
        return
    first_groups = address_of(tables.group_first)
    for visit in range(visits):
        groups[visit] = int_at(first_groups, leaves[visit])
    fetch_groups(groups, visits, segment)


@compiled
def fetch_groups(groups, count, segment):
    """Begin to load so many groups, and their first bounds: a search would wait for each, and these loads
    overlap.
    """
    tables = segment_at(segment).tables
    if len(tables.entry_bound) < FAR:
        return
    first_entries, bounds = address_of(tables.entry_first), address_of(tables.entry_bound)
    flags, attributes = address_of(tables.group_flags), address_of(tables.group_attribute)
    for place in range(count):
        group = np.int64(groups[place])
        prefetch(first_entries, group)
        prefetch(flags + 2 * group, 0)
        prefetch(attributes + 4 * group, 0)
    for place in range(count):
        start = long_at(first_entries, groups[place])
        fetch_first_bounds(bounds, start, long_at(first_entries, groups[place] + 1) - start)


@inlined
def fetch_first_bounds(bounds, start, entries):
    """Begin to load the first bounds of a group; ``bounds`` is the address of ``entry_bound``."""
    prefetch(bounds, start)
    prefetch(bounds, start + LINE - 1)
    prefetch(bounds, start + min(max(entries, LINE), 2 * LINE) - 1)


@compiled
def narrow(
    row, stop, block, leaves, firsts, segment, batch, invalid_names, scan_first, scan_stop, columnwise,
    accepted, order, accepted_first, most, spans,
):  # fmt: skip
    """Write the `spans` of the rows from `row` on: row, first entry, end, flags of the group.

    The spans are of the row's leaves, of the scan list's groups from `scan_first` to `scan_stop` without the
    `columnwise` ones, and the `accepted` spans, in their `order` from ``accepted_first[row - block]`` on.
    Returns the next row (`stop`, or earlier if `spans` is full or has `most` residuals), the number of spans,
    and the number of residuals to judge.
    """
    tables, columns = segment_at(segment).tables, columns_at(batch)
    group_first, group_flags, entry_first = tables.group_first, tables.group_flags, tables.entry_first
    group_attribute, group_high = tables.group_attribute, tables.group_high
    tags, bits, reals = columns.tags, columns.bits, columns.reals
    bounds, highs = address_of(tables.entry_bound), address_of(tables.high)
    room, total = len(spans), len(tables.entry_bound)
    scan = 1 if scan_first < scan_stop else 0  # leaf 0 comes first, unless it is empty
    spanned = judged = 0
    while row < stop and judged < most:
        spanned_before, judged_before = spanned, judged
        for k in range(accepted_first[row - block], accepted_first[row - block + 1]):
            number = order[k]
            start, flags = accepted[number, 1], accepted[number, 3]
            if spanned > spanned_before and spans[spanned - 1, 2] == start and spans[spanned - 1, 3] == flags:
                spans[spanned - 1, 2] = accepted[number, 2]
                continue
            if spanned == room:
                return row, spanned_before, judged_before
            spans[spanned, 0], spans[spanned, 1] = row, start
            spans[spanned, 2], spans[spanned, 3] = accepted[number, 2], flags
            spanned += 1
        for visit in range(firsts[row - block] - scan, firsts[row - block + 1]):
            leaf = leaves[visit] if visit >= firsts[row - block] else np.int32(0)
            first_group, last_group = group_first[leaf], group_first[leaf + 1]
            if leaf == 0:
                first_group, last_group = scan_first, scan_stop
            for group in range(first_group, last_group):
                flags = np.int64(group_flags[group])
                if flags & t.VALID_NAMES and invalid_names[row]:
                    continue
                if leaf == 0 and columnwise[group]:
                    continue
                start, end = entry_first[group], entry_first[group + 1]
                if flags & t.SORTED:
                    attribute = group_attribute[group]
                    tag, value, real = tags[attribute, row], bits[attribute, row], reals[attribute, row]
                    if flags & t.INTERVAL:
                        enough, least = threshold(flags, tag, value, real)
                        if enough == NONE:
                            continue
                        if enough == FROM:
                            low, limit = range_of(flags, start, end, tag, value, real, bounds, total)
                            at, limit = low - start, limit - start
                            high_first = np.int64(group_high[group])
                            while at < limit:
                                at, after = exceeding(highs, high_first, end - start, at, limit, least)
                                if at == after:
                                    break
                                if spanned == room:
                                    return row, spanned_before, judged_before
                                spans[spanned, 0], spans[spanned, 1] = row, start + at
                                spans[spanned, 2], spans[spanned, 3] = start + after, flags
                                spanned += 1
                                if flags & t.RESIDUAL:
                                    judged += 1 if flags & t.UNIFORM else after - at
                                at = after
                            continue
                    start, end = range_of(flags, start, end, tag, value, real, bounds, total)
                    if start == end:
                        continue
                if spanned == room:
                    return row, spanned_before, judged_before
                spans[spanned, 0], spans[spanned, 1] = row, start
                spans[spanned, 2], spans[spanned, 3] = end, flags
                spanned += 1
                if flags & t.RESIDUAL:
                    judged += 1 if flags & t.UNIFORM else end - start
        row += 1
    return row, spanned, judged
