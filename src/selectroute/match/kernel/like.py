"""LIKE on UTF-8, and the levels of a topic: matching a string with a pattern of symbols.

A symbol of LIKE is a code point, a symbol of LEVELS the number of a level; both have `ANY_ONE` and
`ANY_MANY`. The symbols before the first `ANY_MANY` and after the last are at the ends of the text, and
compared first. A segment between two is matched at its first occurrence: a later one would only leave less
text to the next segments.

`like` searches the first byte of a segment, eight bytes at a time, and compares the rest there, which is
fastest for the usual patterns. A segment that nearly matches everywhere (``%aaaaaaab%`` among many ``a``)
would cost a pass over the text for each of its characters; so `like` and `has_levels` count bytes compared in
vain, and beyond a bound leave the text to `like_in_bits` and `_levels_in_bits`.

A column may hold invalid UTF-8. To split it the same way from both ends, a character is a byte and all
continuation bytes after it; one that is not a code point only matches `ANY_ONE`. No byte beyond the end is
read. Texts are given by their address, see ``memory``.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import address_of, byte_at, word_at

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


# Bytes that the greedy search may read in vain before the bit-parallel search takes over: per byte and symbol
# the cost of that search, and at least the cost of its arrays.
_VAIN_PER_BYTE, _VAIN_AT_LEAST = 8, 1 << 16
_VAIN_LEVELS = 1 << 12


@compiled
def like(text, start, end, symbols, first, last):
    """Return whether the symbols from `first` to `last` match the bytes from `start` to `end`.

    O(bytes + symbols) for the usual patterns, O(bytes x symbols / 64) at worst.
    """
    verdict, start, end, first, last = _greedily(text, start, end, symbols, first, last)
    return like_in_bits(text, start, end, symbols, first, last) if verdict < 0 else verdict == 1


@compiled
def _greedily(text, start, end, symbols, first, last):
    """Return the verdict, 0 or 1; or -1 if too much was read in vain, and the rest of bytes and symbols."""
    address = address_of(text)
    low, high = np.int64(start), np.int64(end)
    first, last = np.int64(first), np.int64(last)
    while first < last and symbols[first] != t.ANY_MANY:
        low = after(address, low, high, symbols[first])
        if low < 0:
            return 0, low, high, first, last
        first += 1
    if first == last:
        return (1 if low == high else 0), low, high, first, last
    while symbols[last - 1] != t.ANY_MANY:
        high = before(address, low, high, symbols[last - 1])
        if high < 0:
            return 0, low, high, first, last
        last -= 1

    patience = _VAIN_AT_LEAST + _VAIN_PER_BYTE * (high - low + last - first)
    while True:  # symbols[first] is ANY_MANY, and so is the last one
        want, at = first + 1, low
        # Match the leading ANY_ONEs of a segment at once.
        while want < last and symbols[want] == t.ANY_ONE:
            at = after(address, at, high, t.ANY_ONE)
            if at < 0:
                return 0, low, high, first, last
            want += 1
        if want == last:
            return 1, low, high, first, last
        if symbols[want] != t.ANY_MANY:
            begin, lead = want, byte_of(symbols[want], size_of(symbols[want]), 0)
            place = at
            while True:
                place = first_of(address, place, high, lead)
                if place < 0:
                    return 0, low, high, first, last
                want, at = begin, place
                while symbols[want] != t.ANY_MANY:
                    next_at = after(address, at, high, symbols[want])
                    if next_at < 0:
                        break
                    at = next_at
                    want += 1
                if symbols[want] == t.ANY_MANY:
                    break
                if at == high:
                    return 0, low, high, first, last  # a later place has even less text after it
                patience -= at - place
                if patience < 0:
                    return -1, low, high, first, last
                place += 1
        first, low = want, at


@compiled
def like_in_bits(text, start, end, symbols, first, last):
    """Return the verdict of `like`, by `_end_of_first`. Memory: bytes, symbols and the highest code point.

    Code points become numbers: those of the pattern count from 1, all others are 0.
    """
    highest = np.int32(0)
    for want in range(first, last):
        highest = max(highest, symbols[want])
    number_of = np.zeros(highest + 1, np.int32)
    pattern = np.empty(last - first, np.int32)
    numbers = 1
    for want in range(first, last):
        symbol = symbols[want]
        if symbol >= 0 and number_of[symbol] == 0:
            number_of[symbol] = numbers
            numbers += 1
        pattern[want - first] = number_of[symbol] if symbol >= 0 else symbol

    characters = np.empty(end - start, np.int32)
    address, high, at = address_of(text), 0, np.int64(start)
    while at < end:
        next_at = after(address, at, end, t.ANY_ONE)
        point = code_point(address, at, next_at)
        characters[high] = number_of[point] if 0 <= point <= highest else 0
        high += 1
        at = next_at
    return _matches_in_bits(characters, high, pattern, np.zeros(numbers, np.int32))


@compiled
def _matches_in_bits(characters, high, pattern, masks):
    """Return whether the pattern matches `high` characters. `masks` has a zero for each number."""
    # The symbols before the first ANY_MANY and after the last are at the ends of the text.
    low, head, tail = 0, 0, len(pattern)
    while head < tail and pattern[head] != t.ANY_MANY:
        if low == high or (pattern[head] != t.ANY_ONE and pattern[head] != characters[low]):
            return False
        low, head = low + 1, head + 1
    if head == tail:
        return low == high
    while pattern[tail - 1] != t.ANY_MANY:
        if low == high or (pattern[tail - 1] != t.ANY_ONE and pattern[tail - 1] != characters[high - 1]):
            return False
        high, tail = high - 1, tail - 1
    while head < tail:
        stop = head
        while pattern[stop] != t.ANY_MANY:
            stop += 1
        if stop > head:
            low = _end_of_first(characters, low, high, pattern[head:stop], masks)
            if low < 0:
                return False
        head = stop + 1
    return True


@compiled
def _end_of_first(characters, low, high, segment, masks):
    """Return the end of the first match of the segment between `low` and `high`, -1 without one (Shift-And).

    Bit k of `matched`: the segment up to symbol k matches the characters up to `at`. With each character all
    bits move up by one, and only those remain where the segment has this character or ANY_ONE::

        masks[number] ──▶ entry ──▶ following[entry] ──▶ … ──▶ 0    number: of a character
                          word[entry], bits[entry]                  bits: its positions in that word

    So a mask is the ascending list of its non-zero words, and all masks together have at most as many words
    as the segment has symbols. invariant: `masks` is zero between two segments, `matched` from `used` on.
    """
    size = len(segment)
    if size > high - low:
        return -1
    words = (size + 63) >> 6
    any_one = np.zeros(words, np.int64)
    bits = np.zeros(size + 1, np.int64)
    word = np.empty(size + 1, np.int32)
    following = np.empty(size + 1, np.int32)
    entries = 0
    for k in range(size - 1, -1, -1):
        number, bit = segment[k], np.int64(1) << (k & 63)
        if number < 0:
            any_one[k >> 6] |= bit if number == t.ANY_ONE else 0
            continue
        entry = masks[number]
        if entry == 0 or word[entry] != k >> 6:
            entries += 1
            word[entries], following[entries] = k >> 6, entry
            masks[number] = entry = entries
        bits[entry] |= bit

    matched = np.zeros(words, np.int64)
    moved = np.empty(words, np.int64)
    used = 1  # words of `matched` that can have a bit
    end = -1
    for at in range(low, high):
        if matched[used - 1] < 0 and used < words:
            used += 1  # its top bit moves into the next word
        moved[0] = matched[0] << 1 | 1
        for k in range(1, used):
            moved[k] = matched[k] << 1 | (matched[k - 1] >> 63 & 1)
        for k in range(used):
            matched[k] = moved[k] & any_one[k]
        entry = masks[characters[at]]
        while entry != 0 and word[entry] < used:
            matched[word[entry]] |= moved[word[entry]] & bits[entry]
            entry = following[entry]
        if matched[words - 1] >> (size - 1 & 63) & 1:
            end = at + 1
            break
        while used > 1 and matched[used - 1] == 0:
            used -= 1

    for k in range(size):
        if segment[k] >= 0:
            masks[segment[k]] = 0
    return end


@compiled
def has_levels(text, start, end, symbols, first, last, level_first, level_bytes):
    """Return whether the levels of a topic match those of a filter: greedy as LIKE. The topic's levels are
    used up when `at` is end + 1.
    """
    at, want = start, first
    retry_at, retry_want = start, np.int64(-1)
    patience = _VAIN_LEVELS + 2 * (end - start)
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
            patience -= stop - retry_at
            if patience < 0:
                return _levels_in_bits(text, start, end, symbols, first, last, level_first, level_bytes)
            retry_at = _level_end(text, retry_at, end) + 1
            at, want = retry_at, retry_want
        else:
            return False
    while want < last and symbols[want] == t.ANY_MANY:
        want += 1
    return want == last


@compiled
def _levels_in_bits(text, start, end, symbols, first, last, level_first, level_bytes):
    """Return the verdict of `has_levels`, by `_end_of_first`. O(bytes) of the topic and the filter.

    Levels become numbers, as characters in `like_in_bits`: `table` has the number of a level at its hash.
    """
    size = 2
    while size < 2 * (last - first):
        size *= 2
    table = np.zeros(size, np.int32)
    level_of = np.empty(last - first + 1, np.int32)
    pattern = np.empty(last - first, np.int32)
    numbers = 1
    for want in range(first, last):
        level = symbols[want]
        pattern[want - first] = level
        if level >= 0:
            slot = _hash(level_bytes, level_first[level], level_first[level + 1]) & (size - 1)
            while table[slot] != 0 and level_of[table[slot]] != level:
                slot = (slot + 1) & (size - 1)
            if table[slot] == 0:
                table[slot], level_of[numbers] = numbers, level
                numbers += 1
            pattern[want - first] = table[slot]

    count = 1
    for k in range(start, end):
        count += text[k] == 47  # "/"
    levels = np.empty(count, np.int32)
    at = start
    for place in range(count):
        stop = _level_end(text, at, end)
        slot = _hash(text, at, stop) & (size - 1)
        while table[slot] != 0 and not _is_level(
            text, at, stop, level_of[table[slot]], level_first, level_bytes
        ):
            slot = (slot + 1) & (size - 1)
        levels[place] = table[slot]
        at = stop + 1
    return _matches_in_bits(levels, count, pattern, np.zeros(numbers, np.int32))


@compiled
def _hash(octets, start, stop):
    """Return the FNV-1a hash of bytes, its upper half folded into the lower one."""
    hashed = np.int64(-3750763034362895579)
    for k in range(start, stop):
        hashed = (hashed ^ np.int64(octets[k])) * np.int64(1099511628211)
    return hashed ^ hashed >> 32


@compiled
def _level_end(text, start, end):
    at = start
    while at < end and text[at] != 47:  # "/"
        at += 1
    return at


@compiled
def _is_level(text, start, stop, level, level_first, level_bytes):
    first = level_first[level]
    if level_first[level + 1] - first != stop - start:
        return False
    for k in range(stop - start):  # noqa: SIM110  # numba has no generators
        if text[start + k] != level_bytes[first + k]:
            return False
    return True
