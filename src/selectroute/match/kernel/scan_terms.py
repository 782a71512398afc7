"""Terms of residuals on all rows of a block at once: one bit a row, in words of 64.

A comparison of a column of one type with a constant is a vectorized loop; any other term is run by `judge`,
row by row.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.kernel.run_residual import judge, promoted_real
from selectroute.match.memory import address_of, trailing_zeros, word_at

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
