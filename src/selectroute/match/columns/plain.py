"""Plain columns, whose buffers the kernel reads a block of rows at a time: they need no lane of all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.match.columns.columns import HEADER_TAGS, TAGS_OF_TYPES, Lane, lane
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
