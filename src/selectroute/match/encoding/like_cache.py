"""Verdicts of LIKE on the distinct strings of a batch, each computed once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.match.array_structs import Verdicts
from selectroute.match.columns.columns import Lane
from selectroute.match.encoding.encode import number_strings

FEWEST_ROWS = 16
"""Minimum rows of a batch; smaller batches are judged row by row."""

MOST_CELLS = 1 << 28
"""Maximum of patterns times strings of a segment that are remembered: 64 MiB, of which only used pages cost
memory. Further patterns are judged each time.
"""


class Strings(NamedTuple):
    """Distinct strings of a column: the number of each row's string, int32[rows], and their count."""

    numbers: t.Array
    distinct: int


def distinct_strings(lane: Lane, hashes: t.Array) -> Strings | None:
    """Number the strings of a column; None if hardly any is repeated. ``hashes`` are those of `encode`."""
    if lane.rows is not None:
        numbers, count = lane.rows.astype(np.int32), len(lane.tags)
    else:
        numbers = np.empty(len(lane.tags), np.int32)
        count = number_strings(lane.tags, lane.bits, lane.sizes, hashes, lane.data, numbers)
    return Strings(numbers, count) if count >= 0 and 4 * count <= 3 * len(numbers) else None


def no_verdicts(segment: Segment) -> Verdicts:
    """Return verdicts without cells."""
    patterns = np.zeros((len(segment.attributes), 3), np.int64)
    return Verdicts(np.zeros((0, 0), np.int32), patterns, np.zeros(0, np.int32), np.zeros(0, np.uint8))


def verdicts_of(segment: Segment, columns: dict[int, Strings], rows: int) -> Verdicts:
    """Return cells for the patterns of these attributes' strings. Zeroed pages are free until used."""
    pattern, counts = segment.like_patterns
    patterns = np.zeros((len(segment.attributes), 3), np.int64)
    strings = np.zeros((len(segment.attributes), rows), np.int32)
    cells = 0
    for number, column in columns.items():
        known = min(int(counts[number]), (MOST_CELLS - cells) // max(column.distinct, 1))
        patterns[number] = cells, column.distinct, known
        strings[number] = column.numbers
        cells += known * column.distinct
    return Verdicts(strings, patterns, pattern, np.zeros((cells + 3) // 4, np.uint8))
