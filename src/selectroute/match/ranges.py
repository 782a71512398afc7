"""Entries of a row's leaves whose ranges hold: a search in each sorted group instead of a test of each entry.

A group costs one search of its bounds, and for intervals a walk over maxima. All is compiled into the kernel.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import (
    address_of,
    bits_of_real,
    eight_below,
    int_at,
    long_at,
    prefetch,
    real_at,
    trailing_zeros,
)

ALL, NONE, FROM = 0, 1, 2

_WAYS, _FEW = 8, 64

_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


@inlined
def range_of(flags, start, end, tag, value, real, bounds, total):
    """Return the slice of a sorted group whose ranges have the wanted truth for the row's value.

    ``bounds`` is the address of ``entry_bound``, which has ``total`` elements.
    """
    wanted = flags & t.WANTED
    if tag == t.NULL:
        return start, start  # UNKNOWN
    if tag < t.BYTE or tag > t.DOUBLE:
        # Unlike types are FALSE, unless they make the whole selector false.
        return (start, start) if wanted or flags & t.STRICT else (start, end)
    operator = (flags >> t.OPERATOR_SHIFT) & 3
    kind = (flags >> t.BOUND_SHIFT) & 3
    suffix = operator < 2  # value < bound: the larger bounds hold
    # Bounds before `middle` are less than the value, or equal to it `with_equal`.
    with_equal = operator == 0 or operator == 3
    if tag < t.FLOAT and kind == t.BOUND_LONG:
        if with_equal and value == _GREATEST:
            middle = end
        else:
            middle = first_not_below(value + 1 if with_equal else value, start, end, bounds, total)
    else:
        if tag < t.FLOAT:
            real = np.float64(np.float32(value)) if kind == t.BOUND_FLOAT else np.float64(value)
        if real != real:
            return (start, start) if wanted else (start, end)  # NaN compares FALSE
        if kind == t.BOUND_LONG:
            middle = _search_promoted(real, start, end, with_equal, bounds, tag == t.FLOAT)
        else:
            middle = _search_real(real, start, end, with_equal, bounds)
    if suffix == (wanted != 0):
        return middle, end
    return start, middle


@inlined
def first_not_below(value, low, high, bounds, total):
    """Return the index of the first long, from `low` on, that is not less than the value; ``total`` ascending
    longs are at the address ``bounds``.

    The branches of a binary search are unpredictable, and a misprediction costs more than ten comparisons. So
    each step counts smaller ones of eight bounds, and the last step compares all that are left, by eight.
    """
    size = high - low
    while size > _FEW:
        step = size // _WAYS
        below = 0
        for k in range(1, _WAYS + 1):
            below += long_at(bounds, low + k * step - 1) < value
        low += below * step
        size = step if below < _WAYS else size - _WAYS * step
    # The bounds ascend, so those that are less come first, whatever follows the group.
    if size <= 2 * _WAYS and low + 2 * _WAYS <= total:
        # Most groups are small. Of more than eight bounds, the first eight and the last.
        more = max(size - _WAYS, 0)
        word = eight_below(bounds, low, value) | eight_below(bounds, low + more, value) << np.uint64(more)
        return low + min(size, trailing_zeros(~word))
    if low + _FEW <= total:
        word = eight_below(bounds, low, value)
        for part in range(_WAYS, _FEW, _WAYS):
            word |= eight_below(bounds, low + part, value) << np.uint64(part)
        return low + min(size, trailing_zeros(~word))
    below = 0
    for k in range(size):
        below += long_at(bounds, low + k) < value
    return low + below


@compiled
def _search_real(value, low, high, with_equal, bounds):
    """Return the index of the first real bound that is not less than the value (`with_equal`: greater)."""
    size = high - low
    while size > _FEW:
        step = size // _WAYS
        below = 0
        for k in range(1, _WAYS + 1):
            bound = real_at(bounds, low + k * step - 1)
            below += (bound < value) | (with_equal & (bound == value))
        low += below * step
        size = step if below < _WAYS else size - _WAYS * step
    below = 0
    for k in range(size):
        bound = real_at(bounds, low + k)
        below += (bound < value) | (with_equal & (bound == value))
    return low + below


@compiled
def _search_promoted(value, low, high, with_equal, bounds, to_float):
    """Return the same for long bounds and a double or float: promotion is monotonic and keeps their order."""
    while low < high:
        middle = (low + high) >> 1
        whole = long_at(bounds, middle)
        bound = np.float64(np.float32(whole)) if to_float else np.float64(whole)
        if bound < value or (with_equal and bound == value):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def threshold(flags, tag, value, real):
    """Return which upper ends of an interval group suffice: `ALL`, `NONE`, or `FROM` the second result on.

    Ends are in the form of ``high``: a long, or a double's bits in the order of the values. `ALL` also where
    the lower end alone decides, with the same result.
    """
    if tag < t.BYTE or tag > t.DOUBLE:
        return ALL, np.int64(0)
    exclusive = flags & t.EXCLUSIVE != 0
    kind = (flags >> t.BOUND_SHIFT) & 3
    if kind == t.BOUND_LONG:
        if tag < t.FLOAT:
            least = value
        else:
            if real != real:
                return ALL, np.int64(0)
            return _least_long(real, tag == t.FLOAT, exclusive)
    else:
        if tag < t.FLOAT:
            real = np.float64(np.float32(value)) if kind == t.BOUND_FLOAT else np.float64(value)
        if real != real:
            return ALL, np.int64(0)
        least = bits_of_real(real + 0.0)
        least = least if least >= 0 else least ^ _GREATEST
    if not exclusive:
        return FROM, least
    return (FROM, least + 1) if least < _GREATEST else (NONE, least)


@compiled
def _least_long(value, to_float, exclusive):
    """Return the least long that, promoted, is not less than the value (`exclusive`: greater)."""
    low, high = _LEAST, _GREATEST
    while low < high:
        middle = (low & high) + ((low ^ high) >> 1)
        if _reaches(middle, value, to_float, exclusive):
            high = middle
        else:
            low = middle + 1
    return (FROM if _reaches(low, value, to_float, exclusive) else NONE), low


@compiled
def _reaches(whole, value, to_float, exclusive):
    real = np.float64(np.float32(whole)) if to_float else np.float64(whole)
    return real > value if exclusive else real >= value


@compiled
def exceeding(high, first, entries, start, limit, least):
    """Return the next run of entries, from `start` to `limit`, whose upper ends are all at least `least`.

    ``high`` is the address of the array that has, from ``first`` on, the upper ends of all ``entries`` and
    then their maxima; see `Tables`. Numbers count from the first entry. O(log entries + length of the run).
    """
    level, size, at = first, entries, start
    depth = 0
    while True:
        # Search the rest of these 16; if nothing is found, go on after them one level higher.
        stop = min((at // t.HIGH + 1) * t.HIGH, size)
        while at < stop and long_at(high, level + at) < least:
            at += 1
        if at < stop:
            if depth == 0:
                break
            depth -= 1
            size = entries
            level = first
            for _ in range(depth):
                level += size
                size = -(-size // t.HIGH)
            at *= t.HIGH
        else:
            if stop == size:
                return limit, limit
            level += size
            size = -(-size // t.HIGH)
            at //= t.HIGH
            depth += 1
        if at << 4 * depth >= limit:
            return limit, limit
    if at >= limit:
        return limit, limit
    stop = at + 1
    while stop < limit and long_at(high, first + stop) >= least:
        stop += 1
    return at, stop


LINE = 8
"""Bounds of a cache line."""

FAR = 1 << 16
"""Entries of a segment from which on their bounds are probably not in the cache, and are fetched ahead."""


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
