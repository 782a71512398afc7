"""Encoding of values: lookup of each row's value among the constants of the attribute."""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.hashing import HASH_MULTIPLIER, HASH_SEED, HASH_SHIFT, HASH_TAG_SHIFT
from selectroute.clauses.access import LARGE_FLOAT
from selectroute.match.array_structs import segment_at
from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import address_of, byte_at, int_at, long_at, short_at, word_at
from selectroute.match.ranges import first_not_below
from selectroute.match.short_strings import LONGEST, place_of

_SEED, _MULTIPLIER, _SHIFT = np.uint64(HASH_SEED), np.uint64(HASH_MULTIPLIER), np.uint64(HASH_SHIFT)
_TAG_SHIFT = np.uint64(HASH_TAG_SHIFT)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF_00000000), np.uint64(0xFFFFFFFF)
_EMPTY = np.uint64(t.EMPTY_SLOT)
_ALL = np.uint64(2**64 - 1)
_ONE, _HALF = np.uint64(1), np.uint64(32)
_GREATEST = np.int64(2**63 - 1)


@compiled
def hash_strings(tags, starts, sizes, data, hashes):
    """Write the hash of each string of a lane into `hashes`, the same as ``arrays.hashing.hash_strings``.

    A separate pass, once for all dictionaries in which the lane is looked up, without cache misses.
    """
    hash_at(tags, starts, sizes, address_of(data), len(data), hashes)


@compiled
def hash_at(tags, starts, sizes, address, count, hashes):
    """Write the hash of each string; the lane's ``count`` bytes are at an address."""
    for i in range(len(tags)):
        if tags[i] >= t.STRING:
            hashes[i] = _hash(address, count, starts[i], sizes[i], tags[i])


TRIAL = 8192
"""Rows after which a column without repeated strings is given up."""


@compiled
def number_strings(tags, starts, sizes, hashes, data, numbers):
    """Number the distinct strings of a lane from 0, and write each row's number into `numbers`, 0 for other
    values. Returns how many there are, or -1 if hardly any string is repeated.
    """
    slots_of = 4
    while slots_of < 2 * len(tags):
        slots_of *= 2
    mask = np.uint64(slots_of - 1)
    slots = np.full(slots_of, -1, np.int32)
    first_row = np.empty(len(tags), np.int32)
    address = address_of(data)
    count = 0
    for i in range(len(tags)):
        if i == TRIAL and 4 * count > 3 * TRIAL:
            return -1
        numbers[i] = 0
        if tags[i] != t.STRING:
            continue
        at = hashes[i] & mask
        while slots[at] >= 0:
            row = first_row[slots[at]]
            if (
                hashes[row] == hashes[i]
                and sizes[row] == sizes[i]
                and _same(address, len(data), starts[i], address, len(data), starts[row], sizes[i])
            ):
                break
            at = (at + _ONE) & mask
        if slots[at] < 0:
            slots[at] = count
            first_row[count] = i
            count += 1
        numbers[i] = slots[at]
    return count


@compiled
def encode(attribute, tags, bits, sizes, hashes, data, segment, codes):
    """Write the code of each entry of a lane into `codes`; ``segment`` is the address of `SegmentArrays`."""
    encode_at(attribute, tags, bits, sizes, hashes, address_of(data), len(data), segment, codes)


@compiled
def encode_at(attribute, tags, bits, sizes, hashes, address, count, segment, codes):
    """Write the code of each entry; the lane's ``count`` bytes are at an address."""
    tables = segment_at(segment).tables
    values = bits.view(np.float64)
    slot_first = tables.string_slot_first[attribute]
    slots = tables.string_slot[slot_first : tables.string_slot_first[attribute + 1]]
    numbers = tables.number[tables.number_first[attribute] : tables.number_first[attribute + 1]]
    number_code = tables.number_code[tables.number_first[attribute] : tables.number_first[attribute + 1]]
    large = tables.large_float[tables.large_float_first[attribute] : tables.large_float_first[attribute + 1]]
    large_code = tables.large_float_code[
        tables.large_float_first[attribute] : tables.large_float_first[attribute + 1]
    ]
    firsts, constants = tables.string_first, tables.string_bytes
    string_code, string_tag = tables.string_code, tables.string_tag
    mask = np.uint64(len(slots) - 1)
    known = address_of(constants)
    short_slots, words, multipliers = _short_table(segment, attribute)
    for i in range(len(tags)):
        tag = tags[i]
        if words and tag == t.STRING and sizes[i] <= LONGEST:
            codes[i] = _short_code(hashes[i], sizes[i], short_slots, words, multipliers)
        elif tag >= t.STRING:
            code = np.int32(t.ABSENT)
            if len(slots):
                hashed = hashes[i]
                at = hashed & mask
                slot = slots[at]
                while slot != _EMPTY:
                    if (slot ^ hashed) & _UPPER == 0:
                        string = slot & _LOWER
                        first = firsts[string]
                        size = sizes[i]
                        if (
                            firsts[string + _ONE] - first == size
                            and string_tag[string] == tag
                            and _same(address, count, bits[i], known, len(constants), first, size)
                        ):
                            code = string_code[string]
                            break
                    at = (at + _ONE) & mask
                    slot = slots[at]
            codes[i] = code
        elif tag == t.NULL:
            codes[i] = t.CODE_NULL
        elif tag == t.BOOLEAN:
            codes[i] = t.CODE_TRUE if bits[i] else t.CODE_FALSE
        elif tag == t.FLOAT and abs(values[i]) >= LARGE_FLOAT:
            codes[i] = _number_code(values[i], large, large_code)
        elif tag == t.FLOAT or tag == t.DOUBLE:
            codes[i] = _number_code(values[i], numbers, number_code)
        else:
            codes[i] = _number_code(np.float64(bits[i]), numbers, number_code)


@compiled
def encode_short(attribute, offsets, row, rows, address, end, segment, codes):
    """Write the codes of at most so many strings, up to the first that is empty or longer than eight bytes;
    return how many these are, 0 for an attribute without `ShortStrings`.

    Args:
        offsets: the address of the Arrow column's offsets.
        row: the first row.
        address, end: where the offsets count from, and the last of them.
        segment: the address of its arrays.
        codes: the codes to write, from 0 on.
    """
    slots, words, multipliers = _short_table(segment, attribute)
    if not words or end < LONGEST:
        return 0
    start = np.int64(int_at(offsets, row))
    for i in range(rows):
        stop = np.int64(int_at(offsets, row + i + 1))
        size = stop - start
        if size - 1 >= LONGEST or size <= 0:
            return i
        # No byte beyond the end is read: the last strings have the word that ends there.
        beyond = max(start + LONGEST - end, 0)
        word = word_at(address, start - beyond) >> np.uint64(beyond << 3)
        hashed = _short_hash(word & _ALL >> np.uint64((LONGEST - size) << 3), size)
        codes[i] = _short_code(hashed, size, slots, words, multipliers)
        start = stop
    return rows


@inlined
def _short_table(segment, attribute):
    """Return the address of an attribute's slots in `ShortStrings`, how many words they have, none for no
    table, and the address of its multipliers.
    """
    short = segment_at(segment).short
    first, end = short.first[attribute], short.first[attribute + 1]
    return address_of(short.slot) + 16 * first, 2 * (end - first), address_of(short.multiplier) + (first >> 1)


@inlined
def _short_code(hashed, size, slots, words, multipliers):
    """Return the code of a string by its hash and size, in the table of `_short_table`."""
    bucket = np.int64(hashed) & ((words >> 3) - 1)
    place = place_of(hashed, np.uint64(short_at(multipliers, bucket)), words)
    meta = np.uint64(long_at(slots, place + 1))
    is_equal = (np.uint64(long_at(slots, place)) == hashed) & (meta >> _HALF == np.uint64(size))
    return np.int32(meta & _LOWER) if is_equal else np.int32(t.ABSENT)


@compiled
def find_prefixes(attribute, tags, starts, sizes, data, segment, prefixes):
    """Write the number of the attribute's longest prefix of each string of a lane, or -1."""
    tables = segment_at(segment).tables
    keys, firsts, parents = tables.prefix_key, tables.prefix_byte_first, tables.prefix_parent
    begin, end = tables.prefix_first[attribute], tables.prefix_first[attribute + 1]
    address, known, address_of_keys = address_of(data), address_of(tables.prefix_bytes), address_of(keys)
    for i in range(len(tags)):
        prefixes[i] = -1
        if tags[i] != t.STRING:
            continue
        start, size = np.int64(starts[i]), np.int64(sizes[i])
        key = np.uint64(0)
        for k in range(8):
            key = key << np.uint64(8) | np.uint64(byte_at(address, start + k) if k < size else 0)
        signed = np.int64(key ^ np.uint64(1 << 63))
        # The last prefix not greater than the value: for equal first eight bytes, the other bytes decide.
        low = first_not_below(signed, begin, end, address_of_keys, len(keys))
        high = (
            first_not_below(signed + 1, low, end, address_of_keys, len(keys)) if signed < _GREATEST else end
        )
        while low < high:
            middle = (low + high) >> 1
            if _is_greater(known, firsts[middle], firsts[middle + 1], address, start, start + size):
                high = middle
            else:
                low = middle + 1
        prefix = low - 1
        if prefix < begin:
            continue
        while prefix >= 0 and not _begins(address, start, size, known, firsts[prefix], firsts[prefix + 1]):
            prefix = np.int64(parents[prefix])
        prefixes[i] = prefix


@inlined
def _is_greater(left, at, stop, right, first, last):
    """Return whether the bytes from ``at`` to ``stop`` are greater than those from ``first`` to ``last``."""
    while at < stop and first < last:
        a, b = byte_at(left, at), byte_at(right, first)
        if a != b:
            return a > b
        at += 1
        first += 1
    return at < stop


@inlined
def _begins(text, start, size, prefixes, first, last):
    """Return whether a string begins with a prefix."""
    if last - first > size:
        return False
    while first < last:
        if byte_at(text, start) != byte_at(prefixes, first):
            return False
        start += 1
        first += 1
    return True


@inlined
def _number_code(value, keys, codes):
    """Return the code of the key equal to `value`; ABSENT for NaN and other values."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < value:
            low = middle + 1
        else:
            high = middle
    return codes[low] if low < len(keys) and keys[low] == value else np.int32(t.ABSENT)


@inlined
def _hash(data, bytes_, start, size, tag):
    """Return the ``arrays.hashing.hash_strings`` of a string in the ``bytes_`` bytes at an address."""
    state = (_SEED ^ (np.uint64(size) | np.uint64(tag) << _TAG_SHIFT)) * _MULTIPLIER
    state ^= state >> _SHIFT
    position = np.int64(start)
    for _ in range(size >> 3):
        state = (state ^ word_at(data, position)) * _MULTIPLIER
        state ^= state >> _SHIFT
        position += 8
    rest = size & 7
    if rest:
        state = (state ^ _tail(data, bytes_, position, rest)) * _MULTIPLIER
        state ^= state >> _SHIFT
    return state


@inlined
def _short_hash(word, size):
    """Return the `_hash` of a string of one to eight bytes, the word of which is filled up with zeros."""
    state = (_SEED ^ (np.uint64(size) | np.uint64(t.STRING) << _TAG_SHIFT)) * _MULTIPLIER
    state ^= state >> _SHIFT
    state = (state ^ word) * _MULTIPLIER
    return state ^ state >> _SHIFT


@inlined
def _same(left, left_bytes, at, right, right_bytes, first, size):
    """Return whether two strings of equal size are equal, one at ``at`` and the other at ``first``."""
    for _ in range(size >> 3):
        if word_at(left, at) != word_at(right, first):
            return False
        at += 8
        first += 8
    rest = size & 7
    return rest == 0 or _tail(left, left_bytes, at, rest) == _tail(right, right_bytes, first, rest)


@inlined
def _tail(data, bytes_, at, rest):
    """Return the last one to seven bytes of a string, padded with zeros to a word, reading no other bytes."""
    if at + 8 <= bytes_:
        return _cut(word_at(data, at), rest)
    if bytes_ >= 8:  # the word that ends with the bytes, moved down
        return _cut(word_at(data, bytes_ - 8) >> np.uint64((at + 8 - bytes_) << 3), rest)
    word = np.uint64(0)
    for k in range(rest):
        word |= np.uint64(byte_at(data, at + k)) << np.uint64(k << 3)
    return word


@inlined
def _cut(word, rest):
    """Return the lowest bytes of a word."""
    return word & ((np.uint64(1) << np.uint64(rest << 3)) - np.uint64(1))
