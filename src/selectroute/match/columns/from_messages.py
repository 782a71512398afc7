"""Columns of single messages, of a type whose rows hold values of any property type."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.selector.fields import id_to_text
from selectroute.selector.message import Message
from selectroute.selector.names import INVALID_NAMES
from selectroute.selector.values import Byte, Double, Float, Int, Long, Short, Unsupported, Value
from selectroute.topics.filter import TOPIC, level_value

BODY = "@body"
"""Column of the frame with the body of a message, a string or bytes."""

MIXED = pa.struct([("tag", pa.int8()), ("bits", pa.int64()), ("text", pa.string())])
"""Type of a property whose type varies by message.

``tag`` is 0 NULL, 1 boolean, 2 byte, 3 short, 4 int, 5 long, 6 float, 7 double, 8 string, 9 byte string,
12 a value of a type that no property has; ``bits`` is 0 (FALSE) or not (TRUE), an integer, or the IEEE 754
bits of a double, for a float too; ``text`` is the string, or the hexadecimal digits of a byte string. A row
that is not a valid value of its tag, or has another tag, counts as tag 12.
"""


def from_messages(messages: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch:
    """Return messages as columns: for each name (an identifier or a column of the frame) one of type `MIXED`,
    strings for the topic, booleans for `INVALID_NAMES`. O(messages x names).

    The slow way, for single messages.
    """
    columns = []
    for name in names:
        if name == INVALID_NAMES:
            columns.append(pa.array([message.value(name) for message in messages], pa.bool_()))
        elif name == BODY:
            columns.append(mixed_array([message.body for message in messages]))
        elif name.startswith(TOPIC):
            columns.append(pa.array([level_value(name, message.topic) for message in messages], pa.string()))
        else:
            columns.append(mixed_array([message.value(name) for message in messages]))
    schema = pa.schema([(name, column.type) for name, column in zip(names, columns, strict=True)])
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(messages), pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def mixed_array(values: Sequence[Value | Unsupported | None]) -> pa.Array:
    """Return values of any types as one `MIXED` column."""
    columns = zip(*map(mixed_row, values), strict=True) if values else [()] * 3
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MIXED, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(MIXED))


INTEGER_TAGS: Final[dict[type[Byte | Short | Int | Long], int]] = {
    Byte: t.BYTE,
    Short: t.SHORT,
    Int: t.INT,
    Long: t.LONG,
}
"""Types of integers with their tags."""


def mixed_row(value: Value | Unsupported | None) -> tuple[int, int, str | None]:
    """Return the tag, the bits and the text of a value, as in `MIXED`."""
    match value:
        case None:
            return t.NULL, 0, None
        case Unsupported():
            return t.UNSUPPORTED, 0, None
        case bool():
            return t.BOOLEAN, int(value), None
        case str():
            return t.STRING, 0, value
        case bytes():
            return t.BYTES, 0, value.hex()
        case Float() | Double():
            tag = t.FLOAT if isinstance(value, Float) else t.DOUBLE
            return tag, struct.unpack("<q", struct.pack("<d", value.value))[0], None
        case _:
            return INTEGER_TAGS[type(value)], value.value, None


ARROW_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
"""Arrow type of each type of properties; a byte string is binary, which not all dialects read."""

TAGS: Final = {type_: tag for tag, type_ in enumerate(ARROW_TYPES.values(), t.BOOLEAN)}
"""Arrow types with the tag of their values."""


def with_unlike(values: pa.Array, rows: Sequence[int]) -> pa.StructArray:
    """Return a column of a property as `MIXED`, with a value of a type that no property has in these rows.
    Ids of 24 bytes become text. O(rows of the column).
    """
    if pa.types.is_fixed_size_binary(values.type):
        values = pa.array([id_to_text(value) for value in values.to_pylist()], pa.string())
    if is_mixed(values.type):
        tag_child, bits, text = values.flatten()
        tags = pc.fill_null(tag_child, t.NULL).to_numpy(zero_copy_only=False).copy()
    else:
        tags = values.is_valid().to_numpy(zero_copy_only=False) * np.int8(TAGS[values.type])
        if pa.types.is_string(values.type):
            bits, text = pa.array(np.zeros(len(values), np.int64)), values
        else:
            text = pa.nulls(len(values), pa.string())
            if pa.types.is_floating(values.type):
                floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
                bits = pa.array(floats.view(np.int64))
            else:
                whole = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
                bits = pc.fill_null(whole.cast(pa.int64()), 0)
    tags[list(rows)] = t.UNSUPPORTED
    return pa.StructArray.from_arrays([pa.array(tags, pa.int8()), bits, text], fields=list(MIXED))


def is_mixed(type_: pa.DataType) -> bool:
    """Return whether a type is `MIXED`, with nullable fields or not."""
    return pa.types.is_struct(type_) and [(field.name, field.type) for field in type_] == [
        (field.name, field.type) for field in MIXED
    ]
