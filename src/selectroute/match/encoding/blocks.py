"""Encoding of a block of rows when the kernel comes to them: what it reads next is in the cache.

A column is described by the addresses of its buffers: a `PlainColumn`, whose buffers are read as they are, or
a `Lane` of all rows.
"""

from __future__ import annotations

import numpy as np

from selectroute.arrays import tables as t
from selectroute.match.array_structs import columns_at
from selectroute.match.columns.columns import INTS, LANE, LONGS, STRINGS, Lane, PlainColumn
from selectroute.match.compiled import compiled
from selectroute.match.encoding.encode import encode_at, encode_short, hash_at
from selectroute.match.memory import byte_at, int_at, long_at

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
