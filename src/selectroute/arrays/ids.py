"""Ids of a snapshot's subscriptions: ordinal → id, and back.

There is a part for each segment, and none of them is ever copied into another array: a snapshot that differs
from another in a small delta shares all other parts with it, in memory or mapped from files. Going back takes
a sorted array of hashes, made when a part is first asked and kept as long as its segment is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays.hashing import hash_strings
from selectroute.arrays.segment import Segment
from selectroute.arrays.tables import Array
from selectroute.selector.arguments import check_argument

_BLOCK = 1 << 16
"""Ids hashed at once: bounds the memory that this takes."""


class Ids:
    """Id of each ordinal: ``ids[ordinal].as_py()``, or ``ids.take(ordinals)``.

    Also the ids of ordinals whose subscription was removed since, see `Snapshot.dead`.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = tuple(parts)
        self._firsts = np.cumsum([0, *(len(part.strings) for part in self._parts)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, ordinal: int) -> Any:
        """Return the id as an Arrow scalar. Raises IndexError."""
        if not 0 <= ordinal < len(self):
            raise IndexError(ordinal)
        number = int(np.searchsorted(self._firsts, ordinal, side="right")) - 1
        return self._parts[number].strings[int(ordinal - self._firsts[number])]

    def __iter__(self) -> Iterator[Any]:
        return (scalar for part in self._parts for scalar in part.strings)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        whole = self.to_arrow()
        return whole if type is None else whole.cast(type)

    def to_arrow(self) -> pa.Array:
        """Return all ids as one array: the one that is there, or of several segments a copy."""
        if len(self._parts) == 1:
            return self._parts[0].strings
        return pa.concat_arrays([pa.array([], pa.string()), *(part.strings for part in self._parts)])

    def to_pylist(self) -> list[str]:
        """Return all ids as strings."""
        return [id for part in self._parts for id in part.strings.to_pylist()]

    def take(self, ordinals: Any) -> pa.Array:
        """Return the ids of these ordinals, an array of integers. O(ordinals), whatever the number of ids."""
        if len(self._parts) == 1:
            return self._parts[0].strings.take(pa.array(ordinals))
        wanted = np.asarray(ordinals)
        # Each segment's own together, then back into the order in which they were asked for.
        owner = np.searchsorted(self._firsts, wanted, side="right") - 1
        order = np.argsort(owner, kind="stable")
        places = wanted[order]
        bounds = np.searchsorted(owner[order], np.arange(len(self._parts) + 1))
        taken = [
            part.strings.take(pa.array(places[start:end] - first))
            for part, first, start, end in zip(
                self._parts, self._firsts[:-1], bounds[:-1], bounds[1:], strict=True
            )
            if start < end
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays([pa.array([], pa.string()), *taken]).take(pa.array(back))

    def find(self, ids: Iterable[str]) -> Array:
        """Return the newest ordinal of each id, -1 for one that is not there; int64[ids].

        O(log of all ids) each, after O(all ids) when a segment is first asked.
        """
        ids = list(ids)
        for id in ids:
            check_argument(id, str, "an id", "a str such as 'heavy'")
        # An id that is not ASCII is none, and pyarrow would refuse half a surrogate pair.
        wanted = pa.array([id if id.isascii() else "" for id in ids], pa.string())
        found = np.full(len(wanted), -1, np.int64)
        hashes = _hashes(wanted)
        for part, first in zip(self._parts, self._firsts[:-1], strict=True):
            places = part.find(wanted, hashes)
            found = np.where(places >= 0, first + places, found)
        return found


class Part:
    """Ids of one segment's subscriptions, string[rows], each once."""

    def __init__(self, strings: pa.Array) -> None:
        self.strings = strings

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        """Hashes in order, and whose each is."""
        hashes = _hashes(self.strings)
        order = np.argsort(hashes).astype(np.int32)
        return hashes[order], order

    def find(self, wanted: pa.Array, hashes: Array) -> Array:
        """Return the place of each wanted id, -1 if it is not there; int64[wanted]."""
        known, order = self._sorted
        result = np.full(len(wanted), -1, np.int64)
        place = np.searchsorted(known, hashes)
        waiting = np.arange(len(wanted))
        while len(waiting):  # once, and again for those whose hash another id has, too
            within = place[waiting] < len(known)
            waiting = waiting[within]
            waiting = waiting[known[place[waiting]] == hashes[waiting]]
            rows = order[place[waiting]]
            same = pc.equal(self.strings.take(pa.array(rows)), wanted.take(pa.array(waiting)))
            same = same.to_numpy(zero_copy_only=False)
            result[waiting[same]] = rows[same]
            waiting = waiting[~same]
            place[waiting] += 1
        return result


_parts: WeakKeyDictionary[Segment, Part] = WeakKeyDictionary()


def part_of(segment: Segment, strings: pa.Array) -> Part:
    """Return the part of a segment's ids, which keeps its hashes for every snapshot that has the segment."""
    part = _parts.get(segment)
    if part is None or memory_of(part.strings) != memory_of(strings):
        part = _parts[segment] = Part(strings)
    return part


def memory_of(array: pa.Array) -> tuple[int, int, int | None]:
    """Return where an array lies: what is the same for two of them is the same array."""
    buffer = array.buffers()[1]
    return array.offset, len(array), None if buffer is None else buffer.address


def _hashes(strings: pa.Array) -> Array:
    """uint64 hashes of strings."""
    blocks = [np.zeros(0, np.uint64)]
    for start in range(0, len(strings), _BLOCK):
        # Concatenating copies a slice, and its offsets then begin at 0.
        block = pa.concat_arrays([strings[start : start + _BLOCK]]).cast(pa.large_string())
        _, offsets, data = block.buffers()
        ends = np.frombuffer(offsets, np.int64, len(block) + 1)
        text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        blocks.append(hash_strings(text, ends, np.zeros(len(block), np.uint8)))
    return np.concatenate(blocks)
