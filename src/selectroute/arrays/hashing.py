"""Hashes stored in a snapshot when it is built; the kernel computes the same hashes of messages."""

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


def hash_strings(data: Array, offsets: Array, tags: Array) -> Array:
    """Return the uint64 hashes of the strings ``data[offsets[i] : offsets[i + 1]]``; a few array operations
    for each word of the longest. The tag distinguishes byte strings from strings.

    Each word of eight bytes (little-endian, the last one padded with zeros) is xored in, multiplied, folded.
    """
    lengths = np.diff(offsets)
    multiplier, shift = np.uint64(HASH_MULTIPLIER), np.uint64(HASH_SHIFT)
    tagged = lengths.astype(np.uint64) | tags.astype(np.uint64) << np.uint64(HASH_TAG_SHIFT)
    state = (np.uint64(HASH_SEED) ^ tagged) * multiplier
    state ^= state >> shift
    padded = np.concatenate((data, np.zeros(8, np.uint8)))
    words = (lengths + 7) // 8
    places = np.arange(8, dtype=np.int64)
    for word in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > word)
        start = offsets[rows] + 8 * word
        chunk = padded[np.minimum(start[:, None] + places, len(padded) - 1)]
        chunk[places >= (lengths[rows] - 8 * word)[:, None]] = 0
        state[rows] = (state[rows] ^ chunk.view("<u8")[:, 0]) * multiplier
        state[rows] ^= state[rows] >> shift
    return state
