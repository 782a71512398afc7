"""Stack machine for the programs of residuals, one row at a time: (tag, 64 bits), and sizes of strings.

It follows the reference evaluator exactly; the truth values are FALSE 0, TRUE 1, UNKNOWN 2 and VOID 3.

`judge` is one long function on purpose, which reads the structs once: when an array is passed on, numba may
count a reference, which costs more than most steps. Its callees take numbers, except LIKE and topic levels.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at, segment_at
from selectroute.match.compiled import compiled
from selectroute.match.kernel.like import has_levels, like

FALSE, TRUE, UNKNOWN, VOID = 0, 1, 2, 3


@compiled
def judge(
    spans, spanned, entry_residual, term_first, term_program, term_wanted, segment, batch, stack, mark, held
):
    """Judge the residuals of all entries in spans (row, first, end, flags) that have them, and write to
    ``held`` one after the other whether it holds, once for a uniform span.

    A residual holds if every term has its wanted truth; UNKNOWN satisfies neither. Neighbours with one
    residual are judged once, and so are programs shared by several entries: the stack's memo has the row of
    the last run, counted from ``mark``, and its result. Returns the number of residuals judged.
    """
    tables, columns = segment_at(segment).tables, columns_at(batch)
    step_first, steps, item_first, items = tables.step_first, tables.step, tables.item_first, tables.item
    level_first, level_bytes, text = tables.level_first, tables.level_bytes, columns.text
    lane_tags, lane_codes, lane_bits, lane_sizes = columns.tags, columns.codes, columns.bits, columns.sizes
    strings, patterns, pattern, cells = columns.verdicts
    tags, bits, reals, sizes, memo = stack
    judged = entries = 0
    span, row, entry, end = -1, np.int64(0), np.int64(-1), np.int64(0)
    before, holds = np.int32(-1), False
    while True:
        entry += 1
        while entry >= end:
            span += 1
            if span == spanned:
                return judged
            if spans[span, 3] & t.RESIDUAL:
                row, entry, end = spans[span, 0], spans[span, 1], spans[span, 2]
                end = entry + 1 if spans[span, 3] & t.UNIFORM else end
                before = np.int32(-1)
        residual = entry_residual[entry]
        if residual != before:
            before, holds = residual, True
            judged += 1
            for term in range(term_first[residual], term_first[residual + 1]):
                program = term_program[term]
                wanted = term_wanted[term] & 1
                shared = term_wanted[term] > 1
                if shared and memo[program] >> 2 == row + mark:
                    if memo[program] & 3 == wanted:
                        continue
                    holds = False
                    break
                top = -1
                for number in range(step_first[program], step_first[program + 1]):
                    operation, attribute, argument = steps[number, 0], steps[number, 1], steps[number, 2]
                    if operation == t.LOAD:
                        top += 1
                        tags[top] = lane_tags[attribute, row]
                        bits[top] = lane_bits[attribute, row]
                        sizes[top] = lane_sizes[attribute, row]
                    elif operation == t.CONSTANT:
                        top += 1
                        tags[top] = attribute
                        bits[top] = argument
                    elif operation <= t.DIVIDE:
                        top -= 1
                        tag, whole, real = _arithmetic(
                            operation,
                            attribute,
                            tags[top],
                            bits[top],
                            reals[top],
                            tags[top + 1],
                            bits[top + 1],
                            reals[top + 1],
                        )
                        tags[top] = tag
                        if tag == t.FLOAT or tag == t.DOUBLE:
                            reals[top] = real
                        else:
                            bits[top] = whole
                    elif operation <= t.PLUS:
                        tag, whole, real = _sign(operation, attribute, tags[top], bits[top], reals[top])
                        tags[top] = tag
                        if tag == t.FLOAT or tag == t.DOUBLE:
                            reals[top] = real
                        else:
                            bits[top] = whole
                    elif operation == t.AS_TRUTH:
                        if tags[top] != t.BOOLEAN and tags[top] != t.NULL:
                            tags[top], bits[top] = t.VOID if attribute & t.VOIDS else t.BOOLEAN, FALSE
                    elif operation == t.NOT:
                        if tags[top] == t.BOOLEAN:
                            bits[top] = 1 - bits[top]
                    elif operation == t.CHECK_TYPE:
                        if not argument >> lane_tags[attribute, row] & 1:
                            tags[top] = t.VOID
                    elif operation == t.IS_SOUND:
                        tags[top], bits[top] = t.BOOLEAN, tags[top] != t.VOID
                    else:
                        # All other operations give a truth.
                        if operation <= t.GREATER_EQUAL:
                            top -= 1
                            if tags[top] == tags[top + 1] and (tags[top] == t.STRING or tags[top] == t.BYTES):
                                truth = VOID if attribute & t.VOIDS else FALSE
                                if operation <= t.UNEQUAL:
                                    same = sizes[top] == sizes[top + 1]
                                    for k in range(sizes[top] if same else 0):
                                        if text[bits[top] + k] != text[bits[top + 1] + k]:
                                            same = False
                                            break
                                    truth = TRUE if same == (operation == t.EQUAL) else FALSE
                            else:
                                truth = _compare(
                                    operation, attribute, tags[top], bits[top], reals[top],
                                    tags[top + 1], bits[top + 1], reals[top + 1],
                                )  # fmt: skip
                        elif operation <= t.OR:
                            top -= 1
                            left = bits[top] if tags[top] != t.NULL else UNKNOWN
                            right = bits[top + 1] if tags[top + 1] != t.NULL else UNKNOWN
                            decisive = FALSE if operation == t.AND else TRUE
                            if tags[top] == t.VOID or tags[top + 1] == t.VOID:
                                truth = VOID
                            elif left == decisive or right == decisive:
                                truth = decisive
                            else:
                                truth = UNKNOWN if left == UNKNOWN or right == UNKNOWN else 1 - decisive
                        elif operation == t.BETWEEN or operation == t.NOT_BETWEEN:
                            top -= 2
                            truth = _between(
                                operation, tags[top], bits[top], reals[top],
                                tags[top + 1], bits[top + 1], reals[top + 1],
                                tags[top + 2], bits[top + 2], reals[top + 2],
                            )  # fmt: skip
                        else:
                            top += 1
                            tag, code = lane_tags[attribute, row], lane_codes[attribute, row]
                            if operation == t.IS_NULL:
                                truth = TRUE if tag == t.NULL else FALSE
                            elif operation == t.HAS_TYPE:
                                truth = TRUE if argument >> tag & 1 else FALSE
                            elif tag == t.NULL:
                                truth = UNKNOWN
                            elif operation == t.IS_KEY:
                                truth = TRUE if code == argument else FALSE
                            elif operation == t.IS_NOT_KEY:
                                truth = (
                                    TRUE if tag == argument >> 32 and code != argument & 0xFFFFFFFF else FALSE
                                )
                            elif tag != t.STRING:
                                truth = FALSE  # IN, LIKE, LEVELS and their negations, of a non-string
                            elif operation <= t.NOT_IN:
                                low, high = item_first[argument], item_first[argument + 1]
                                last = high
                                while low < high:
                                    middle = (low + high) >> 1
                                    if items[middle] < code:
                                        low = middle + 1
                                    else:
                                        high = middle
                                is_true = low < last and items[low] == code
                                truth = TRUE if is_true == (operation == t.IN) else FALSE
                            else:
                                begin = lane_bits[attribute, row]
                                stop = begin + lane_sizes[attribute, row]
                                first, last = item_first[argument], item_first[argument + 1]
                                if operation == t.LEVELS:
                                    is_true = has_levels(
                                        text, begin, stop, items, first, last, level_first, level_bytes
                                    )
                                else:
                                    cell = np.int64(-1)
                                    if patterns[attribute, 2] and pattern[number] < patterns[attribute, 2]:
                                        cell = (
                                            patterns[attribute, 0]
                                            + pattern[number] * patterns[attribute, 1]
                                            + strings[attribute, row]
                                        )
                                    known = cells[cell >> 2] >> ((cell & 3) << 1) & 3 if cell >= 0 else 0
                                    if known:
                                        is_true = known == 3
                                    else:
                                        is_true = like(text, begin, stop, items, first, last)
                                        if cell >= 0:
                                            cells[cell >> 2] |= (3 if is_true else 2) << ((cell & 3) << 1)
                                truth = TRUE if is_true == (operation != t.NOT_LIKE) else FALSE
                        tags[top] = t.NULL if truth == UNKNOWN else t.VOID if truth == VOID else t.BOOLEAN
                        bits[top] = truth & 1
                # VOID, as UNKNOWN, satisfies neither what is wanted TRUE nor FALSE.
                truth = bits[top] if tags[top] == t.BOOLEAN else UNKNOWN
                if shared:
                    memo[program] = (row + mark) << 2 | truth
                if truth != wanted:
                    holds = False
                    break
        held[entries] = holds
        entries += 1


@compiled
def _is_number(tag):
    return t.BYTE <= tag <= t.DOUBLE


@compiled
def _promoted(left, right):
    """Return the tag of Java's binary numeric promotion: the greater tag, as tags are ordered by width."""
    return max(left, right, t.INT)


@compiled
def promoted_real(tag, bits, real, kind):
    """Return a number promoted to a double, or to a float held in a double."""
    if tag == t.FLOAT or tag == t.DOUBLE:
        return real
    if kind == t.FLOAT:
        return np.float64(np.float32(bits))
    return np.float64(bits)


@compiled
def _arithmetic(operation, mode, left, a, left_real, right, b, right_real):
    """Return the tag of the result, and the result: an integer, or a real if the tag is FLOAT or DOUBLE."""
    if mode & t.VOIDS and not (_is_number(left) and _is_number(right)):
        return t.VOID, 0, 0.0
    if mode & t.POSITIVE_ZERO:
        left_real, right_real = left_real + 0.0, right_real + 0.0
    if (left != t.NULL and not _is_number(left)) or (right != t.NULL and not _is_number(right)):
        return t.MISMATCH, 0, 0.0
    if left == t.NULL or right == t.NULL:
        return t.NULL, 0, 0.0
    kind = _promoted(left, right)
    if kind >= t.FLOAT:
        x, y = promoted_real(left, a, left_real, kind), promoted_real(right, b, right_real, kind)
        if operation == t.ADD:
            result = x + y
        elif operation == t.SUBTRACT:
            result = x - y
        elif operation == t.MULTIPLY:
            result = x * y
        else:
            result = x / y
        # Computed as double, then rounded, a float operation is exact: 53 >= 2 * 24 + 2.
        return kind, 0, np.float64(np.float32(result)) if kind == t.FLOAT else result
    if operation == t.ADD:
        whole = a + b
    elif operation == t.SUBTRACT:
        whole = a - b
    elif operation == t.MULTIPLY:
        whole = a * b
    elif b == 0:
        return t.NULL, 0, 0.0
    elif b == -1:
        whole = -a  # the smallest long divided by -1 wraps
    else:
        whole = a // b
        if whole < 0 and whole * b != a:
            whole += 1  # truncate towards zero
    return kind, np.int64(np.int32(whole)) if kind == t.INT else whole, 0.0


@compiled
def _sign(operation, mode, tag, whole, real):
    """Return the result of a sign, as `_arithmetic`."""
    if mode & t.VOIDS and not _is_number(tag):
        return t.VOID, 0, 0.0
    if mode & t.POSITIVE_ZERO:
        real += 0.0
    if tag == t.NULL:
        return t.NULL, 0, 0.0
    if not _is_number(tag):
        return t.MISMATCH, 0, 0.0
    kind = max(tag, t.INT)
    if operation == t.PLUS:
        return kind, whole, real
    if kind >= t.FLOAT:
        return kind, 0, -real
    return kind, -whole if kind == t.LONG else np.int64(np.int32(-whole)), 0.0


@compiled
def _compare(operation, mode, left, a, left_real, right, b, right_real):
    """Return the truth of a comparison, of anything but two strings or byte strings."""
    unlike = VOID if mode & t.VOIDS else FALSE
    if t.MISMATCH <= left <= t.VOID or t.MISMATCH <= right <= t.VOID:
        return unlike
    if left == t.NULL or right == t.NULL:
        return UNKNOWN
    if _is_number(left) and _is_number(right):
        if mode & t.SAME_TYPE and left != right:
            return unlike
        kind = _promoted(left, right)
        if kind >= t.FLOAT:
            x, y = promoted_real(left, a, left_real, kind), promoted_real(right, b, right_real, kind)
            return _ordered(operation, x < y, x == y, x > y)
        return _ordered(operation, a < b, a == b, a > b)
    if left != right or operation > t.UNEQUAL or left == t.UNSUPPORTED:
        return unlike
    return TRUE if (a == b) == (operation == t.EQUAL) else FALSE


@compiled
def _between(operation, tag, a, real, low_tag, low, low_real, high_tag, high, high_real):
    """Return the truth of [NOT] BETWEEN where NULL decides it and unlike types give VOID."""
    negated = operation == t.NOT_BETWEEN
    if tag == t.VOID or low_tag == t.VOID or high_tag == t.VOID:
        return VOID
    if tag == t.NULL or low_tag == t.NULL or high_tag == t.NULL:
        return TRUE if negated else FALSE
    # For NaN neither the comparisons nor their opposites hold.
    first, last = (t.LESS, t.GREATER) if negated else (t.GREATER_EQUAL, t.LESS_EQUAL)
    left = _compare(first, t.VOIDS, tag, a, real, low_tag, low, low_real)
    right = _compare(last, t.VOIDS, tag, a, real, high_tag, high, high_real)
    if left == VOID or right == VOID:
        return VOID
    return max(left, right) if negated else min(left, right)


@compiled
def _ordered(operation, less, equal, greater):
    """Return the truth of a comparison of numbers. For NaN none of the three flags holds, and <> is TRUE."""
    if operation == t.EQUAL:
        holds = equal
    elif operation == t.UNEQUAL:
        holds = not equal
    elif operation == t.LESS:
        holds = less
    elif operation == t.LESS_EQUAL:
        holds = less or equal
    elif operation == t.GREATER:
        holds = greater
    else:
        holds = greater or equal
    return TRUE if holds else FALSE
