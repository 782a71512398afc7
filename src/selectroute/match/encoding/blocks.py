"""Encoding of a block of rows when the kernel comes to them: what it reads next is in the cache.

A column is described by the addresses of its buffers: a `PlainColumn`, whose buffers are read as they are, or
a `Lane` of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at
from selectroute.match.columns.columns import HEADER_TAGS, TAGS_OF_TYPES, Lane, lane
from selectroute.match.compiled import compiled
from selectroute.match.encoding.encode import encode_at, encode_short, hash_at
from selectroute.match.memory import byte_at, int_at, long_at
from selectroute.selector.fields import CORRELATION_IDS

LANE, INTS, LONGS, STRINGS = 1, 2, 3, 4
"""Forms of a column: a lane; values of 32 bits; of 64 bits, also doubles; strings with offsets of 32 bits."""

_FORMS = {pa.int32(): INTS, pa.int64(): LONGS, pa.float64(): LONGS, pa.string(): STRINGS}


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """Column without nulls whose values all have the type `tag`; ``form`` is that of its buffers.

    ``first`` and ``last`` are the offsets of the bytes of its strings.
    """

    name: str
    array: pa.Array
    tag: int
    form: int
    first: int
    last: int

    @property
    def values(self) -> int:
        """Address of the first value, or offset."""
        width = 8 if self.form == LONGS else 4
        return int(self.array.buffers()[1].address) + width * int(self.array.offset)

    @property
    def data(self) -> t.Array:
        """Bytes of the strings."""
        if self.form != STRINGS:
            return np.zeros(0, np.uint8)
        return np.frombuffer(self.array.buffers()[2], np.uint8)[self.first : self.last]

    def unpacked(self) -> Lane:
        """Return the lane. O(rows)."""
        return lane(self.name, self.array)


def plain_column(name: str, array: pa.Array) -> PlainColumn | None:
    """Return a column as a plain one, or None if it must be unpacked. O(1)."""
    form = _FORMS.get(array.type)
    if form is None or name.startswith("@") or name in CORRELATION_IDS or not len(array) or array.null_count:
        return None
    own = TAGS_OF_TYPES[array.type]
    tag = HEADER_TAGS.get(name, own)
    if tag != own and not (tag == t.LONG and own == t.INT):
        return None  # a header field whose values must be checked
    first = last = 0
    if form == STRINGS:
        _, offsets, data = array.buffers()
        places = np.frombuffer(offsets, np.int32)
        first, last = int(places[array.offset]), int(places[array.offset + len(array)])
        if data is None or first == last:
            return None
    return PlainColumn(name, array, tag, form, first, last)


FORM, TAG, VALUES, FIRST, SIZES, TAGS, DATA, BYTES, PLACE, READ = range(10)
"""Words of a source: form; tag of plain values; address of the values, bits or offsets; first offset; address
of a lane's sizes, and of its tags; address of the strings' bytes, how many they are, and their place in
`Columns.text`; how the attribute is read.
"""

WORDS = 10

BLOCK = 1024
"""Rows that go through the stages together: their data stays in the cache, and they share the cost of calls.
"""

CODES, BITS = 1, 2
"""How an attribute is read: its values are looked up among the constants; ranges and programs read them."""


def source_of(column: Lane | PlainColumn, place: int, codes: bool, values: bool) -> list[int]:
    """Return the words that describe a column, which the caller keeps."""
    data = column.data
    end = [data.ctypes.data, len(data), place, codes * CODES + values * BITS]
    if isinstance(column, PlainColumn):
        return [column.form, column.tag, column.values, column.first, 0, 0, *end]
    return [LANE, 0, column.bits.ctypes.data, 0, column.sizes.ctypes.data, column.tags.ctypes.data, *end]


@compiled
def encode_block(sources, block, stop, segment, batch, hashes):
    """Write the rows from `block` to `stop` to the first rows of the columns, encoded. ``segment`` and
    ``batch`` are the addresses of `SegmentArrays` and `Columns`, ``hashes`` is scratch memory.
    """
    columns = columns_at(batch)
    rows = stop - block
    for attribute in range(len(sources)):
        form = sources[attribute, FORM]
        if form == 0:
            continue  # no message has it: NULL
        tags, bits = columns.tags[attribute, :rows], columns.bits[attribute, :rows]
        sizes = columns.sizes[attribute, :rows]
        values, read = sources[attribute, VALUES], sources[attribute, READ]
        if form == LANE:
            all_sizes, all_tags = sources[attribute, SIZES], sources[attribute, TAGS]
            for row in range(rows):
                tags[row] = byte_at(all_tags, block + row)
                bits[row] = long_at(values, block + row)
                sizes[row] = int_at(all_sizes, block + row)
        else:
            if block == 0:
                tags[:] = sources[attribute, TAG]
            if form == INTS:
                for row in range(rows):
                    bits[row] = int_at(values, block + row)
            elif form == LONGS:
                for row in range(rows):
                    bits[row] = long_at(values, block + row)
        done = 0
        if form == STRINGS:
            first = sources[attribute, FIRST]
            if read & CODES and not read & BITS:
                done = encode_short(
                    attribute, values, block, rows, sources[attribute, DATA] - first,
                    sources[attribute, BYTES] + first, segment, columns.codes[attribute],
                )  # fmt: skip
            for row in range(done, rows):
                start = np.int64(int_at(values, block + row))
                sizes[row] = int_at(values, block + row + 1) - start
                bits[row] = start - first
        if read & CODES and done < rows:
            data, size = sources[attribute, DATA], sources[attribute, BYTES]
            tags, bits, sizes, hashed = tags[done:], bits[done:], sizes[done:], hashes[done:]
            if form in (LANE, STRINGS):
                hash_at(tags, bits, sizes, data, size, hashed)
            codes = columns.codes[attribute, done:rows]
            encode_at(attribute, tags, bits, sizes, hashed, data, size, segment, codes)
        if sources[attribute, PLACE]:
            for row in range(rows):
                if tags[row] >= t.STRING:
                    bits[row] += sources[attribute, PLACE]
