"""Merging of the matches of several partitions: the lists of a message become one, with each ordinal once.

An ordinal of the whole registry is *marked* if its subscription may be in several partitions: it is written
as its complement, ``~ordinal``. Only marked ordinals are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_pool import take_array
from selectroute.match.compiled import compiled, compiling_alone
from selectroute.match.memory import address_of, int_at

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_UPPER: Final = np.uint64(32)

SAME: Final = np.zeros(0, np.int32)
"""`Lists.whole` of ordinals that are already those of the whole registry."""
SAME.flags.writeable = False


class Lists(NamedTuple):
    """Matches of some messages of a batch in one partition: message ``numbers[i]`` of the batch has
    ``ordinals[offsets[i] : offsets[i + 1]]``, and ``whole[ordinal]`` is the ordinal in the whole registry.
    """

    numbers: t.Array  # int64[lists], distinct
    offsets: t.Array  # int64[lists + 1]
    ordinals: t.Array  # int32[offsets[-1]]
    whole: t.Array = SAME  # int32[rows of the partition], some of them marked


def merge(rows: int, parts: Sequence[Lists], marked: bool) -> tuple[t.Array, t.Array]:
    """Return the matches of each of ``rows`` messages: offsets int64[rows + 1] and ordinals int32[total], in
    the order of the parts. ``marked`` is whether any ordinal may be marked. O(lists + matches).
    """
    offsets, lists = np.zeros(rows + 1, np.int64), np.zeros(rows, np.int64)
    for part in parts:
        lengths = np.diff(part.offsets)
        offsets[part.numbers + 1] += lengths
        lists[part.numbers] += lengths > 0
    np.cumsum(offsets, out=offsets)
    ordinals = take_array(int(offsets[-1]))
    places = offsets[:-1].copy()
    with compiling_alone("the merge of partitions"):
        for part in parts:
            numbers, own, found, whole = map(_read_only, part)
            _place(numbers, own, found, whole, places, ordinals)
        if marked:
            ordinals = ordinals[: _distinct(lists, offsets, ordinals)]
    return offsets, ordinals


def _read_only(array: t.Array) -> t.Array:
    """Return a view as Arrow's arrays are: numba compiles a function for each kind of its arguments."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def _place(
    numbers: t.Array, offsets: t.Array, ordinals: t.Array, whole: t.Array, places: t.Array, target: t.Array
) -> None:
    """Append lists to those of their messages, which end at `places`."""
    # By address and unsigned: for a signed index numba tests each time whether it counts from the end.
    same, table = len(whole) == 0, address_of(whole)
    for i in range(len(numbers)):
        number, first = np.uint64(numbers[i]), np.uint64(offsets[i])
        at, count = np.uint64(places[number]), np.uint64(offsets[i + 1]) - first
        if same:
            for k in range(count):
                target[at + k] = ordinals[first + k]
        else:
            for k in range(count):
                target[at + k] = int_at(table, ordinals[first + k])
        places[number] = at + count


@compiled
def _distinct(lists: t.Array, offsets: t.Array, ordinals: t.Array) -> int:
    """Leave the first of a message's equal marked ordinals, without its mark, and move the others up, in
    place; return the number left. A message with one of the ``lists`` has no equal ones.
    """
    most = 0
    for row in range(len(lists)):
        if lists[row] < 2:
            continue
        count = 0
        for k in range(offsets[row], offsets[row + 1]):
            count += ordinals[k] < 0
        most = max(most, count)
    size = 2
    while size < 2 * most:
        size *= 2
    # A set of the message's marked ordinals. A slot with another message's number in its upper half is free.
    slots = np.zeros(size, np.int64)
    mask = np.uint64(size - 1)
    at = start = 0
    for row in range(len(lists)):
        stop = offsets[row + 1]
        number = np.int64(row + 1) << 32
        for k in range(start, stop):
            ordinal = ordinals[k]
            if ordinal < 0:
                ordinal = ~ordinal
                if lists[row] > 1:
                    entry = number | np.int64(ordinal)
                    slot = (np.uint64(ordinal) * _MULTIPLIER) >> _UPPER & mask
                    while slots[slot] >= number and slots[slot] != entry:
                        slot = slot + np.uint64(1) & mask
                    if slots[slot] == entry:
                        continue
                    slots[slot] = entry
            ordinals[at] = ordinal
            at += 1
        start = stop
        offsets[row + 1] = at
    return at
