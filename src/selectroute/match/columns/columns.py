"""Lanes of Arrow columns: for every row a type tag and 64 bits; for strings the position of their bytes.

The Arrow type of a column gives the type of the property, null is NULL:

==========================  ==========================================================
int8, int16, int32, int64   byte, short, int, long
uint8, uint16, uint32       the next signed type: short, int, long
float32, float64, bool      float, double, boolean
string, large_string,       string
string_view
binary, large_binary,       byte string, for selectors of a dialect that has them
fixed_size_binary,          (in other dialects unlike all types but bytes)
binary_view
dictionary                  the type of its values
null                        NULL
`MIXED`                     the type of each row, for properties of varying type
==========================  ==========================================================

A column of any other type (a timestamp, a date, a decimal, uint64, a list, a map, a group of properties, …)
affects only the selectors that read it: its values are not NULL, and unlike every type (`UNSUPPORTED`). So
are values of a header field in another type than its name's, and invalid values of a row. `check_column`
raises for such columns in advance. JMSMessageID and JMSCorrelationID may also be the 24 bytes of MsgId and
CorrelId, and become ``ID:`` and 48 hex digits; a CorrelId of zeros (MQCI_NONE) is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.match.columns.from_messages import TAGS, is_mixed
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import CORRELATION_IDS, ID_BYTES
from selectroute.selector.message import HEADER_TYPES, MAX_TOPIC_BYTES, MAX_TOPIC_LEVELS, octets_of
from selectroute.selector.values import Int, Long
from selectroute.topics.filter import Derivation

TAGS_OF_TYPES: dict[pa.DataType, int] = {
    **TAGS,
    pa.uint8(): t.SHORT,
    pa.uint16(): t.INT,
    pa.uint32(): t.LONG,
    pa.large_string(): t.STRING,
}
_INTEGERS = (t.BYTE, t.SHORT, t.INT, t.LONG)
HEADER_TAGS = {
    name: {str: t.STRING, Int: t.INT, Long: t.LONG, bool: t.BOOLEAN}[kind]
    for name, kind in HEADER_TYPES.items()
}
_HEADER_TYPES = {t.STRING: "a string", t.INT: "an int", t.LONG: "a long", t.BOOLEAN: "a boolean"}
_NARROW = {t.BYTE: 8, t.SHORT: 16, t.INT: 32}
_IDS = ("JMSMessageID", "JMSCorrelationID")
_NO_ID_TEXT = np.frombuffer(f"ID:{'0' * 2 * ID_BYTES}".encode(), np.uint8)


class ColumnTypeError(SelectRouteError):
    """Column whose Arrow type no property can have, where that is an error, or name of several columns."""

    def __init__(self, column: str, type_: object, expected: str | None = None) -> None:
        self.column = column
        self.type = str(type_)
        wanted = expected or (
            "a property is a boolean, an integer of at most 64 bits, a float, a double, a string or, in a "
            "dialect that has them, a byte string; cast the column, or leave it out"
        )
        super().__init__(f"column {column!r} has type {type_}: {wanted}")


@dataclass(frozen=True, slots=True)
class Lane:
    """Unpacked column: ``tags`` int8[n] and ``bits`` int64[n]; strings are ``data[bits : bits +
    sizes]``, int32[n].

    For a column with few distinct values the entries are the distinct values, and ``rows[i]`` is the entry of
    row i.
    """

    tags: t.Array
    bits: t.Array
    sizes: t.Array
    data: t.Array
    rows: t.Array | None = None

    def spread(self, values: t.Array) -> t.Array:
        """Return values of the lane's entries as one for each row of the column."""
        return values if self.rows is None else values[self.rows]

    def some(self, rows: t.Array) -> Lane:
        """Return the lane of these rows of the column, which shares its strings. O(rows)."""
        if self.rows is not None:
            return Lane(self.tags, self.bits, self.sizes, self.data, self.rows[rows])
        # Without strings all sizes are 0.
        sizes = self.sizes[rows] if len(self.data) else self.sizes[: len(rows)]
        return Lane(self.tags[rows], self.bits[rows], sizes, self.data)


_NO_BYTES = np.zeros(0, np.uint8)
_NO_BYTES.flags.writeable = False  # as Arrow's buffers are: one type of array, one compiled kernel


def check_column(name: str, type_: pa.DataType, byte_strings: bool = False) -> None:
    """Raise `ColumnTypeError` for a column of this name with a type whose values are unlike every type.

    ``byte_strings``: the dialects of all its readers have byte strings.
    """
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_null(type_) or (is_mixed(type_) and not name.startswith("@")):
        return
    if is_bytes(type_) and (name in _IDS or (byte_strings and name not in HEADER_TAGS)):
        return
    tag = t.STRING if _is_view(type_) and not is_bytes(type_) else TAGS_OF_TYPES.get(type_)
    wanted = _wanted(name)
    if tag is None:
        raise ColumnTypeError(name, type_)
    if wanted is None or tag == wanted or (wanted in (t.INT, t.LONG) and tag in _INTEGERS):
        return
    kind = "the topic" if name.startswith("@") else "the header field"
    raise ColumnTypeError(name, type_, f"{kind} must be {_HEADER_TYPES[wanted]}")


def _wanted(name: str) -> int | None:
    """Return the tag of the topic or a header field; None for other names."""
    return t.STRING if name.startswith("@") else HEADER_TAGS.get(name)


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a column of this type has byte strings."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or type_ == pa.binary_view()
    )


def _is_view(type_: pa.DataType) -> bool:
    return bool(type_ in (pa.string_view(), pa.binary_view()))


def lane(name: str, array: pa.Array) -> Lane:
    """Unpack a column. O(rows)."""
    result = _lane(name, array)
    if name in CORRELATION_IDS:
        _without_none(result)
    return result


def _lane(name: str, array: pa.Array) -> Lane:
    if pa.types.is_dictionary(array.type):
        return _dictionary_lane(name, array)
    if is_mixed(array.type) and not name.startswith("@"):
        return _mixed_lane(name, array)
    if pa.types.is_null(array.type):
        return null_lane(len(array))
    try:
        check_column(name, array.type, byte_strings=True)
    except ColumnTypeError:
        return unsupported_lane(array)
    if _is_view(array.type):
        array = array.cast(pa.large_binary() if is_bytes(array.type) else pa.large_string())
    if is_bytes(array.type):
        return bytes_lane(array) if name not in _IDS else _id_lane(name, array)
    tag = HEADER_TAGS.get(name, TAGS_OF_TYPES[array.type])
    tags = _tags(array, tag)
    if tag == t.STRING:
        starts, sizes, data = _strings(array)
        return Lane(tags, starts, sizes, data)
    no_sizes = np.zeros(len(array), np.int32)
    if tag == t.BOOLEAN:
        return Lane(tags, _fixed_width(array.cast(pa.int8()), np.int8).astype(np.int64), no_sizes, _NO_BYTES)
    width = array.type.to_pandas_dtype()
    values = _fixed_width(array, width)
    if tag in (t.FLOAT, t.DOUBLE):
        return Lane(tags, values.astype(np.float64).view(np.int64), no_sizes, _NO_BYTES)
    whole = values.astype(np.int64)
    if tag == t.INT and values.itemsize > 4:  # a header field of a fixed type
        tags[(tags != t.NULL) & _outside(whole, 32)] = t.UNSUPPORTED
    return Lane(tags, whole, no_sizes, _NO_BYTES)


def unsupported_lane(array: pa.Array) -> Lane:
    """Return the lane of a column whose type no property has: its values are `UNSUPPORTED`, or NULL."""
    return _null_or_unsupported(array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64))


def null_lane(rows: int) -> Lane:
    """Return the lane of a property that no message of the batch has."""
    return _null_or_unsupported(np.zeros(rows, np.int64))


def _null_or_unsupported(rows: t.Array) -> Lane:
    tags = np.array([t.NULL, t.UNSUPPORTED], np.int8)
    return Lane(tags, np.zeros(2, np.int64), np.zeros(2, np.int32), _NO_BYTES, rows)


def bytes_lane(array: pa.Array) -> Lane:
    """Return the lane of a column of byte strings."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    starts, sizes, data = _strings(array)
    return Lane(_tags(array, t.BYTES), starts, sizes, data)


def bounded_topics(column: pa.Array) -> pa.Array:
    """Return a column of topics, with NULL for those that are longer than a message may have."""
    is_encoded = pa.types.is_dictionary(column.type)
    texts = column.dictionary if is_encoded else column
    if texts.type == pa.string_view():
        texts = texts.cast(pa.large_string())
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return column
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is None or longest < MAX_TOPIC_LEVELS:
        return column
    if is_encoded:
        texts = texts.take(column.indices)
    fits = pc.less_equal(pc.binary_length(texts), MAX_TOPIC_BYTES)
    fits = pc.and_(fits, pc.less(pc.count_substring(texts, "/"), MAX_TOPIC_LEVELS))
    return pc.if_else(fits, texts, pa.scalar(None, texts.type))


class TopicLevels:
    """Topic strings of a batch, each distinct one split into its levels once.

    Raises `ColumnTypeError` for a string that is not UTF-8. A column of another type matches no filter.
    """

    def __init__(self, topic: pa.Array) -> None:
        self._unsupported: Lane | None = None
        try:
            check_column("@topic", topic.type)
        except ColumnTypeError:
            self._unsupported = unsupported_lane(topic)
            return
        encoded = topic if pa.types.is_dictionary(topic.type) else pc.dictionary_encode(topic)
        self._indices = encoded.indices
        try:
            distinct = encoded.dictionary.to_pylist()
        except UnicodeDecodeError:
            raise ColumnTypeError("@topic", topic.type, "a topic is not UTF-8") from None
        self._levels = [None if text is None else text.split("/") for text in distinct]

    def lane(self, derivation: Derivation) -> Lane:
        """Return the lane of one level, or of the number of levels."""
        if self._unsupported is not None:
            return self._unsupported
        values = [None if levels is None else derivation.of(levels) for levels in self._levels]
        if derivation.position is None:
            plain = pa.array([v.value if isinstance(v, Long) else None for v in values], pa.int64())
        else:
            plain = pa.array(values, pa.string())
        return _dictionary_lane("", pa.DictionaryArray.from_arrays(self._indices, plain))


def _tags(array: pa.Array, tag: int) -> t.Array:
    if not array.null_count:
        return np.full(len(array), tag, np.int8)
    # NULL is 0, and a product is ten times as fast as np.where.
    present: t.Array = pc.is_valid(array).to_numpy(zero_copy_only=False).view(np.int8)
    return present * np.int8(tag)


def _fixed_width(array: pa.Array, width: type) -> t.Array:
    """Return the values buffer without a copy; values under a null are undefined."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), width)
    return np.frombuffer(buffer, width)[array.offset : array.offset + len(array)]


def _strings(array: pa.Array) -> tuple[t.Array, t.Array, t.Array]:
    _, offset_buffer, data_buffer = array.buffers()
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    width = np.int64 if large else np.int32
    if offset_buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.int32), _NO_BYTES
    offsets: t.Array = np.frombuffer(offset_buffer, width)[array.offset : array.offset + len(array) + 1]
    first = np.int64(offsets[0])
    starts = offsets[:-1].astype(np.int64) - first
    sizes = (offsets[1:] - offsets[:-1]).astype(np.int32)
    if offsets[-1] == first:
        return starts, sizes, _NO_BYTES
    data = np.frombuffer(data_buffer, np.uint8)[first : offsets[-1]]
    data.flags.writeable = False  # some buffers are mutable
    return starts, sizes, data


def _dictionary_lane(name: str, array: pa.DictionaryArray) -> Lane:
    """Return the lane of the distinct values, with a NULL after them for the rows that are null."""
    with_null = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
    distinct = lane(name, with_null)
    rows = pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary)).to_numpy(zero_copy_only=False)
    if distinct.rows is not None:
        rows = distinct.rows[rows]
    return Lane(distinct.tags, distinct.bits, distinct.sizes, distinct.data, rows)


def _mixed_lane(name: str, array: pa.StructArray) -> Lane:
    tag_child, bits_child, text_child = array.flatten()
    tags = pc.fill_null(tag_child, t.NULL).to_numpy(zero_copy_only=False).astype(np.int8)
    tags[(tags < t.NULL) | (tags > t.BYTES)] = t.UNSUPPORTED
    starts, sizes, data = _strings(text_child)
    bits = pc.fill_null(bits_child, 0).to_numpy(zero_copy_only=False)
    texts = (tags == t.STRING) | (tags == t.BYTES)
    tags[texts & pc.is_null(text_child).to_numpy(zero_copy_only=False)] = t.NULL
    if np.any(tags == t.BYTES):
        starts, sizes, data = _decoded(tags, starts, sizes, data)
    _check_bits(tags, bits)
    wanted = HEADER_TAGS.get(name)
    if wanted is not None:
        if wanted in (t.INT, t.LONG):
            # The name of a header fixes the type, as in a column of integers.
            tags[np.isin(tags, _INTEGERS)] = wanted
            _check_bits(tags, bits)
        tags[(tags != t.NULL) & (tags != wanted)] = t.UNSUPPORTED
    texts = (tags == t.STRING) | (tags == t.BYTES)
    bits = np.where(tags == t.BOOLEAN, bits != 0, bits)
    return Lane(tags, np.where(texts, starts, bits), np.where(texts, sizes, np.int32(0)), data)


def _decoded(
    tags: t.Array, starts: t.Array, sizes: t.Array, data: t.Array
) -> tuple[t.Array, t.Array, t.Array]:
    """Return the strings, and after them the byte strings decoded from their hexadecimal digits."""
    rows = np.flatnonzero(tags == t.BYTES)
    starts, sizes = starts.copy(), sizes.copy()
    octets: list[bytes] = []
    end = len(data)
    for row in rows:
        try:
            octets.append(octets_of(data[starts[row] : starts[row] + sizes[row]].tobytes().decode()))
        except ValueError:
            tags[row] = t.UNSUPPORTED
            continue
        starts[row], sizes[row] = end, len(octets[-1])
        end += len(octets[-1])
    joined = np.concatenate((data, np.frombuffer(b"".join(octets), np.uint8)))
    joined.flags.writeable = False
    return starts, sizes, joined


def _check_bits(tags: t.Array, bits: t.Array) -> None:
    """Mark rows whose bits are not a valid value of their type as `UNSUPPORTED`."""
    for tag, width in _NARROW.items():
        tags[(tags == tag) & _outside(bits, width)] = t.UNSUPPORTED
    floats = np.flatnonzero(tags == t.FLOAT)
    values = bits[floats].view(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    tags[floats[(rounded != values) & ~np.isnan(values)]] = t.UNSUPPORTED


def _outside(values: t.Array, width: int) -> t.Array:
    """Return whether integers do not fit in `width` bits."""
    outside: t.Array = (values < -(1 << width - 1)) | (values >= 1 << width - 1)
    return outside


def _id_lane(name: str, array: pa.Array) -> Lane:
    """Return the lane of ids that are bytes: 24 bytes become a string, any other length `UNSUPPORTED`."""
    sizes = pc.fill_null(pc.binary_length(array), ID_BYTES).to_numpy(zero_copy_only=False)
    other = sizes != ID_BYTES
    known = pc.if_else(pa.array(other), pa.scalar(None, array.type), array) if other.any() else array
    result = lane(name, _hex_ids(known.cast(pa.binary(ID_BYTES))))
    result.tags[other] = t.UNSUPPORTED
    result.sizes[other] = 0
    return result


def _without_none(ids: Lane) -> None:
    """Set correlation ids of 24 zero bytes, or their text, to NULL."""
    for tag, none in ((t.STRING, _NO_ID_TEXT), (t.BYTES, np.zeros(ID_BYTES, np.uint8))):
        candidates = np.flatnonzero((ids.tags == tag) & (ids.sizes == len(none)))
        for byte in (len(none) - 1, len(none) // 2):  # nearly all others differ there
            candidates = candidates[ids.data[ids.bits[candidates] + byte] == none[byte]]
        octets = ids.data[ids.bits[candidates, None] + np.arange(len(none))]
        ids.tags[candidates[np.all(octets == none, axis=1)]] = t.NULL


def _hex_ids(array: pa.Array) -> pa.Array:
    """Return 24 bytes as ``ID:`` and 48 hex digits, in capitals as IBM MQ writes them."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * ID_BYTES :][: len(array) * ID_BYTES]
    text = np.empty((len(array), 3 + 2 * ID_BYTES), np.uint8)
    text[:, :3] = np.frombuffer(b"ID:", np.uint8)
    rows = raw.reshape(-1, ID_BYTES)
    text[:, 3::2], text[:, 4::2] = digits[rows >> 4], digits[rows & 15]
    offsets = np.arange(len(array) + 1, dtype=np.int32) * text.shape[1]
    mask = pc.is_null(array)
    strings = pa.StringArray.from_buffers(len(array), pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))
    return pc.if_else(mask, None, strings)


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
