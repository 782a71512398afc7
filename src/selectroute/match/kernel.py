"""The match kernel: codes in, runs of matching entries out, then their ordinals into one allocation."""

from __future__ import annotations

import numpy as np

from selectroute.index import tables as t
from selectroute.index.layout import PAIR_MULTIPLIER
from selectroute.match.compiled import compiled
from selectroute.match.program import judge

_MULTIPLIER = np.uint64(PAIR_MULTIPLIER)

PROBES, FOUND, JUDGED = 0, 1, 2
"""The counters: keys looked up, leaves found, residuals judged."""


@compiled
def collect(rows, tables, columns, stack, seen, counters):
    """First pass: the runs of matching entries.

    Returns ``runs`` int64[r, 2], slices of the entries in the order of the rows, and ``offsets`` int64[rows +
    1]: where the matches of each row begin.
    """
    # All arrays are taken out of their tuples once, see `program`.
    tuple_attributes, slot_first = tables.tuple_attributes, tables.slot_first
    slot_codes, slot_leaf = tables.slot_codes, tables.slot_leaf
    group_first, group_flags, group_attribute = tables.group_first, tables.group_flags, tables.group_attribute
    entry_first, entry_bound, entry_residual = tables.entry_first, tables.entry_bound, tables.entry_residual
    entry_ordinal, entry_reals = tables.entry_ordinal, columns.entry_reals
    term_first, term_program, term_wanted = tables.term_first, tables.term_program, tables.term_wanted
    step_first, steps, item_first, items = tables.step_first, tables.step, tables.item_first, tables.item
    level_first, level_bytes = tables.level_first, tables.level_bytes
    tags, codes, bits, reals = columns.tags, columns.codes, columns.bits, columns.reals
    sizes, text, invalid_names = columns.sizes, columns.text, columns.invalid_names
    stack_tags, stack_bits, stack_reals, stack_sizes = stack

    runs = np.empty((max(1024, rows), 2), np.int64)
    used = 0
    held = np.empty(256, np.bool_)
    offsets = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        total = 0
        first_run = used
        for number in range(-1, len(tuple_attributes)):
            leaf = np.int64(0)  # the scan list
            if number >= 0:
                second_attribute = tuple_attributes[number, 1]
                first = codes[tuple_attributes[number, 0], row]
                second = codes[second_attribute, row] if second_attribute >= 0 else np.int32(0)
                if first < 0 or second < 0:
                    continue  # a value that no clause has
                counters[PROBES] += 1
                key = np.uint64(first) << np.uint64(32) | np.uint64(second)
                leaf = _probe(key, slot_first[number], slot_first[number + 1], slot_codes, slot_leaf)
                if leaf < 0:
                    continue
                counters[FOUND] += 1
            for group in range(group_first[leaf], group_first[leaf + 1]):
                flags = np.int64(group_flags[group])
                if flags & t.VALID_NAMES and invalid_names[row]:
                    continue
                start, end = entry_first[group], entry_first[group + 1]
                if flags & t.SORTED:
                    attribute = group_attribute[group]
                    start, end = _range(
                        flags, start, end, tags[attribute, row], bits[attribute, row], reals[attribute, row],
                        entry_bound, entry_reals,
                    )  # fmt: skip
                    if start == end:
                        continue
                each = flags & (t.RESIDUAL | t.REPEATED)
                room = end - start if each else 1
                if used + room > len(runs):
                    runs = _larger(runs, used, room)
                if not each:
                    runs[used, 0], runs[used, 1] = start, end
                    used += 1
                    total += end - start
                    continue
                if flags & t.RESIDUAL:
                    if end - start > len(held):
                        held = np.empty(2 * (end - start), np.bool_)
                    counters[JUDGED] += judge(
                        start, end, row, entry_residual, term_first, term_program, term_wanted, step_first,
                        steps, item_first, items, level_first, level_bytes, tags, codes, bits, sizes, text,
                        stack_tags, stack_bits, stack_reals, stack_sizes, held,
                    )  # fmt: skip
                for entry in range(start, end):
                    if flags & t.RESIDUAL and not held[entry - start]:
                        continue
                    if flags & t.REPEATED and seen[entry_ordinal[entry]] == row + 1:
                        continue
                    if flags & t.REPEATED:
                        seen[entry_ordinal[entry]] = row + 1
                    total += 1
                    if used > first_run and runs[used - 1, 1] == entry:
                        runs[used - 1, 1] = entry + 1  # the run before ends here: extend it
                    else:
                        runs[used, 0], runs[used, 1] = entry, entry + 1
                        used += 1
        offsets[row + 1] = offsets[row] + total
    return runs[:used], offsets


@compiled
def _larger(runs, used, room):
    """The runs so far, with space for `room` more and as many again."""
    larger = np.empty((2 * len(runs) + room, 2), np.int64)
    larger[:used] = runs[:used]
    return larger


@compiled
def emit(runs, offsets, entry_ordinal):
    """Second pass: the ordinals of all runs, in order, int32[offsets[-1]]."""
    ordinals = np.empty(offsets[-1], np.int32)
    position = 0
    for number in range(len(runs)):
        for entry in range(runs[number, 0], runs[number, 1]):
            ordinals[position] = entry_ordinal[entry]
            position += 1
    return ordinals


@compiled
def _probe(key, begin, end, slot_codes, slot_leaf):
    """The leaf of a pair of codes in the table of one tuple, or -1."""
    mask = np.uint64(end - begin - 1)
    slot = key * _MULTIPLIER
    slot = (slot ^ (slot >> np.uint64(32))) & mask
    place = begin + np.int64(slot)
    leaf = slot_leaf[place]
    while leaf >= 0 and slot_codes[place] != key:
        slot = (slot + np.uint64(1)) & mask
        place = begin + np.int64(slot)
        leaf = slot_leaf[place]
    return np.int64(leaf)


@compiled
def _range(flags, start, end, tag, value, real, bounds, real_bounds):
    """The slice of a sorted group whose ranges have the wanted truth for the row's value."""
    wanted = flags & t.WANTED
    if tag == t.NULL:
        return start, start  # UNKNOWN
    if tag < t.BYTE or tag > t.DOUBLE:
        # Unlike types are FALSE, unless they make the whole selector false.
        return (start, start) if wanted or flags & t.STRICT else (start, end)
    operator = (flags >> t.OPERATOR_SHIFT) & 3
    kind = (flags >> t.BOUND_SHIFT) & 3
    suffix = operator < 2  # value < bound: the larger bounds hold
    # Bounds below `middle` are less than the value, or not greater than it where the equal ones belong to
    # them.
    with_equal = operator == 0 or operator == 3
    if tag < t.FLOAT and kind == t.BOUND_LONG:
        middle = _search(value, start, end, with_equal, bounds)
    else:
        if tag < t.FLOAT:
            real = np.float64(np.float32(value)) if kind == t.BOUND_FLOAT else np.float64(value)
        if real != real:
            return (start, start) if wanted else (start, end)  # NaN compares FALSE
        if kind == t.BOUND_LONG:
            middle = _search_promoted(real, start, end, with_equal, bounds, tag == t.FLOAT)
        else:
            middle = _search(real, start, end, with_equal, real_bounds)
    if suffix == (wanted != 0):
        return middle, end
    return start, middle


@compiled
def _search(value, low, high, with_equal, bounds):
    """The first bound from `low` on that is not less than the value (or, `with_equal`, greater than it)."""
    while low < high:
        middle = (low + high) >> 1
        bound = bounds[middle]
        if bound < value or (with_equal and bound == value):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _search_promoted(value, low, high, with_equal, bounds, to_float):
    """Long bounds against a double or float: promotion is monotonic, so the bounds stay in order."""
    while low < high:
        middle = (low + high) >> 1
        whole = bounds[middle]
        bound = np.float64(np.float32(whole)) if to_float else np.float64(whole)
        if bound < value or (with_equal and bound == value):
            low = middle + 1
        else:
            high = middle
    return low
