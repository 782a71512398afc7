"""Values to codes: each row's value is looked up among the constants of its attribute."""

from __future__ import annotations

import numpy as np

from selectroute.clauses.access import LARGE_FLOAT
from selectroute.index import tables as t
from selectroute.index.dictionary import HASH_MULTIPLIER, HASH_SEED, HASH_SHIFT
from selectroute.match.compiled import compiled

_SEED, _MULTIPLIER, _SHIFT = np.uint64(HASH_SEED), np.uint64(HASH_MULTIPLIER), np.uint64(HASH_SHIFT)


@compiled
def encode(attribute, tags, bits, sizes, data, tables, codes):
    """Write the code of each entry of a lane into `codes`."""
    values = bits.view(np.float64)
    slot_first = tables.string_slot_first[attribute]
    slots = tables.string_slot[slot_first : tables.string_slot_first[attribute + 1]]
    numbers = tables.number[tables.number_first[attribute] : tables.number_first[attribute + 1]]
    number_code = tables.number_code[tables.number_first[attribute] : tables.number_first[attribute + 1]]
    large = tables.large_float[tables.large_float_first[attribute] : tables.large_float_first[attribute + 1]]
    large_code = tables.large_float_code[
        tables.large_float_first[attribute] : tables.large_float_first[attribute + 1]
    ]
    firsts, constants, string_code = tables.string_first, tables.string_bytes, tables.string_code
    for i in range(len(tags)):
        tag = tags[i]
        if tag == t.STRING:
            codes[i] = _string_code(data, bits[i], sizes[i], slots, firsts, constants, string_code)
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
def _number_code(value, keys, codes):
    """The code of the key equal to `value`; NaN and what is not there have none."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < value:
            low = middle + 1
        else:
            high = middle
    return codes[low] if low < len(keys) and keys[low] == value else np.int32(t.ABSENT)


@compiled
def _string_code(data, start, size, slots, firsts, constants, string_code):
    if len(slots) == 0:
        return np.int32(t.ABSENT)
    mask = np.uint64(len(slots) - 1)
    slot = _hash(data, start, size) & mask
    while True:
        string = slots[np.int64(slot)]
        if string < 0:
            return np.int32(t.ABSENT)
        first = firsts[string]
        if firsts[string + 1] - first == size and _same(data, start, constants, first, size):
            return string_code[string]
        slot = (slot + np.uint64(1)) & mask


@compiled
def _same(left, left_start, right, right_start, size):
    for k in range(size):  # noqa: SIM110  # numba has no generators
        if left[left_start + k] != right[right_start + k]:
            return False
    return True


@compiled
def _hash(data, start, size):
    """The hash of ``dictionary.hash_strings``, word by word."""
    state = (_SEED ^ np.uint64(size)) * _MULTIPLIER
    state ^= state >> _SHIFT
    position = start
    for _ in range(size >> 3):
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[position + k]) << np.uint64(8 * k)
        state = (state ^ word) * _MULTIPLIER
        state ^= state >> _SHIFT
        position += 8
    rest = size & 7
    if rest:
        word = np.uint64(0)
        for k in range(rest):
            word |= np.uint64(data[position + k]) << np.uint64(8 * k)
        state = (state ^ word) * _MULTIPLIER
        state ^= state >> _SHIFT
    return state
