"""Kernel on a batch of one row, whose memory is used again for each message.

A segment, the row and what the kernel needs are described once by their addresses (see ``described``).
Compiled code writes a message's values to the row, encodes them, runs the kernel, copies the ordinals of the
matches, and clears the row.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from selectroute.arrays import tables as t
from selectroute.arrays.segment import Segment
from selectroute.arrays.state import SnapshotState
from selectroute.match.compiled import compiled
from selectroute.match.described import MATRIX, READONLY, WORD, Described, Kind, kinds_of
from selectroute.match.encoding.blocks import WORDS
from selectroute.match.encoding.encode import encode, find_prefixes, hash_strings
from selectroute.match.encoding.lanes import Columns
from selectroute.match.encoding.short_strings import ShortStrings, short_strings
from selectroute.match.encoding.verdicts import no_verdicts
from selectroute.match.kernel.kernel import collect

_ORDINALS = 256
"""Matches for which there is room at first."""


class _Row(NamedTuple):
    """Arrays of a segment for the matching of one message."""

    values: Annotated[t.Int64, MATRIX]  # [values, 3]: attribute of the snapshot << 8 | tag, bits or place in
    # `data`, bytes
    data: Annotated[t.UInt8, READONLY]  # the strings
    places: t.Int32  # [attributes of the snapshot], the attribute of the segment, or -1
    coded: t.Bool  # [attributes], whether values are looked up among the constants
    null_keyed: t.Int64  # [n], attributes with NULL among their keys
    prefixing: t.Int64  # [n], attributes with prefixes
    anchors: t.Int64  # [attributes], room for `Columns.anchors`
    hashes: t.UInt64  # [1]
    sources: Annotated[t.Int64, MATRIX]  # none: the row is encoded here
    short_first: t.Int64  # this and the next two: see `ShortStrings`
    short_slot: t.UInt64
    short_multiplier: t.UInt16
    leaf_groups: Annotated[t.Int64, MATRIX]  # see `Segment.leaf_groups`
    terms: t.Int32  # see `Segment.scan_terms`
    single: Annotated[t.Int32, READONLY]  # this and the next two: see `Segment.single_terms`
    always: Annotated[t.UInt8, READONLY]
    never: Annotated[t.UInt8, READONLY]
    tags: t.Int8  # this and the next four: the stack of `judge`
    bits: t.Int64
    reals: t.Float64
    sizes: t.Int32
    memo: t.Int64
    seen: t.Int64  # [subscriptions], the message that last matched a subscription of several clauses
    dead: t.UInt64  # see `Snapshot.dead_entries`; empty without any
    counters: t.Int64  # [3], see `kernel`
    ordinals: t.Int32  # the result


# The types are those of a batch, for which the kernel is compiled.
_TABLES = Described(
    t.Tables,
    {name: Kind(dtype, len(t.SHAPES.get(name, (-1,))), readonly=True) for name, dtype in t.DTYPES.items()},
)
_COLUMNS, _ROW = (Described(group, kinds_of(group)) for group in (Columns, _Row))
_ROW_WORDS = _TABLES.words + _COLUMNS.words
_columns_from, _row_from = WORD * _TABLES.words, WORD * _ROW_WORDS
_tables_at, _columns_at, _row_at = _TABLES.reader(), _COLUMNS.reader(), _ROW.reader()


@compiled
def _match(address, count, first, shared_terms, mark):
    """Match `count` values with the segment described at an address: write the ordinals of the matches, which
    count from `first`, and return their number; or its negative, if there is not enough room. ``mark`` is
    greater than in all earlier calls.
    """
    tables = _tables_at(address)
    given, row = _columns_at(address + _columns_from), _row_at(address + _row_from)
    short = ShortStrings(row.short_first, row.short_slot, row.short_multiplier)
    anchored = 0
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number < 0:
            continue
        given.tags[number, 0] = row.values[value, 0] & 0xFF
        given.bits[number, 0] = row.values[value, 1]
        given.sizes[number, 0] = row.values[value, 2]
        if row.coded[number]:
            tags, bits, sizes = given.tags[number], given.bits[number], given.sizes[number]
            hash_strings(tags, bits, sizes, row.data, row.hashes)
            encode(number, tags, bits, sizes, row.hashes, row.data, tables, short, given.codes[number])
        if tables.code_first[number + 1] > tables.code_first[number]:
            row.anchors[anchored] = number
            anchored += 1
    for number in row.null_keyed:
        if given.tags[number, 0] == t.NULL:
            row.anchors[anchored] = number
            anchored += 1
    for place in range(len(row.prefixing)):
        number = row.prefixing[place]
        find_prefixes(
            given.tags[number], given.bits[number], given.sizes[number], row.data, tables.prefix_key,
            tables.prefix_parent, tables.prefix_byte_first, tables.prefix_bytes, tables.prefix_first[number],
            tables.prefix_first[number + 1], given.prefixed[place],
        )  # fmt: skip
    columns = Columns(
        given.tags, given.codes, given.bits, given.reals, given.sizes, given.text, given.invalid_names,
        given.prefixed, row.anchors[:anchored], given.strings, given.patterns, given.pattern, given.cells,
    )  # fmt: skip
    # Not the number 1: for a literal numba would compile the kernel once more.
    rows = len(given.invalid_names)
    runs, offsets = collect(
        rows, row.sources, short, row.leaf_groups, tables, columns, row.terms, shared_terms,
        (row.single, row.always, row.never),
        (row.tags, row.bits, row.reals, row.sizes, row.memo), row.seen, mark, row.counters,
    )  # fmt: skip
    for value in range(count):
        number = np.int64(row.places[row.values[value, 0] >> 8])
        if number >= 0:
            given.tags[number, 0], given.codes[number, 0] = t.NULL, t.CODE_NULL
    if offsets[1] > len(row.ordinals):
        return -offsets[1]
    found, shift = 0, np.int32(first)
    for run in range(len(runs)):
        for entry in range(runs[run, 0], runs[run, 1]):
            if len(row.dead) == 0 or not row.dead[entry >> 6] >> np.uint64(entry & 63) & np.uint64(1):
                row.ordinals[found] = tables.entry_ordinal[entry] + shift
                found += 1
    return found


class Prepared:
    """Segment with its arrays for one message, and their description."""

    def __init__(
        self, snapshot: SnapshotState, place: int, values: t.Array, text: t.Array, bad: t.Array
    ) -> None:
        segment = snapshot.segments[place]
        count = len(segment.attributes)
        dead = snapshot.dead_entries[place]
        row = _row(snapshot, segment, values, text, np.zeros(0, np.uint64) if dead is None else dead)
        bits = np.zeros((count, 1), np.int64)
        columns = Columns(
            tags=np.zeros((count, 1), np.int8),
            codes=np.zeros((count, 1), np.int32),
            bits=bits,
            reals=bits.view(np.float64),
            sizes=np.zeros((count, 1), np.int32),
            text=text,
            invalid_names=bad,
            prefixed=np.zeros((len(row.prefixing), 1), np.int32),
            anchors=row.anchors,
            **no_verdicts(segment)._asdict(),
        )
        self._first, self._shared_terms = int(snapshot.firsts[place]), segment.scan_terms[1]
        self._ordinals = row.ordinals
        self._mark = 0
        self._kept = (segment, columns, row)  # the description has only addresses
        self._words = np.array(
            [*_TABLES.describe(segment.tables), *_COLUMNS.describe(columns), *_ROW.describe(row)],
            np.int64,
        )
        self._address = int(self._words.ctypes.data)

    def match(self, count: int) -> t.Array:
        """Return the ordinals of the matches of `count` values, int32."""
        while True:
            self._mark += 1
            found = _match(self._address, count, self._first, self._shared_terms, self._mark)
            if found >= 0:
                return self._ordinals[:found].copy()
            self._ordinals = np.empty(-2 * found, np.int32)
            self._place(_ROW_WORDS + _ROW.places["ordinals"], self._ordinals)

    def place_text(self, text: t.Array) -> None:
        """Use other memory for the text."""
        self._place(_TABLES.words + _COLUMNS.places["text"], text)
        self._place(_ROW_WORDS + _ROW.places["data"], text)

    def _place(self, word: int, array: t.Array) -> None:
        self._words[word : word + 2] = array.ctypes.data, len(array)


def _row(snapshot: SnapshotState, segment: Segment, values: t.Array, text: t.Array, dead: t.Array) -> _Row:
    tables, count = segment.tables, len(segment.attributes)
    numbers = {attribute.name: number for number, attribute in enumerate(segment.attributes)}
    depth = max(segment.depth, 2)
    bits = np.zeros(depth, np.int64)
    keyed = np.diff(tables.code_first) > 0
    single, always, never = segment.single_terms
    short = short_strings(segment)
    return _Row(
        values=values,
        data=text,
        places=np.array([numbers.get(one.name, -1) for one in snapshot.attributes], np.int32),
        coded=np.array([one.codes for one in segment.attributes], np.bool_),
        null_keyed=np.flatnonzero(keyed & (tables.code_low == t.CODE_NULL)),
        prefixing=np.flatnonzero(np.diff(tables.prefix_first) > 0),
        anchors=np.zeros(count, np.int64),
        hashes=np.zeros(1, np.uint64),
        sources=np.zeros((0, WORDS), np.int64),
        short_first=short.first,
        short_slot=short.slot,
        short_multiplier=short.multiplier,
        leaf_groups=segment.leaf_groups,
        terms=segment.scan_terms[0],
        single=single,
        always=always,
        never=never,
        tags=np.zeros(depth, np.int8),
        bits=bits,
        reals=bits.view(np.float64),
        sizes=np.zeros(depth, np.int32),
        memo=np.zeros(len(tables.step_first), np.int64),
        seen=np.zeros(segment.rows, np.int64),
        dead=dead,
        counters=np.zeros(3, np.int64),
        ordinals=np.empty(_ORDINALS, np.int32),
    )
