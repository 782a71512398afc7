"""Characters of UTF-8, one by one, from either end of a text.

A column may hold invalid UTF-8. To split it the same way from both ends, a character is a byte and all
continuation bytes after it; one that is not a code point only matches `ANY_ONE`. No byte beyond the end is
read. Texts are given by their address, see ``memory``.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.compiled import inlined
from selectroute.match.memory import byte_at, word_at

_EACH, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


@inlined
def first_of(text, at, end, byte):
    """Return the first position of a byte from `at` on, or -1."""
    all_bytes = np.uint64(byte) * _EACH
    while at + 8 <= end:
        unlike = word_at(text, at) ^ all_bytes
        if (unlike - _EACH) & ~unlike & _TOPS:  # one of them is zero
            break
        at += 8
    while at < end:
        if byte_at(text, at) == byte:
            return at
        at += 1
    return np.int64(-1)


@inlined
def after(text, at, end, symbol):
    """Return the end of the character at `at`, or -1 if there is none or it is not the symbol."""
    if at == end:
        return np.int64(-1)
    if symbol == t.ANY_ONE:
        at += 1
        while at < end and _is_continuation(byte_at(text, at)):
            at += 1
        return at
    if symbol < 0x80:
        if byte_at(text, at) != symbol:
            return np.int64(-1)
        at += 1
    else:
        size = size_of(symbol)
        if size > end - at:
            return np.int64(-1)
        for k in range(size):
            if byte_at(text, at + k) != byte_of(symbol, size, k):
                return np.int64(-1)
        at += size
    return np.int64(-1) if at < end and _is_continuation(byte_at(text, at)) else at


@inlined
def before(text, start, at, symbol):
    """Return the start of the character that ends at `at`, or -1 if there is none or it is not the symbol."""
    if at == start:
        return np.int64(-1)
    if symbol == t.ANY_ONE:
        at -= 1
        while at > start and _is_continuation(byte_at(text, at)):
            at -= 1
        return at
    size = size_of(symbol)
    if size > at - start:
        return np.int64(-1)
    at -= size
    for k in range(size):
        if byte_at(text, at + k) != byte_of(symbol, size, k):
            return np.int64(-1)
    return at


@inlined
def _is_continuation(byte):
    return byte & 0xC0 == 0x80


@inlined
def size_of(point):
    """Return the number of bytes of a code point in UTF-8."""
    if point < 0x800:
        return 1 if point < 0x80 else 2
    return 3 if point < 0x10000 else 4


@inlined
def byte_of(point, size, k):
    """Return byte `k` of a code point of `size` bytes in UTF-8."""
    if size == 1:
        return point
    if k == 0:
        return (0xF00 >> size & 0xFF) | point >> 6 * (size - 1)
    return 0x80 | (point >> 6 * (size - 1 - k) & 0x3F)


@inlined
def code_point(text, at, after):
    """Return the code point of a character, or -1 for invalid UTF-8."""
    size, lead = after - at, np.int32(byte_at(text, at))
    if size == 1:
        return lead if lead < 0x80 else np.int32(-1)
    if size > 4 or lead >> (7 - size) != (2 << size) - 2:
        return np.int32(-1)
    point = lead & (0x7F >> size)
    for k in range(1, size):
        point = np.int32(point << 6 | (np.int32(byte_at(text, at + k)) & 0x3F))
    return point if size_of(point) == size else np.int32(-1)
