"""Runs the programs of ``index.program`` on one row: a stack of (tag, 64 bits), and of a string its size.

Follows the reference evaluator to the letter; the truth values are FALSE 0, TRUE 1 and UNKNOWN 2.

The functions take every array by itself: reading one out of a tuple counts a reference, and that costs more
than the step.
"""

from __future__ import annotations

import numpy as np

from selectroute.index import tables as t
from selectroute.match.compiled import compiled, inlined

FALSE, TRUE, UNKNOWN = 0, 1, 2


@inlined
def run(
    first, last, row, steps, item_first, items, level_first, level_bytes,
    lane_tags, lane_codes, lane_bits, lane_sizes, text, tags, bits, reals, sizes,
):  # fmt: skip
    """The truth of the steps from `first` to `last` on a row; ``tags`` to ``sizes`` are the stack."""
    top = -1
    for number in range(first, last):
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
            _arithmetic(operation, top, tags, bits, reals)
        elif operation <= t.PLUS:
            _sign(operation, top, tags, bits, reals)
        elif operation <= t.GREATER_EQUAL:
            top -= 1
            _set(tags, bits, top, _compare(operation, top, tags, bits, reals, sizes, text))
        elif operation == t.AS_TRUTH:
            if tags[top] != t.BOOLEAN and tags[top] != t.NULL:
                _set(tags, bits, top, FALSE)
        elif operation == t.NOT:
            if tags[top] != t.NULL:
                bits[top] = 1 - bits[top]
        elif operation <= t.OR:
            top -= 1
            left = bits[top] if tags[top] != t.NULL else UNKNOWN
            right = bits[top + 1] if tags[top + 1] != t.NULL else UNKNOWN
            decisive = FALSE if operation == t.AND else TRUE
            if left == decisive or right == decisive:
                _set(tags, bits, top, decisive)
            elif left == UNKNOWN or right == UNKNOWN:
                _set(tags, bits, top, UNKNOWN)
        else:
            top += 1
            truth = _predicate(
                operation, argument, lane_tags[attribute, row], lane_codes[attribute, row],
                lane_bits[attribute, row], lane_sizes[attribute, row], text,
                item_first, items, level_first, level_bytes,
            )  # fmt: skip
            _set(tags, bits, top, truth)
    return bits[top] if tags[top] != t.NULL else UNKNOWN


@compiled
def _set(tags, bits, at, truth):
    tags[at] = t.NULL if truth == UNKNOWN else t.BOOLEAN
    bits[at] = truth & 1


@compiled
def _is_number(tag):
    return t.BYTE <= tag <= t.DOUBLE


@compiled
def _promoted(left, right):
    """Java's binary numeric promotion: the tags are ordered so that the wider one decides."""
    return max(left, right, t.INT)


@compiled
def _real(tag, bits, real, kind):
    """A number as the double, or the float held in a double, that it is promoted to."""
    if tag == t.FLOAT or tag == t.DOUBLE:
        return real
    if kind == t.FLOAT:
        return np.float64(np.float32(bits))
    return np.float64(bits)


@compiled
def _arithmetic(operation, at, tags, bits, reals):
    left, right = tags[at], tags[at + 1]
    if (left != t.NULL and not _is_number(left)) or (right != t.NULL and not _is_number(right)):
        tags[at] = t.MISMATCH
        return
    if left == t.NULL or right == t.NULL:
        tags[at] = t.NULL
        return
    kind = _promoted(left, right)
    if kind >= t.FLOAT:
        x = _real(left, bits[at], reals[at], kind)
        y = _real(right, bits[at + 1], reals[at + 1], kind)
        if operation == t.ADD:
            result = x + y
        elif operation == t.SUBTRACT:
            result = x - y
        elif operation == t.MULTIPLY:
            result = x * y
        else:
            result = x / y
        # Two floats' result as a double and then rounded to float is the float operation's: 53 >= 2 * 24 + 2.
        reals[at] = np.float64(np.float32(result)) if kind == t.FLOAT else result
    else:
        a, b = bits[at], bits[at + 1]
        if operation == t.ADD:
            whole = a + b
        elif operation == t.SUBTRACT:
            whole = a - b
        elif operation == t.MULTIPLY:
            whole = a * b
        elif b == 0:
            tags[at] = t.NULL
            return
        elif b == -1:
            whole = -a  # the smallest long divided by -1 wraps
        else:
            whole = a // b
            if whole < 0 and whole * b != a:
                whole += 1  # truncate towards zero
        bits[at] = np.int64(np.int32(whole)) if kind == t.INT else whole
    tags[at] = kind


@compiled
def _sign(operation, at, tags, bits, reals):
    tag = tags[at]
    if tag == t.NULL:
        return
    if not _is_number(tag):
        tags[at] = t.MISMATCH
        return
    if tag < t.INT:
        tags[at] = t.INT
    if operation == t.NEGATE:
        if tag >= t.FLOAT:
            reals[at] = -reals[at]
        elif tag == t.LONG:
            bits[at] = -bits[at]
        else:
            bits[at] = np.int64(np.int32(-bits[at]))


@compiled
def _compare(operation, at, tags, bits, reals, sizes, text):
    left, right = tags[at], tags[at + 1]
    if left == t.MISMATCH or right == t.MISMATCH:
        return FALSE
    if left == t.NULL or right == t.NULL:
        return UNKNOWN
    if _is_number(left) and _is_number(right):
        kind = _promoted(left, right)
        if kind >= t.FLOAT:
            x = _real(left, bits[at], reals[at], kind)
            y = _real(right, bits[at + 1], reals[at + 1], kind)
            return _ordered(operation, x < y, x == y, x > y)
        a, b = bits[at], bits[at + 1]
        return _ordered(operation, a < b, a == b, a > b)
    if left != right or (operation != t.EQUAL and operation != t.UNEQUAL):
        return FALSE
    if left == t.STRING:
        equal = sizes[at] == sizes[at + 1]
        for k in range(sizes[at] if equal else 0):
            if text[bits[at] + k] != text[bits[at + 1] + k]:
                equal = False
                break
    else:
        equal = bits[at] == bits[at + 1]
    return TRUE if equal == (operation == t.EQUAL) else FALSE


@compiled
def _ordered(operation, less, equal, greater):
    """Of NaN none of the three holds, and <> does."""
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


@inlined
def _predicate(
    operation, argument, tag, code, start, size, text, item_first, items, level_first, level_bytes
):
    if operation == t.IS_NULL:
        return TRUE if tag == t.NULL else FALSE
    if tag == t.NULL:
        return UNKNOWN
    if operation == t.IS_KEY:
        return TRUE if code == argument else FALSE
    if operation == t.IS_NOT_KEY:
        if tag != argument >> 32:
            return FALSE
        return TRUE if code != argument & 0xFFFFFFFF else FALSE
    if tag != t.STRING:
        return FALSE  # IN, LIKE and LEVELS of what is no string, and their negations
    first, last = item_first[argument], item_first[argument + 1]
    if operation == t.IN or operation == t.NOT_IN:
        found = _contains(items, first, last, code)
        return TRUE if found == (operation == t.IN) else FALSE
    if operation == t.LEVELS:
        found = _has_levels(text, start, start + size, items, first, last, level_first, level_bytes)
        return TRUE if found else FALSE
    found = _like(text, start, start + size, items, first, last)
    return TRUE if found == (operation == t.LIKE) else FALSE


@compiled
def _contains(items, first, last, code):
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if items[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < last and items[low] == code


@compiled
def _width(lead):
    """Bytes of the UTF-8 sequence that begins with `lead`."""
    if lead < 0x80:
        return 1
    if lead < 0xE0:
        return 2
    return 3 if lead < 0xF0 else 4


@compiled
def _code_point(text, at, width):
    if width == 1:
        return np.int32(text[at])
    point = np.int32(text[at]) & (0x7F >> width)
    for k in range(1, width):
        point = point << 6 | (np.int32(text[at + k]) & 0x3F)
    return point


@compiled
def _like(text, start, end, symbols, first, last):
    """LIKE on code points, greedy: on a mismatch only the latest % takes one character more."""
    at, want = start, first
    retry_at, retry_want = start, np.int64(-1)
    while at < end:
        width = _width(text[at])
        if want < last and symbols[want] == t.ANY_MANY:
            want += 1
            retry_at, retry_want = at, want
        elif want < last and (symbols[want] == t.ANY_ONE or symbols[want] == _code_point(text, at, width)):
            at += width
            want += 1
        elif retry_want >= 0:
            retry_at += _width(text[retry_at])
            at, want = retry_at, retry_want
        else:
            return False
    while want < last and symbols[want] == t.ANY_MANY:
        want += 1
    return want == last


@compiled
def _level_end(text, start, end):
    at = start
    while at < end and text[at] != 47:  # "/"
        at += 1
    return at


@compiled
def _has_levels(text, start, end, symbols, first, last, level_first, level_bytes):
    """Levels of a topic against those of a filter, greedy as in LIKE. Past the last, `at` is end + 1."""
    at, want = start, first
    retry_at, retry_want = start, np.int64(-1)
    while at <= end:
        stop = _level_end(text, at, end)
        if want < last and symbols[want] == t.ANY_MANY:
            want += 1
            retry_at, retry_want = at, want
        elif want < last and (
            symbols[want] == t.ANY_ONE or _is_level(text, at, stop, symbols[want], level_first, level_bytes)
        ):
            at = stop + 1
            want += 1
        elif retry_want >= 0:
            retry_at = _level_end(text, retry_at, end) + 1
            at, want = retry_at, retry_want
        else:
            return False
    while want < last and symbols[want] == t.ANY_MANY:
        want += 1
    return want == last


@compiled
def _is_level(text, start, stop, level, level_first, level_bytes):
    first = level_first[level]
    if level_first[level + 1] - first != stop - start:
        return False
    for k in range(stop - start):  # noqa: SIM110  # numba has no generators
        if text[start + k] != level_bytes[first + k]:
            return False
    return True
