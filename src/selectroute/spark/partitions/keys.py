"""Hashes of access keys: the same for a constant of a selector and for a message's value that equals it.

The hashes determine partitions, and are computed from a message's columns without a dictionary: a key,
defined by `clauses.access.message_key` (a number is the nearest double, a large float has a key of a second
kind, NULL is a key, NaN has none), is hashed with the names of its attributes. The hashes are stored with the
partitions, so a change here needs a new `FORMAT`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from selectroute.arrays import tables as t
from selectroute.clauses.access import FALSE, LARGE_FLOAT, NULL, TRUE, Key
from selectroute.match.columns.columns import Lane, null_lane
from selectroute.match.compiled import compiled, inlined
from selectroute.match.encoding.lanes import AttributeLanes

FORMAT = 1
"""Version of the hashes, and of the folder format of partitions made with them."""

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_SEED, _MULTIPLIER = np.uint64(0x243F6A8885A308D3), np.uint64(0x9FB21C651E98DF25)
_SHIFT = np.uint64(29)
_NULL, _BOOLEAN, _NUMBER, _LARGE, _STRING, _BYTES = (np.uint64(kind) for kind in range(1, 7))
_LARGE_FLOAT = np.float64(LARGE_FLOAT)


@inlined
def _mix(state: np.uint64, word: np.uint64) -> np.uint64:
    state = (state ^ word) * _MULTIPLIER
    return state ^ state >> _SHIFT


@compiled
def _hash(
    tags: t.Array, bits: t.Array, reals: t.Array, sizes: t.Array, data: t.Array, hashes: Hashes, has: Flags
) -> None:
    """Write the hash of each entry of a lane, and whether the entry has a key: NaN has none."""
    for i in range(len(tags)):
        tag = tags[i]
        has[i] = True
        if tag >= t.STRING:
            state = _mix(_SEED, _STRING if tag == t.STRING else _BYTES)
            state = _mix(state, np.uint64(sizes[i]))
            word, filled = np.uint64(0), 0
            for k in range(bits[i], bits[i] + sizes[i]):
                word |= np.uint64(data[k]) << np.uint64(filled)
                filled += 8
                if filled == 64:
                    state = _mix(state, word)
                    word, filled = np.uint64(0), 0
            hashes[i] = _mix(state, word)
        elif tag == t.NULL:
            hashes[i] = _mix(_SEED, _NULL)
        elif tag == t.BOOLEAN:
            hashes[i] = _mix(_mix(_SEED, _BOOLEAN), np.uint64(bits[i] != 0))
        else:
            kind = _NUMBER
            number = np.float64(bits[i])
            if tag == t.FLOAT or tag == t.DOUBLE:
                number = reals[i]
                has[i] = number == number
                if tag == t.FLOAT and abs(number) >= _LARGE_FLOAT:
                    kind = _LARGE
            hashes[i] = _mix(_mix(_SEED, kind), _bits(number))


@inlined
def _bits(number: np.float64) -> np.uint64:
    """Return the IEEE 754 bits of a double; those of 0.0 for -0.0."""
    return np.float64(number + 0.0).view(np.uint64)


def hash_lane(lane: Lane) -> tuple[Hashes, Flags]:
    """Return the hash of each row of a lane, uint64[rows], and whether the row has a key, bool[rows]."""
    hashes, has = np.zeros(len(lane.tags), np.uint64), np.zeros(len(lane.tags), np.bool_)
    bits = np.ascontiguousarray(lane.bits)
    data = np.ascontiguousarray(lane.data)
    data.flags.writeable = False
    _hash(lane.tags, bits, bits.view(np.float64), lane.sizes, data, hashes, has)
    return lane.spread(hashes), lane.spread(has)


def hash_keys(keys: Sequence[Key]) -> Hashes:
    """Return the hash of each key of a clause. O(total size of the keys)."""
    tags, sizes = np.zeros(len(keys), np.int8), np.zeros(len(keys), np.int32)
    bits = np.zeros(len(keys), np.int64)
    reals = bits.view(np.float64)
    octets: list[bytes] = []
    end = 0
    for i, key in enumerate(keys):
        if isinstance(key, str | bytes):
            tags[i] = t.STRING if isinstance(key, str) else t.BYTES
            octets.append(key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key)
            bits[i], sizes[i] = end, len(octets[-1])
            end += len(octets[-1])
        elif isinstance(key, float):
            tags[i], reals[i] = t.DOUBLE, key
        elif len(key) == 2:
            tags[i], reals[i] = t.FLOAT, key[1]
        elif key != NULL:
            assert key in (TRUE, FALSE), key
            tags[i], bits[i] = t.BOOLEAN, key == TRUE
    data = np.frombuffer(b"".join(octets), np.uint8)
    return hash_lane(Lane(tags, bits, sizes, data))[0]


def joined(attributes: Sequence[str], hashes: Sequence[Hashes]) -> Hashes:
    """Return the hash of each combination of keys: ``hashes`` has an array for each attribute."""
    names = hashlib.blake2b(json.dumps(list(attributes)).encode(), digest_size=8).digest()
    state = np.full(len(hashes[0]), int.from_bytes(names, "little"), np.uint64)
    for column in hashes:
        state = (state ^ column) * _MULTIPLIER
        state ^= state >> _SHIFT
    return state


class MessageKeys:
    """Hashes of the messages' keys, computed once for each attribute."""

    def __init__(self, messages: AttributeLanes) -> None:
        self.rows = messages.rows
        self._lanes = messages
        self._hashed: dict[str, tuple[Hashes, Flags]] = {}

    def of(self, attributes: Sequence[str]) -> tuple[Hashes, Flags]:
        """Return the hash of each message's key of these attributes, and whether the message has one.

        Raises `ColumnTypeError`.
        """
        for name in attributes:
            if name not in self._hashed:
                lane = self._lanes.of(name) or null_lane(self.rows)
                self._hashed[name] = hash_lane(lane)
        hashed = [self._hashed[name] for name in attributes]
        has = np.logical_and.reduce([flags for _, flags in hashed])
        return joined(attributes, [hashes for hashes, _ in hashed]), has
