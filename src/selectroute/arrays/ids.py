"""Ids of a snapshot's subscriptions: ordinal → id, and back.

Each segment has a part, which is never copied into another array: two snapshots that differ in a small delta
share all other parts, in memory or mapped from files. The lookup of an id needs a sorted array of hashes,
made at the first lookup in a part and kept as long as its segment.
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
from selectroute.arrays.rows import distinct_values
from selectroute.arrays.segment import Segment
from selectroute.arrays.tables import Array
from selectroute.selector.arguments import check_argument

_BLOCK = 1 << 16
"""Ids hashed at once, which bounds the memory."""


class Ids:
    """Ids of all ordinals: ``ids[ordinal].as_py()``, or ``ids.take(ordinals)``.

    Ordinals of removed subscriptions still have their ids, see `Snapshot.dead`.
    """

    def __init__(self, parts: Iterable[SegmentIds]) -> None:
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
        """Return all ids as one array: a copy if there are several segments."""
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
        # Group the ordinals by segment, then restore the order of the argument.
        owner = np.searchsorted(self._firsts, wanted, side="right") - 1
        order = np.argsort(owner, kind="stable")
        grouped = wanted[order]
        bounds = np.searchsorted(owner[order], np.arange(len(self._parts) + 1))
        taken = [
            part.strings.take(pa.array(grouped[start:end] - first))
            for part, first, start, end in zip(
                self._parts, self._firsts[:-1], bounds[:-1], bounds[1:], strict=True
            )
            if start < end
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays([pa.array([], pa.string()), *taken]).take(pa.array(back))

    def find(self, ids: Iterable[str]) -> Array:
        """Return the newest ordinal of each id, -1 for an unknown id; int64[ids].

        O(log of all ids) each, after O(all ids) at the first lookup in a segment.
        """
        ids = list(ids)
        for id in ids:
            check_argument(id, str, "an id", "a str such as 'heavy'")
        # Ids are ASCII, and pyarrow would reject half of a surrogate pair.
        wanted = pa.array([id if id.isascii() else "" for id in ids], pa.string())
        ordinals = np.full(len(wanted), -1, np.int64)
        hashes = string_hashes(wanted)
        for part, first in zip(self._parts, self._firsts[:-1], strict=True):
            rows = part.find(wanted, hashes)
            ordinals = np.where(rows >= 0, first + rows, ordinals)
        return ordinals

    def alike(self, other: Ids) -> Array:
        """Return the ordinals of all ids that others have, too, and perhaps of a few more, whose hashes are
        equal; int64[found], ascending. O(ids of both), where looking for each id would miss the caches.
        """
        ordinals = [np.zeros(0, np.int64)]
        for part, first in zip(self._parts, self._firsts[:-1], strict=True):
            ordinals += [first + part.alike(other_part) for other_part in other._parts]
        return distinct_values(np.concatenate(ordinals))


class SegmentIds:
    """Ids of one segment's subscriptions, string[rows], each once."""

    def __init__(self, strings: pa.Array) -> None:
        self.strings = strings

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        """Sorted hashes, and the row of each."""
        hashes = string_hashes(self.strings)
        order = np.argsort(hashes).astype(np.int32)
        return hashes[order], order

    def find(self, wanted: pa.Array, hashes: Array) -> Array:
        """Return the row of each wanted id, -1 for an unknown id; int64[wanted]."""
        known, order = self._sorted
        result = np.full(len(wanted), -1, np.int64)
        place = np.searchsorted(known, hashes)
        waiting = np.arange(len(wanted))
        while len(waiting):  # once, and again for ids with a hash collision
            within = place[waiting] < len(known)
            waiting = waiting[within]
            waiting = waiting[known[place[waiting]] == hashes[waiting]]
            if not len(waiting):
                break
            rows = order[place[waiting]]
            same = pc.equal(self.strings.take(pa.array(rows)), wanted.take(pa.array(waiting)))
            same = same.to_numpy(zero_copy_only=False)
            result[waiting[same]] = rows[same]
            waiting = waiting[~same]
            place[waiting] += 1
        return result

    def alike(self, other: SegmentIds) -> Array:
        """Return the rows whose hashes another part has, too; int64[found]. O(rows of both)."""
        (hashes, order), (known, _) = self._sorted, other._sorted
        if not len(known):
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        rows: Array = order[known[place] == hashes].astype(np.int64)
        return rows


_parts: WeakKeyDictionary[Segment, SegmentIds] = WeakKeyDictionary()


def part_of(segment: Segment, strings: pa.Array) -> SegmentIds:
    """Return the part of a segment's ids, shared with its hashes by every snapshot that has the segment."""
    part = _parts.get(segment)
    if part is None or memory_of(part.strings) != memory_of(strings):
        part = _parts[segment] = SegmentIds(strings)
    return part


def memory_of(array: pa.Array) -> tuple[int, int, int | None]:
    """Return offset, length and address of an array: equal for two arrays only if they are the same."""
    buffer = array.buffers()[1]
    return array.offset, len(array), None if buffer is None else buffer.address


def string_hashes(strings: pa.Array) -> Array:
    """Return the uint64 hashes of strings."""
    blocks = [np.zeros(0, np.uint64)]
    for start in range(0, len(strings), _BLOCK):
        # Concatenating copies a slice, and its offsets then begin at 0.
        block = pa.concat_arrays([strings[start : start + _BLOCK]]).cast(pa.large_string())
        _, offsets, data = block.buffers()
        ends = np.frombuffer(offsets, np.int64, len(block) + 1)
        text = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        blocks.append(hash_strings(text, ends, np.zeros(len(block), np.uint8)))
    return np.concatenate(blocks)
