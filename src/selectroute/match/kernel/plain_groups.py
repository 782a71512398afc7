"""Plain groups: those without residuals, intervals and subscriptions of several clauses.

Each of these, the most frequent kind, is at most one run of entries: nothing is judged or compared later.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.compiled import compiled
from selectroute.match.memory import address_of
from selectroute.match.ranges.range_kernel import range_of


@compiled
def plain_runs(
    begin, end, rows, leaves, found, tags, bits, reals, invalid_names, group_first, group_flags,
    group_attribute, entry_first, entry_bound, ordinal_first, runs, used, offsets,
):  # fmt: skip
    """Append the runs of the ``found`` leaves to the ``used`` ones, which have room for all of their groups;
    return their new number. ``rows`` are those of the leaves and count from `begin`.
    """
    bounds, total = address_of(entry_bound), len(entry_bound)
    shares = len(ordinal_first) > 0
    for visit in range(found):
        row, leaf = begin + np.int64(rows[visit]), leaves[visit]
        for group in range(group_first[leaf], group_first[leaf + 1]):
            flags = np.int64(group_flags[group])
            start, stop = entry_first[group], entry_first[group + 1]
            if flags & t.SORTED:
                attribute = group_attribute[group]
                tag, value, real = tags[attribute, row], bits[attribute, row], reals[attribute, row]
                start, stop = range_of(flags, start, stop, tag, value, real, bounds, total)
            if flags & t.VALID_NAMES and invalid_names[row]:
                stop = start
            if shares:
                start, stop = ordinal_first[start], ordinal_first[stop]
            # Without a branch, which half of the messages would take: the next run overwrites an empty one.
            runs[used, 0], runs[used, 1] = start, stop
            used += start < stop
            offsets[row + 1] += stop - start
    reached = offsets[begin]
    for row in range(begin, end):
        reached += offsets[row + 1]
        offsets[row + 1] = reached
    return used
