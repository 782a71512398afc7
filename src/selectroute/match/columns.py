"""Arrow columns to lanes: for every row a type tag and 64 bits, and of strings where their bytes are.

The Arrow type of a column is the property's type, null is NULL:

==========================  ==========================================================
int8, int16, int32, int64   byte, short, int, long
uint8, uint16, uint32       the next signed type: short, int, long
float32, float64, bool      float, double, boolean
string, large_string        string, also as the values of a dictionary
binary, large_binary,       byte string, for selectors of a dialect that has them
fixed_size_binary
null                        NULL
`MIXED`                     a type for each row: for properties whose type varies
==========================  ==========================================================

Any other type is a `ColumnTypeError` that names column and type. Header fields have their type by name;
JMSMessageID and JMSCorrelationID may also come as the 24 bytes of MsgId and CorrelId, and become ``ID:`` and
48 hex digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index import tables as t
from selectroute.match.mixed import is_mixed
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import octets_of
from selectroute.selector.values import Long
from selectroute.topics.levels import Derivation

_TAGS: dict[pa.DataType, int] = {
    pa.bool_(): t.BOOLEAN,
    pa.int8(): t.BYTE,
    pa.int16(): t.SHORT,
    pa.int32(): t.INT,
    pa.int64(): t.LONG,
    pa.uint8(): t.SHORT,
    pa.uint16(): t.INT,
    pa.uint32(): t.LONG,
    pa.float32(): t.FLOAT,
    pa.float64(): t.DOUBLE,
    pa.string(): t.STRING,
    pa.large_string(): t.STRING,
}
_INTEGERS = (t.BYTE, t.SHORT, t.INT, t.LONG)
_HEADER_TAGS = {
    "JMSType": t.STRING,
    "JMSMessageID": t.STRING,
    "JMSCorrelationID": t.STRING,
    "JMSDeliveryMode": t.STRING,
    "JMSPriority": t.INT,
    "JMSTimestamp": t.LONG,
    "JMSExpiration": t.LONG,
    "JMSDestination": t.STRING,
    "JMSReplyTo": t.STRING,
    "JMSRedelivered": t.BOOLEAN,
}
_HEADER_TYPES = {t.STRING: "string", t.INT: "int", t.LONG: "long", t.BOOLEAN: "boolean"}
_NARROW = {t.BYTE: 8, t.SHORT: 16, t.INT: 32}
_IDS = ("JMSMessageID", "JMSCorrelationID")
_ID_BYTES = 24


class ColumnTypeError(SelectRouteError):
    """A column whose Arrow type no property can have."""

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
    """One column, unpacked: ``tags`` int8[n] and ``bits`` int64[n]; strings are ``data[bits : bits +
    sizes]``, int32[n].

    Of a column with few distinct values these are the distinct ones, and row i of the column is ``rows[i]``
    of them.
    """

    tags: t.Array
    bits: t.Array
    sizes: t.Array
    data: t.Array
    rows: t.Array | None = None

    def spread(self, values: t.Array) -> t.Array:
        """Values that belong to the lane's entries as one for each row of the column."""
        return values if self.rows is None else values[self.rows]


_NO_BYTES = np.zeros(0, np.uint8)
_NO_BYTES.flags.writeable = False  # as Arrow's buffers are: one type of array, one compiled kernel


def check_column(name: str, type_: pa.DataType, byte_strings: bool = False) -> None:
    """Raise `ColumnTypeError` if a column of this name cannot have this type.

    ``byte_strings``: a column of bytes may be a property of byte strings.
    """
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    tag = t.NULL if pa.types.is_null(type_) else _TAGS.get(value_type)
    if name in _IDS and value_type in (pa.binary(_ID_BYTES), pa.binary(), pa.large_binary()):
        return
    if byte_strings and name not in _HEADER_TAGS and _is_binary(value_type):
        return
    if pa.types.is_dictionary(type_) and tag != t.STRING:
        tag = None
    wanted = t.STRING if name.startswith("@") else _HEADER_TAGS.get(name)
    if is_mixed(type_) and not name.startswith("@"):
        return
    if tag is None:
        raise ColumnTypeError(name, type_)
    if wanted is None or tag in (t.NULL, wanted) or (wanted in (t.INT, t.LONG) and tag in _INTEGERS):
        return
    kind = "the topic" if name.startswith("@") else "the header field"
    raise ColumnTypeError(name, type_, f"{kind} is a {_HEADER_TYPES[wanted]}")


def _is_binary(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_)
    )


def lane(name: str, array: pa.Array, byte_strings: bool = False) -> Lane:
    """Unpack a column. O(rows). Raises `ColumnTypeError`."""
    check_column(name, array.type, byte_strings)
    if pa.types.is_dictionary(array.type):
        return _dictionary_lane(name, array, byte_strings)
    if is_mixed(array.type):
        return _mixed_lane(name, array)
    if _is_binary(array.type):
        if name not in _IDS:
            return bytes_lane(array)
        array = _hex_ids(_fixed_size(name, array))
    if pa.types.is_null(array.type):
        return null_lane(len(array))
    tag = _HEADER_TAGS.get(name, _TAGS[array.type])
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
    if name == "JMSPriority":
        _check_ints(name, array)
    return Lane(tags, values.astype(np.int64), no_sizes, _NO_BYTES)


def bytes_lane(array: pa.Array) -> Lane:
    """The lane of a column of byte strings."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    starts, sizes, data = _strings(array)
    return Lane(_tags(array, t.BYTES), starts, sizes, data)


def null_lane(rows: int) -> Lane:
    """The lane of a property that no message of the batch has."""
    return Lane(
        np.zeros(1, np.int8),
        np.zeros(1, np.int64),
        np.zeros(1, np.int32),
        _NO_BYTES,
        np.zeros(rows, np.int64),
    )


class TopicLevels:
    """The topic strings of a batch, each distinct one split into its levels once.

    Raises `ColumnTypeError`, also for a string that is no UTF-8.
    """

    def __init__(self, topic: pa.Array) -> None:
        check_column("@topic", topic.type)
        encoded = topic if pa.types.is_dictionary(topic.type) else pc.dictionary_encode(topic)
        self._indices = encoded.indices
        try:
            distinct = encoded.dictionary.to_pylist()
        except UnicodeDecodeError:
            raise ColumnTypeError("@topic", topic.type, "a topic is not UTF-8") from None
        self._levels = [None if text is None else text.split("/") for text in distinct]

    def lane(self, derivation: Derivation) -> Lane:
        """The lane of one level, or of the number of levels."""
        values = [None if levels is None else derivation.of(levels) for levels in self._levels]
        if derivation.position is None:
            plain = pa.array([one.value if isinstance(one, Long) else None for one in values], pa.int64())
        else:
            plain = pa.array(values, pa.string())
        return _dictionary_lane("", pa.DictionaryArray.from_arrays(self._indices, plain))


def _tags(array: pa.Array, tag: int) -> t.Array:
    if not array.null_count:
        return np.full(len(array), tag, np.int8)
    # NULL is 0, and a product is ten times as fast as a choice.
    present: t.Array = pc.is_valid(array).to_numpy(zero_copy_only=False).view(np.int8)
    return present * np.int8(tag)


def _fixed_width(array: pa.Array, width: type) -> t.Array:
    """The values buffer as it lies; under a null it may hold anything."""
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


def _dictionary_lane(name: str, array: pa.DictionaryArray, byte_strings: bool = False) -> Lane:
    """The distinct values with a NULL after them, for the rows that are null."""
    with_null = pa.concat_arrays([array.dictionary, pa.nulls(1, array.dictionary.type)])
    distinct = lane(name, with_null, byte_strings)
    rows = pc.fill_null(array.indices.cast(pa.int64()), len(array.dictionary))
    return Lane(
        distinct.tags, distinct.bits, distinct.sizes, distinct.data, rows.to_numpy(zero_copy_only=False)
    )


def _mixed_lane(name: str, array: pa.StructArray) -> Lane:
    tag_child, bits_child, text_child = array.flatten()
    tags = pc.fill_null(tag_child, t.NULL).to_numpy(zero_copy_only=False).astype(np.int8)
    if np.any((tags < t.NULL) | (tags > t.BYTES)):
        raise ColumnTypeError(name, array.type, "a tag is 0 to 9")
    starts, sizes, data = _strings(text_child)
    bits = pc.fill_null(bits_child, 0).to_numpy(zero_copy_only=False)
    tags[(tags >= t.STRING) & pc.is_null(text_child).to_numpy(zero_copy_only=False)] = t.NULL
    if np.any(tags == t.BYTES):
        starts, sizes, data = _decoded(name, array.type, tags, starts, sizes, data)
    _check_bits(name, array.type, tags, bits)
    wanted = _HEADER_TAGS.get(name)
    if wanted is not None:
        if wanted in (t.INT, t.LONG):
            # As in a column of integers, the name fixes the type.
            tags[np.isin(tags, _INTEGERS)] = wanted
            _check_bits(name, array.type, tags, bits)
        if np.any((tags != t.NULL) & (tags != wanted)):
            raise ColumnTypeError(name, array.type, f"the header field is a {_HEADER_TYPES[wanted]}")
    bits = np.where(tags == t.BOOLEAN, bits != 0, bits)
    return Lane(tags, np.where(tags >= t.STRING, starts, bits), sizes, data)


def _decoded(
    name: str, type_: pa.DataType, tags: t.Array, starts: t.Array, sizes: t.Array, data: t.Array
) -> tuple[t.Array, t.Array, t.Array]:
    """The strings with byte strings behind them, made of their hexadecimal digits."""
    rows = np.flatnonzero(tags == t.BYTES)
    starts, sizes = starts.copy(), sizes.copy()
    octets: list[bytes] = []
    end = len(data)
    for row in rows:
        try:
            octets.append(octets_of(data[starts[row] : starts[row] + sizes[row]].tobytes().decode()))
        except ValueError:
            problem = "the text of a byte string is pairs of hexadecimal digits"
            raise ColumnTypeError(name, type_, problem) from None
        starts[row], sizes[row] = end, len(octets[-1])
        end += len(octets[-1])
    joined = np.concatenate((data, np.frombuffer(b"".join(octets), np.uint8)))
    joined.flags.writeable = False
    return starts, sizes, joined


def _check_bits(name: str, type_: pa.DataType, tags: t.Array, bits: t.Array) -> None:
    """Raise `ColumnTypeError` for bits that are no value of their row's type."""
    for tag, width in _NARROW.items():
        values = bits[tags == tag]
        if np.any((values < -(1 << width - 1)) | (values >= 1 << width - 1)):
            problem = f"a value is outside the range of its type, {width} bits"
            raise ColumnTypeError(name, type_, problem)
    values = bits[tags == t.FLOAT].view(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    if np.any((rounded != values) & ~np.isnan(values)):
        raise ColumnTypeError(name, type_, "the bits of a float are those of a double that no float equals")


def _check_ints(name: str, array: pa.Array) -> None:
    extremes = pc.min_max(array).as_py()
    if extremes["min"] is not None and not -(2**31) <= extremes["min"] <= extremes["max"] < 2**31:
        raise ColumnTypeError(
            name, array.type, "the header field is an int, and a value is outside its range"
        )


def _fixed_size(name: str, array: pa.Array) -> pa.Array:
    lengths = pc.unique(pc.binary_length(array.drop_null())).to_pylist()
    if lengths not in ([], [_ID_BYTES]):
        raise ColumnTypeError(name, array.type, f"as bytes, an id has {_ID_BYTES}")
    return array.cast(pa.binary(_ID_BYTES))


def _hex_ids(array: pa.Array) -> pa.Array:
    """24 bytes → ``ID:`` and 48 hex digits, in capitals as IBM MQ writes them."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * _ID_BYTES :][: len(array) * _ID_BYTES]
    text = np.empty((len(array), 3 + 2 * _ID_BYTES), np.uint8)
    text[:, :3] = np.frombuffer(b"ID:", np.uint8)
    rows = raw.reshape(-1, _ID_BYTES)
    text[:, 3::2], text[:, 4::2] = digits[rows >> 4], digits[rows & 15]
    offsets = np.arange(len(array) + 1, dtype=np.int32) * text.shape[1]
    mask = pc.is_null(array)
    strings = pa.StringArray.from_buffers(len(array), pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))
    return pc.if_else(mask, None, strings)
