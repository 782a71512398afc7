"""To which partition a message with a key goes: the one that Kafka's own producers send its key to.

That is murmur2 of the key, as Kafka's Java client has it by default, modulo the topic's partitions. Left to
the client, a record that is sent again after partitions were added goes to another partition than before,
where no consumer can know it for a repeat.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.match.compiled import compiled


def key_hashes(keys: Any) -> Any:
    """Return a number from 0 to 2^31 - 1 for each key, int32[rows], NULL where there is none: modulo the
    number of a topic's partitions it is the key's partition there. O(bytes of keys).

    Args:
        keys: binary or large binary array.
    """
    keys = pc.cast(keys, pa.large_binary())
    found = np.empty(len(keys), np.int32)
    if len(keys):
        _, bounds, data = keys.buffers()
        ends: Any = np.frombuffer(bounds, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        _hash(ends, np.frombuffer(b"" if data is None else data, np.uint8), found)
    return pa.array(found, mask=np.asarray(pc.is_null(keys)))


@compiled
def _hash(ends: Any, content: Any, found: Any) -> None:
    for row in range(len(found)):
        found[row] = np.int32(_murmur2(content, ends[row], ends[row + 1]) & np.uint32(0x7FFFFFFF))


@compiled
def _murmur2(content: Any, start: Any, stop: Any) -> Any:
    """``org.apache.kafka.common.utils.Utils.murmur2`` in unsigned numbers."""
    factor = np.uint32(0x5BD1E995)
    length = stop - start
    state = np.uint32(0x9747B28C) ^ np.uint32(length)
    place = start
    while place + 4 <= stop:
        word = (
            np.uint32(content[place])
            | np.uint32(content[place + 1]) << np.uint32(8)
            | np.uint32(content[place + 2]) << np.uint32(16)
            | np.uint32(content[place + 3]) << np.uint32(24)
        )
        word = np.uint32(word * factor)
        word = np.uint32((word ^ word >> np.uint32(24)) * factor)
        state = np.uint32(state * factor) ^ word
        place += 4
    rest = stop - place
    if rest:
        if rest == 3:
            state ^= np.uint32(content[place + 2]) << np.uint32(16)
        if rest >= 2:
            state ^= np.uint32(content[place + 1]) << np.uint32(8)
        state = np.uint32((state ^ np.uint32(content[place])) * factor)
    state = np.uint32((state ^ state >> np.uint32(13)) * factor)
    return state ^ state >> np.uint32(15)
