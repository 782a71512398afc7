"""Values to codes: each row's value is looked up among the constants of its attribute."""

from __future__ import annotations

import numpy as np

from selectroute.clauses.access import LARGE_FLOAT
from selectroute.index import tables as t
from selectroute.index.dictionary import HASH_MULTIPLIER, HASH_SEED, HASH_SHIFT, HASH_TAG_SHIFT
from selectroute.match.compiled import compiled, inlined

_SEED, _MULTIPLIER, _SHIFT = np.uint64(HASH_SEED), np.uint64(HASH_MULTIPLIER), np.uint64(HASH_SHIFT)
_TAG_SHIFT = np.uint64(HASH_TAG_SHIFT)


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
    firsts, constants = tables.string_first, tables.string_bytes
    string_code, string_tag = tables.string_code, tables.string_tag
    mask = np.uint64(len(slots) - 1)
    for i in range(len(tags)):
        tag = tags[i]
        if tag >= t.STRING:
            # The search stands here and not in a function: numba would count references to the arrays at
            # every call, which takes four times as long as the search.
            code = np.int32(t.ABSENT)
            if len(slots):
                start, size = bits[i], sizes[i]
                slot = _hash(data, start, size, tag) & mask
                string = slots[slot]
                while string >= 0:
                    first = firsts[string]
                    if firsts[string + 1] - first == size and string_tag[string] == tag:
                        same = True
                        for k in range(size):
                            if data[start + k] != constants[first + k]:
                                same = False
                                break
                        if same:
                            code = string_code[string]
                            break
                    slot = (slot + np.uint64(1)) & mask
                    string = slots[slot]
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


@inlined
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


@inlined
def _hash(data, start, size, tag):
    """The hash of ``dictionary.hash_strings``, word by word."""
    state = (_SEED ^ (np.uint64(size) | np.uint64(tag) << _TAG_SHIFT)) * _MULTIPLIER
    state ^= state >> _SHIFT
    position = np.uint64(start)
    for _ in range(size >> 3):
        state = (state ^ _word(data, position)) * _MULTIPLIER
        state ^= state >> _SHIFT
        position += np.uint64(8)
    rest = size & 7
    if rest:
        state = (state ^ _tail(data, position, rest)) * _MULTIPLIER
        state ^= state >> _SHIFT
    return state


@inlined
def _tail(data, at, rest):
    """The last one to seven bytes of a string, padded with zeros to a word."""
    if at + np.uint64(8) <= np.uint64(len(data)):
        return _word(data, at) & ((np.uint64(1) << np.uint64(rest << 3)) - np.uint64(1))
    word = np.uint64(0)
    for k in range(rest):
        word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(k << 3)
    return word


@inlined
def _word(data, at):
    """Eight bytes, little-endian. The index is unsigned, so that the compiler makes one load of them."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )
