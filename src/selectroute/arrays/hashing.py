"""Hashes stored in a snapshot, which the kernel computes of messages too; distinct values of large arrays."""

from __future__ import annotations

import numpy as np

from selectroute.arrays.tables import Array

CODE_MULTIPLIER = 0x9E3779B1
"""Multiplier that spreads the codes of a posting over its slots."""

# The string hash: 64-bit words, multiplied and folded; the kernel computes the same over the bytes of a
# column.
HASH_SEED = 0x9E3779B97F4A7C15
HASH_MULTIPLIER = 0xD6E8FEB86659FD93
HASH_SHIFT = 32
HASH_TAG_SHIFT = 40  # above every length

_BLOCK = 1 << 14
"""Strings hashed at a time: their words and states stay in the caches."""


def hash_strings(data: Array, offsets: Array, tags: Array) -> Array:
    """Return the uint64 hashes of the strings ``data[offsets[i] : offsets[i + 1]]``; a few array operations
    for each word of the longest. The tag distinguishes byte strings from strings.

    Each word of eight bytes (little-endian, the last one padded with zeros) is xored in, multiplied, folded.
    """
    padded = np.concatenate((data, np.zeros(8, np.uint8)))
    # Every eight bytes that follow each other, so that a word is one element wherever it begins.
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    hashes = np.empty(len(tags), np.uint64)
    for start in range(0, len(tags), _BLOCK):
        block = slice(start, start + _BLOCK)
        hashes[block] = _hashed(words, offsets[start : start + _BLOCK + 1], tags[block])
    return hashes


def _hashed(words: Array, offsets: Array, tags: Array) -> Array:
    lengths = np.diff(offsets)
    multiplier, shift = np.uint64(HASH_MULTIPLIER), np.uint64(HASH_SHIFT)
    tagged = lengths.astype(np.uint64) | tags.astype(np.uint64) << np.uint64(HASH_TAG_SHIFT)
    state = (np.uint64(HASH_SEED) ^ tagged) * multiplier
    state ^= state >> shift
    for done in range(0, int(lengths.max(initial=0)), 8):
        rows = np.flatnonzero(lengths > done)
        missing = np.maximum(done + 8 - lengths[rows], 0).astype(np.uint64)
        word = words[offsets[rows] + done] & ~np.uint64(0) >> np.uint64(8) * missing
        mixed = (state[rows] ^ word) * multiplier
        state[rows] = mixed ^ mixed >> shift
    return state
