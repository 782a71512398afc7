"""Input of the kernel: columns of a batch, unpacked once for all segments and encoded for each of them.

LIKE is judged once for each distinct string of a column.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.match.array_structs import Columns, Verdicts, address_of_segment, new_columns
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.columns import (
    Lane,
    PlainColumn,
    TopicLevels,
    bounded_topics,
    lane,
    plain_column,
)
from selectroute.match.columns.fields import field_lane
from selectroute.match.encoding.blocks import BLOCK, WORDS, source_of
from selectroute.match.encoding.encode import encode, find_prefixes, hash_strings, number_strings
from selectroute.selector.fields import PREFIX
from selectroute.topics.filter import TOPIC, derivation

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


class AttributeLanes:
    """Lanes of a batch by the names of attributes: columns, derived fields, levels of the topic.

    Each is unpacked once, for all snapshots that read it.
    """

    def __init__(self, batch: ColumnBatch) -> None:
        self.rows = batch.rows
        self._batch = batch
        self._topics: TopicLevels | None = None
        self._columns: dict[str, Lane | PlainColumn | None] = {}
        self._lanes: dict[str, Lane | None] = {}

    def of(self, name: str) -> Lane | None:
        """Return the lane of an attribute, or None if no message has the attribute. O(rows).

        Raises `ColumnTypeError` for two columns of one name.
        """
        if name not in self._lanes:
            column = self.column_of(name)
            self._lanes[name] = column.unpacked() if isinstance(column, PlainColumn) else column
        return self._lanes[name]

    def column_of(self, name: str) -> Lane | PlainColumn | None:
        """Return the column of an attribute: as it is if it is plain, otherwise as a lane."""
        if name not in self._columns:
            self._columns[name] = self._column(name)
        return self._columns[name]

    @cached_property
    def invalid_names(self) -> t.Array:
        """See `ColumnBatch.invalid_names`."""
        return self._batch.invalid_names()

    def some(self, rows: t.Array) -> SomeLanes:
        """Return the lanes of these rows of the batch."""
        return SomeLanes(self, rows)

    def _column(self, name: str) -> Lane | PlainColumn | None:
        derived = derivation(name)
        if derived is None and name.startswith(PREFIX) and name != TOPIC:
            return field_lane(name.removeprefix(PREFIX), self._batch)
        column = self._batch.column(name if derived is None else TOPIC)
        if column is None:
            return None
        if derived is not None:
            self._topics = self._topics or TopicLevels(bounded_topics(column))
            return self._topics.lane(derived)
        if name == TOPIC:
            column = bounded_topics(column)
        if column.null_count == self._batch.rows:
            return None
        return plain_column(name, column) or lane(name, column)


class SomeLanes:
    """Lanes of some rows of a batch, which share its strings; see `AttributeLanes`."""

    def __init__(self, whole: AttributeLanes, rows: t.Array) -> None:
        self.rows = len(rows)
        self._whole = whole
        self._numbers = rows

    def of(self, name: str) -> Lane | None:
        """Return the lane of an attribute. O(rows)."""
        column = self._whole.of(name)
        return None if column is None else column.some(self._numbers)

    def column_of(self, name: str) -> Lane | None:
        """Return the lane of an attribute: chosen rows are not a plain column."""
        return self.of(name)

    @property
    def invalid_names(self) -> t.Array:
        """See `ColumnBatch.invalid_names`."""
        return self._whole.invalid_names[self._numbers]


class Lanes:
    """Columns that a snapshot reads, unpacked once for all segments, and their common text. Columns of NULLs
    are left out; with many kinds of messages these are most.
    """

    def __init__(self, snapshot: SnapshotState, lanes: AttributeLanes | SomeLanes) -> None:
        self.rows = lanes.rows
        self.lanes: dict[str, Lane | PlainColumn] = {}
        self.hashes: dict[str, t.Array] = {}
        """Hashes of the strings of each lane whose codes or distinct strings are needed."""
        self.places: dict[str, int] = {}
        """Place of the strings of each lane with values in `text`."""
        self.strings: dict[str, Strings | None] = {}
        """Distinct strings of the lanes that LIKE reads."""
        self._attributes = lanes
        texts: list[t.Array] = []
        length = 0
        for attribute in snapshot.attributes:
            name = attribute.name
            column = lanes.column_of(name)
            if column is None:
                continue
            self.lanes[name] = column
            if attribute.values:
                self.places[name] = length
                data = column.data
                if len(data):
                    texts.append(data)
                    length += len(data)
        self.text = np.concatenate(texts) if length else np.zeros(0, np.uint8)

    def sources(self, segment: Segment) -> t.Array:
        """Return the columns that a segment reads for `encode_block`, int64[attributes, words], or int64[0,
        words] if all rows must be encoded at once: for the scan list, prefixes, verdicts of LIKE, distinct
        values.
        """
        tables, count = segment.tables, len(segment.attributes)
        sources = np.zeros((count, WORDS), np.int64)
        whole = tables.group_first[1] or len(tables.prefix_parent) or segment.crowded_patterns
        for number, attribute in enumerate(segment.attributes):
            column = self.lanes.get(attribute.name)
            if whole or (isinstance(column, Lane) and column.rows is not None):
                return sources[:0]
            if column is not None:
                place = self.places.get(attribute.name, 0)
                sources[number] = source_of(column, place, attribute.codes, attribute.values)
        return sources

    def block(self, segment: Segment, invalid_names: t.Array) -> Columns:
        """Return the columns for `encode_block`, with room for a block of rows."""
        rows = min(self.rows, BLOCK)
        return new_columns(segment, rows, self.text, invalid_names, no_verdicts(segment))

    def columns(self, segment: Segment, invalid_names: t.Array) -> Columns:
        """Return the columns that a segment reads, encoded by its constants."""
        columns = new_columns(segment, self.rows, self.text, invalid_names, self._verdicts(segment))
        address = address_of_segment(segment)
        prefixing = segment.prefixing.tolist()
        for number, attribute in enumerate(segment.attributes):
            column = self._lane(attribute.name)
            if column is None:
                continue
            columns.tags[number] = column.spread(column.tags)
            if attribute.codes:
                codes = columns.codes[number]
                distinct = codes if column.rows is None else np.empty(len(column.tags), np.int32)
                hashes = self._hashes(attribute.name)
                encode(number, column.tags, column.bits, column.sizes, hashes, column.data, address, distinct)
                if column.rows is not None:
                    codes[:] = distinct[column.rows]
            if number in prefixing:
                longest = np.empty(len(column.tags), np.int32)
                find_prefixes(number, column.tags, column.bits, column.sizes, column.data, address, longest)
                columns.prefixed[prefixing.index(number)] = column.spread(longest)
            if attribute.values:
                columns.bits[number] = column.spread(self._placed(attribute.name, column))
                if len(column.data):
                    columns.sizes[number] = column.spread(column.sizes)
        return columns

    def anchors(self, segment: Segment) -> t.Array:
        """Return the attributes of the batch whose codes lead to leaves, int64[n]."""
        tables = segment.tables
        present = np.array([attribute.name in self.lanes for attribute in segment.attributes], np.bool_)
        # Without a column all values are NULL, which is a key of few attributes.
        keyed = np.diff(tables.code_first) > 0
        return np.flatnonzero(keyed & (present | (tables.code_low == t.CODE_NULL)))

    def _lane(self, name: str) -> Lane | None:
        """Return the lane of a column, unpacked once."""
        column = self.lanes.get(name)
        if not isinstance(column, PlainColumn):
            return column
        unpacked = self._attributes.of(name)
        assert unpacked is not None
        self.lanes[name] = unpacked
        return unpacked

    def _placed(self, name: str, lane: Lane) -> t.Array:
        """Return a lane's bits, with offsets of strings in `text`."""
        place = self.places[name]
        if not place or not len(lane.data):
            return lane.bits
        return np.where((lane.tags != t.NULL) & (lane.tags < t.STRING), lane.bits, lane.bits + place)

    def _verdicts(self, segment: Segment) -> Verdicts:
        """Return the memory for verdicts of LIKE on repeated strings."""
        if self.rows < FEWEST_ROWS:
            return no_verdicts(segment)
        strings_of = {
            number: self._strings(segment.attributes[number].name) for number in segment.crowded_patterns
        }
        known = {number: strings for number, strings in strings_of.items() if strings is not None}
        return verdicts_of(segment, known, self.rows) if known else no_verdicts(segment)

    def _strings(self, name: str) -> Strings | None:
        column = self._lane(name)
        if column is None:
            return None
        if name not in self.strings:
            self.strings[name] = distinct_strings(column, self._hashes(name))
        return self.strings[name]

    def _hashes(self, name: str) -> t.Array:
        if name not in self.hashes:
            column = self._lane(name)
            assert column is not None
            hashes = self.hashes[name] = np.empty(len(column.tags), np.uint64)
            hash_strings(column.tags, column.bits, column.sizes, column.data, hashes)
        return self.hashes[name]
