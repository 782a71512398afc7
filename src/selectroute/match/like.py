"""LIKE on UTF-8, and the levels of a topic: what a string has to a pattern of symbols.

A symbol of LIKE is a code point, one of LEVELS the number of a level; both have `ANY_ONE` and `ANY_MANY`.
What stands before the first `ANY_MANY` and after the last has its place at an end of the text, and is
compared first. What stands between two, a segment, is taken where it is found first: any later place would
leave less text to what follows, and no more.

`like` looks for its first byte, eight bytes at a time, and compares the rest there, which is fastest for the
usual patterns. A segment that nearly matches everywhere (``%aaaaaaab%`` among many ``a``) would make it read
the text once for each of its characters; so it counts what it read in vain, and leaves what is left of such a
text to `like_in_bits`.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.compiled import compiled
from selectroute.match.memory import address_of
from selectroute.match.utf8 import after, before, byte_of, code_point, first_of, size_of

# How many bytes the greedy search may read in vain before the search in bits takes over: for each byte and
# symbol, as many as cost what the bits would; and as many more as cost what the other's arrays do.
_VAIN_PER_BYTE, _VAIN_AT_LEAST = 8, 1 << 16


@compiled
def like(text, start, end, symbols, first, last):
    """Return whether the symbols from `first` to `last` match the bytes from `start` to `end`.

    O(bytes + symbols) for the usual patterns, O(bytes x symbols / 64) at worst.
    """
    verdict, start, end, first, last = _greedily(text, start, end, symbols, first, last)
    return like_in_bits(text, start, end, symbols, first, last) if verdict < 0 else verdict == 1


@compiled
def _greedily(text, start, end, symbols, first, last):
    """Return the verdict, 0 or 1; or -1 and what is left, bytes and symbols, where too much was read in
    vain.
    """
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
        # An ANY_ONE that a segment begins with may as well stand before it.
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
                    behind = after(address, at, high, symbols[want])
                    if behind < 0:
                        break
                    at = behind
                    want += 1
                if symbols[want] == t.ANY_MANY:
                    break
                if at == high:
                    return 0, low, high, first, last  # a later place has even less behind it
                patience -= at - place
                if patience < 0:
                    return -1, low, high, first, last
                place += 1
        first, low = want, at


@compiled
def like_in_bits(text, start, end, symbols, first, last):
    """As `like`, by `_end_of_first`. It takes memory for all bytes, all symbols and the highest code point.

    Text and pattern become numbers of code points: those of the pattern count from 1, every other one is 0.
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
        behind = after(address, at, end, t.ANY_ONE)
        point = code_point(address, at, behind)
        characters[high] = number_of[point] if 0 <= point <= highest else 0
        high += 1
        at = behind

    # What stands before the first ANY_MANY and after the last has its place at an end of the text.
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

    masks = np.zeros(numbers, np.int32)
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
    """Return the end of the first place of the segment between `low` and `high`, -1 if there is none, by
    Shift-And.

    Bit k of `matched` says that the segment up to its symbol k matches the characters up to `at`. With each
    character all bits move up by one, and those stay where the segment has this character or ANY_ONE::

        masks[number] ──▶ entry ──▶ following[entry] ──▶ … ──▶ 0    number: of a character
                          word[entry], bits[entry]                  bits: where it stands in that word

    So a mask is the list of its words that are not zero, ascending, and all masks together have no more words
    than the segment has symbols. invariant: `masks` is zero between two segments, `matched` from `used` on.
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
    found = -1
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
            found = at + 1
            break
        while used > 1 and matched[used - 1] == 0:
            used -= 1

    for k in range(size):
        if segment[k] >= 0:
            masks[segment[k]] = 0
    return found


@compiled
def has_levels(text, start, end, symbols, first, last, level_first, level_bytes):
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
