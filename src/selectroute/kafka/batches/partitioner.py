"""Partitions as Kafka's own producers choose them: by the murmur2 hash of a record's key.

``BuiltInPartitioner.partitionForKey`` of the Java client; librdkafka does the same with ``murmur2_random``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.match.compiled import compiled, inlined
from selectroute.match.memory import byte_at, long_at

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)


def key_hashes(keys: Any) -> Any:
    """Return the hash of each key from 0 to 2^31 - 1, int32[rows], NULL for no key. Modulo a topic's number
    of partitions it is the key's partition. O(bytes of keys).

    Args:
        keys: binary or large binary array.
    """
    keys = pc.cast(keys, pa.large_binary())
    found = np.empty(len(keys), np.int32)
    if len(keys):
        _, bounds, content = keys.buffers()
        # Addresses, because numba compiles anew for bytes that can be written and for bytes that cannot.
        _hash(bounds.address + 8 * keys.offset, content.address if content else 0, found)
    return pa.array(found, mask=np.asarray(pc.is_null(keys)))


@compiled
def _hash(bounds: int, content: int, found: Any) -> None:
    for row in range(len(found)):
        start, stop = long_at(bounds, row), long_at(bounds, row + 1)
        found[row] = np.int32(_murmur2(content + start, stop - start) & np.uint32(0x7FFFFFFF))


@inlined
def _murmur2(at: int, size: int) -> np.uint32:
    """Return ``org.apache.kafka.common.utils.Utils.murmur2`` as an unsigned number."""
    state = _SEED ^ np.uint32(size)
    stop = at + size
    while at + 4 <= stop:
        word = np.uint32(0)
        for k in range(4):
            word |= np.uint32(byte_at(at, k)) << np.uint32(8 * k)
        word = np.uint32(word * _FACTOR)
        word = np.uint32((word ^ word >> np.uint32(24)) * _FACTOR)
        state = np.uint32(state * _FACTOR) ^ word
        at += 4
    if at < stop:
        for k in range(stop - at):
            state ^= np.uint32(byte_at(at, k)) << np.uint32(8 * k)
        state = np.uint32(state * _FACTOR)
    state = np.uint32((state ^ state >> np.uint32(13)) * _FACTOR)
    return state ^ state >> np.uint32(15)
