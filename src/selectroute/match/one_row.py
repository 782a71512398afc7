"""Kernel on a batch of one row, whose memory is used again for each message.

A segment, the row and what the kernel needs are described once by their addresses (see ``array_structs``).
Compiled code writes a message's values to the row, encodes them, runs the kernel, copies the ordinals of the
matches, and clears the row.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.state import SnapshotState
from selectroute.match.array_structs import (
    READONLY,
    WORD,
    ArrayStruct,
    Columns,
    Description,
    Stack,
    address_of_segment,
    new_columns,
    segment_at,
    stack_of,
)
from selectroute.match.compiled import compiled
from selectroute.match.encoding.blocks import WORDS
from selectroute.match.encoding.encode import encode, find_prefixes, hash_strings
from selectroute.match.encoding.lanes import no_verdicts
from selectroute.match.kernel.kernel import collect

_ORDINALS = 256
"""Matches for which there is room at first."""


class _Row(NamedTuple):
    """Arrays for the matching of one message with a segment."""

    columns: Columns
    values: Annotated[t.Int64, t.MATRIX]  # [values, 3]: attribute of the snapshot << 8 | tag, bits or place
    # in `data`, bytes
    data: Annotated[t.UInt8, READONLY]  # the strings
    places: t.Int32  # [attributes of the snapshot], the attribute of the segment, or -1
    coded: t.Bool  # [attributes], whether values are looked up among the constants
    null_keyed: t.Int64  # [n], attributes with NULL among their keys
    prefixing: t.Int64  # [n], attributes with prefixes
    anchors: t.Int64  # [attributes], room for the anchors of `collect`
    hashes: t.UInt64  # [1]
    sources: Annotated[t.Int64, t.MATRIX]  # none: the row is encoded here
    stack: Stack
    seen: t.Int64  # [subscriptions], the message that last matched a subscription of several clauses
    dead: t.UInt64  # see `Snapshot.dead_entries`; empty without any
    counters: t.Int64  # [3], see `kernel`
    ordinals: t.Int32  # the result


_ROW: Final = ArrayStruct(_Row)
_row_at = _ROW.reader()
_batch_from = WORD * _ROW.places["columns"]


@compiled
def _match(segment, address, count, first, mark):
    """Match `count` values with a segment, by the addresses of `SegmentArrays` and `_Row`: write the ordinals
    of the matches, which count from `first`, and return their number; or its negative, if there is not enough
    room. ``mark`` is greater than in all earlier calls.
    """
    tables, row = segment_at(segment).tables, _row_at(address)
    columns = row.columns
    anchored = 0
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number < 0:
            continue
        columns.tags[number, 0] = row.values[value, 0] & 0xFF
        columns.bits[number, 0] = row.values[value, 1]
        columns.sizes[number, 0] = row.values[value, 2]
        if row.coded[number]:
            tags, bits, sizes = columns.tags[number], columns.bits[number], columns.sizes[number]
            hash_strings(tags, bits, sizes, row.data, row.hashes)
            encode(number, tags, bits, sizes, row.hashes, row.data, segment, columns.codes[number])
        if tables.code_first[number + 1] > tables.code_first[number]:
            row.anchors[anchored] = number
            anchored += 1
    for number in row.null_keyed:
        if columns.tags[number, 0] == t.NULL:
            row.anchors[anchored] = number
            anchored += 1
    for place in range(len(row.prefixing)):
        number = row.prefixing[place]
        tags, bits, sizes = columns.tags[number], columns.bits[number], columns.sizes[number]
        find_prefixes(number, tags, bits, sizes, row.data, segment, columns.prefixed[place])
    # Not the number 1: for a literal numba would compile the kernel once more.
    rows = len(columns.invalid_names)
    runs, offsets = collect(
        rows, row.sources, row.anchors[:anchored], segment, address + _batch_from, row.stack, row.seen, mark,
        row.counters,
    )  # fmt: skip
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number >= 0:
            columns.tags[number, 0], columns.codes[number, 0] = t.NULL, t.CODE_NULL
    if offsets[1] > len(row.ordinals):
        return -offsets[1]
    matched, shift = 0, np.int32(first)
    for run in range(len(runs)):
        for entry in range(runs[run, 0], runs[run, 1]):
            if len(row.dead) == 0 or not row.dead[entry >> 6] >> np.uint64(entry & 63) & np.uint64(1):
                row.ordinals[matched] = tables.entry_ordinal[entry] + shift
                matched += 1
    return matched


class Prepared:
    """Segment with its arrays for one message, and their description."""

    def __init__(
        self, snapshot: SnapshotState, place: int, values: t.Array, text: t.Array, bad: t.Array
    ) -> None:
        segment = self._segment = snapshot.segments[place]
        tables, count = segment.tables, len(segment.attributes)
        numbers = {attribute.name: number for number, attribute in enumerate(segment.attributes)}
        keyed = np.diff(tables.code_first) > 0
        dead = snapshot.dead_entries[place]
        row = _Row(
            columns=new_columns(segment, 1, text, bad, no_verdicts(segment)),
            values=values,
            data=text,
            places=np.array([numbers.get(attribute.name, -1) for attribute in snapshot.attributes], np.int32),
            coded=np.array([attribute.codes for attribute in segment.attributes], np.bool_),
            null_keyed=np.flatnonzero(keyed & (tables.code_low == t.CODE_NULL)),
            prefixing=segment.prefixing,
            anchors=np.zeros(count, np.int64),
            hashes=np.zeros(1, np.uint64),
            sources=np.zeros((0, WORDS), np.int64),
            stack=stack_of(segment),
            seen=np.zeros(segment.rows, np.int64),
            dead=np.zeros(0, np.uint64) if dead is None else dead,
            counters=np.zeros(3, np.int64),
            ordinals=np.empty(_ORDINALS, np.int32),
        )
        self._first, self._ordinals = int(snapshot.firsts[place]), row.ordinals
        self._mark = 0
        self._row = Description(_ROW, row)
        self._addresses = address_of_segment(segment), self._row.address

    def match(self, count: int) -> t.Array:
        """Return the ordinals of the matches of `count` values, int32."""
        while True:
            self._mark += 1
            matched = _match(*self._addresses, count, self._first, self._mark)
            if matched >= 0:
                return self._ordinals[:matched].copy()
            self._ordinals = np.empty(-2 * matched, np.int32)
            self._row.place("ordinals", self._ordinals)

    def place_text(self, text: t.Array) -> None:
        """Use other memory for the text."""
        self._row.place("columns.text", text)
        self._row.place("data", text)
