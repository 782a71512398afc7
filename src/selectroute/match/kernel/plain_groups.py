"""Plain groups: those without residuals, intervals and subscriptions of several clauses.

Each of these, the most frequent kind, is at most one run of entries: nothing is judged or compared later.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import ATTRIBUTE_LIMIT, LEAF_ATTRIBUTE, LEAF_ENTRIES, LEAF_FLAGS
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled
from selectroute.match.memory import address_of, byte_at, int_at, long_at, real_at, short_at
from selectroute.match.ranges.range_kernel import range_of
from selectroute.match.ranges.range_search import FAR, fetch_first_bounds, fetch_groups


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
def plain_runs(begin, end, rows, leaves, found, segment, batch, invalid_names, runs, used, offsets):
    """Append the runs of the ``found`` leaves to the ``used`` ones, which have room for all of their groups;
    return their new number. ``rows`` are those of the leaves and count from `begin`.
    """
    arrays, columns = segment_at(segment), columns_at(batch)
    tables = arrays.tables
    bounds, total = address_of(tables.entry_bound), len(tables.entry_bound)
    shares, ordinals = len(tables.ordinal_first) > 0, address_of(tables.ordinal_first)
    words, first_entries = address_of(arrays.leaf_groups), address_of(tables.entry_first)
    flags_of, attribute_of = address_of(tables.group_flags), address_of(tables.group_attribute)
    tags_of, values_of, width = address_of(columns.tags), address_of(columns.bits), columns.tags.shape[1]
    for visit in range(found):
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
