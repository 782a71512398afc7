"""Scan list, column by column: its entries, visited by every message, are judged for a block of rows.

An entry has bits for each message of the block: whether it is in range, and whether each of its terms holds.
Terms shared by many entries are looked up; an entry costs an AND of sixteen words for a thousand messages::

    entries sorted by bound  │ rows in range        │ weight > 5 (shared)  │ s LIKE '%a' (only where asked)
    90                       │ 1111 0100 …          │ 1010 0110 …          │ ?0?? ?1?? …  → row 5
    91                       │ 1111 0000 …  row 5 left: ranges end from entry to entry

A term that compares a column of one type with a constant is a vectorized loop; any other is run by `judge`,
row by row.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.encoding.lanes import FEWEST_ROWS
from selectroute.match.kernel.residual import judge, promoted_real
from selectroute.match.memory import address_of, trailing_zeros, word_at
from selectroute.match.ranges import narrow

FEW_ITEMS = 16
"""Maximum codes of a set that are compared one after the other."""

FEW_ROWS = 32
"""Maximum rows that a program of a single entry judges one by one instead of the whole block."""

_LOW_BITS, _GATHER = np.uint64(0x0101010101010101), np.uint64(0x0102040810204080)


@compiled
def judge_column(
    program, wanted, shared, block, stop, segment, batch, stack, mark, spans, scratch, asked, known, held
):
    """Write for the rows in `asked` whether a program has the wanted truth: a bit in `held`, and in `known`
    that it is valid. Bit 0 is row `block`; other rows may be written, too. ``spans`` and ``scratch``
    bool[rows, of whole words] are overwritten.
    """
    arrays, columns = segment_at(segment), columns_at(batch)
    tables, single, steps = arrays.tables, arrays.single, arrays.tables.step
    strings, patterns, pattern, cells = columns.verdicts
    first, last = tables.step_first[program], tables.step_first[program + 1]
    operation, attribute = steps[first, 0], steps[first, 1]
    simple = last - first == 1 and t.IS_NULL <= operation <= t.NOT_IN
    simple |= last - first == 3 and operation == t.LOAD and steps[first + 1, 0] == t.CONSTANT
    remembered = last - first == 1 and (operation == t.LIKE or operation == t.NOT_LIKE)
    remembered = remembered and patterns[attribute, 2] and pattern[first] < patterns[attribute, 2]
    cells_first = patterns[attribute, 0] + pattern[first] * patterns[attribute, 1] if remembered else 0
    count = 0
    if not simple or not shared:
        for word in range(len(asked)):
            left = asked[word] & ~known[word]
            while left:
                row = block + (word << 6) + trailing_zeros(left)
                bit = left & (~left + np.uint64(1))
                left ^= bit
                if remembered and columns.tags[attribute, row] == t.STRING:
                    cell = cells_first + strings[attribute, row]
                    verdict = cells[cell >> 2] >> ((cell & 3) << 1) & 3
                    if verdict:
                        known[word] |= bit
                        if ((verdict == 3) == (operation == t.LIKE)) == (wanted != 0):
                            held[word] |= bit
                        continue
                spans[count, 0], spans[count, 1], spans[count, 2] = row, program, program + 1
                spans[count, 3] = t.RESIDUAL
                count += 1
    if simple and (shared or count > FEW_ROWS):
        tags = columns.tags[attribute, block:stop]
        if last - first == 1:
            simple = _by_code(
                operation, steps[first, 2], tags, columns.codes[attribute, block:stop], tables.item_first,
                tables.item, wanted == 0, scratch,
            )  # fmt: skip
        else:
            bits, reals = columns.bits[attribute, block:stop], columns.reals[attribute, block:stop]
            stack.bits[0] = steps[first + 1, 2]
            simple = _by_value(
                steps[first + 2, 0], steps[first + 2, 1], tags, bits, reals, steps[first + 1, 1],
                stack.bits[0], stack.reals[0], wanted == 0, scratch,
            )  # fmt: skip
        if simple:
            pack(scratch.view(np.uint8), held)
            known[:] = ~np.uint64(0)
            return
        if shared:  # all rows at once next time, too
            for row in range(block, stop):
                spans[row - block, 0] = row
                spans[row - block, 1], spans[row - block, 2] = program, program + 1
                spans[row - block, 3] = t.RESIDUAL
            count = stop - block
    judge(
        spans, count, single, single, single, arrays.always if wanted else arrays.never, segment, batch,
        stack, mark, scratch,
    )  # fmt: skip
    for k in range(count):
        at = spans[k, 0] - block
        bit = np.uint64(1) << np.uint64(at & 63)
        known[at >> 6] |= bit
        if scratch[k]:
            held[at >> 6] |= bit


@compiled
def pack(flags, words):
    """Pack bytes of 0 and 1 into bits, 64 to a word."""
    address = address_of(flags)
    for number in range(len(words)):
        word = np.uint64(0)
        for k in range(8):
            # The multiplication moves the low bit of byte i to bit 56 + i.
            eight = word_at(address, (number << 6) + (k << 3)) & _LOW_BITS
            word |= ((eight * _GATHER) >> np.uint64(56)) << np.uint64(k << 3)
        words[number] = word


@inlined
def _by_code(operation, argument, tags, codes, item_first, items, unwanted, held):
    """Run an operation that only reads types and codes; return False if it must be left to `judge`."""
    rows = len(tags)
    if operation == t.IS_NULL:
        for k in range(rows):
            held[k] = (tags[k] == t.NULL) != unwanted
    elif operation == t.IS_KEY:
        code = np.int32(argument)
        for k in range(rows):
            held[k] = (tags[k] != t.NULL) & ((codes[k] == code) != unwanted)
    elif operation == t.IS_NOT_KEY:
        code, tag = np.int32(argument & 0xFFFFFFFF), np.int8(argument >> 32)
        for k in range(rows):
            held[k] = (tags[k] != t.NULL) & (((tags[k] == tag) & (codes[k] != code)) != unwanted)
    else:
        first, last = item_first[argument], item_first[argument + 1]
        if last - first > FEW_ITEMS:
            return False
        for k in range(rows):
            held[k] = False
        for item in range(first, last):
            code = items[item]
            for k in range(rows):
                held[k] |= codes[k] == code
        negated = operation == t.NOT_IN
        for k in range(rows):
            held[k] = (tags[k] != t.NULL) & (((tags[k] == t.STRING) & (held[k] != negated)) != unwanted)
    return True


@inlined
def _by_value(operation, mode, tags, bits, reals, kind, whole, real, unwanted, held):
    """Compare a column of one numeric type, or NULL, with a number; return False for any other column."""
    rows = len(tags)
    tag = np.int8(t.NULL)
    for k in range(rows):
        tag = max(tag, tags[k])
    mixed = 0
    for k in range(rows):
        mixed |= (tags[k] != tag) & (tags[k] != t.NULL)
    if tag == t.NULL:
        held[:rows] = False
        return True
    if mixed or tag < t.BYTE or tag > t.DOUBLE or kind < t.BYTE or kind > t.DOUBLE:
        return False
    if mode & t.SAME_TYPE and tag != kind:
        return False
    promoted = max(tag, kind)
    if promoted < t.FLOAT:
        _compare(operation, bits, whole, unwanted, held)
    elif tag >= t.FLOAT:
        _compare(operation, reals, promoted_real(kind, whole, real, promoted), unwanted, held)
    elif promoted == t.DOUBLE:
        _compare(operation, bits.astype(np.float64), real, unwanted, held)
    else:
        return False
    for k in range(rows):
        held[k] &= tags[k] != t.NULL
    return True


@inlined
def _compare(operation, values, bound, unwanted, held):
    """Write whether the comparison of each value with the bound has the wanted truth."""
    rows = len(values)
    if operation == t.EQUAL:
        for k in range(rows):
            held[k] = (values[k] == bound) != unwanted
    elif operation == t.UNEQUAL:
        for k in range(rows):
            held[k] = (values[k] != bound) != unwanted
    elif operation == t.LESS:
        for k in range(rows):
            held[k] = (values[k] < bound) != unwanted
    elif operation == t.LESS_EQUAL:
        for k in range(rows):
            held[k] = (values[k] <= bound) != unwanted
    elif operation == t.GREATER:
        for k in range(rows):
            held[k] = (values[k] > bound) != unwanted
    else:
        for k in range(rows):
            held[k] = (values[k] >= bound) != unwanted


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
            # Without leaves and accepted spans: `leaves` and `zeros` stand for arrays that are not read.
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
    total = judged = 0
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
                    if total == len(accepted):
                        accepted = _larger(accepted)
                    accepted[total, 0] = block + (word << 6) + trailing_zeros(left)
                    accepted[total, 1], accepted[total, 2] = entry, after
                    accepted[total, 3] = flags & t.REPEATED
                    left &= left - _ONE
                    total += 1
            if uniform:
                break
    return accepted, total, spans, judged


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
def by_row(accepted, count, block, first, order):
    """Write the numbers of the accepted spans, sorted by row, to `order`, those of row r from ``first[r -
    block]`` on. Returns `order`, or a longer array.
    """
    if count > len(order):
        order = np.empty(2 * count, np.int32)
    first[:] = 0
    for number in range(count):
        first[accepted[number, 0] - block] += 1
    total = 0
    for row in range(len(first)):
        total += first[row]
        first[row] = total
    for number in range(count - 1, -1, -1):
        row = accepted[number, 0] - block
        first[row] -= 1
        order[first[row]] = number
    return order
