"""Lanes of fields whose value has one name or is converted from another; single messages of a batch.

Meaning and conversions are those of ``selector.fields``, one call for each distinct value. Only ids, which
differ from message to message, are converted as arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.arrays import tables as t
from selectroute.match.columns.batch import ColumnBatch
from selectroute.match.columns.columns import Lane, check_column, lane, null_lane
from selectroute.match.columns.from_messages import BODY, INTEGER_TAGS, is_mixed, mixed_array
from selectroute.selector.fields import (
    DERIVED,
    ID_BYTES,
    SYNONYMS,
    FieldSource,
    correlation_id_from_text,
    id_from_any_text,
    id_from_text,
)
from selectroute.selector.message import HEADER_TYPES, Message
from selectroute.selector.values import UNSUPPORTED, Double, Float, Unsupported, Value
from selectroute.topics.filter import TOPIC

_INTEGERS = {tag: kind for kind, tag in INTEGER_TAGS.items()}
_TEXT_ID = 3 + 2 * ID_BYTES
_NIBBLES = np.full(256, 255, np.uint8)
for _digit, _character in enumerate(b"0123456789ABCDEF"):
    _NIBBLES[_character] = _NIBBLES[ord(chr(_character).lower())] = _digit


def field_lane(name: str, batch: ColumnBatch) -> Lane:
    """Return the lane of a derived field. O(rows). Raises `ColumnTypeError` for two columns of a name."""
    lanes: list[Lane] = []
    own = _column_lane(name, batch) if name in SYNONYMS else None
    if own is not None:
        lanes.append(own)
    for source in DERIVED[name]:
        if lanes and np.all(lanes[-1].spread(lanes[-1].tags) != t.NULL):
            break
        columns = [_column_lane(source_name, batch) for source_name in source.names]
        if columns[0] is not None:
            lanes.append(_converted(source, columns, batch.rows))
    return _first_present(lanes) if lanes else null_lane(batch.rows)


def _column_lane(name: str, batch: ColumnBatch) -> Lane | None:
    column = batch.column(name)
    if column is None:
        return None
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = pc.dictionary_encode(column)
        column = encoded if 2 * len(encoded.dictionary) <= len(column) else column
    return lane(name, column)


def values(part: Lane) -> list[Value | Unsupported | None]:
    """Return the values of a lane's entries."""
    data = part.data.tobytes()
    return [
        _value(tag, bits, data[bits : bits + size] if tag >= t.STRING else b"")
        for tag, bits, size in zip(part.tags.tolist(), part.bits.tolist(), part.sizes.tolist(), strict=True)
    ]


def _value(tag: int, bits: int, octets: bytes) -> Value | Unsupported | None:
    if tag == t.NULL:
        return None
    if tag == t.UNSUPPORTED:
        return UNSUPPORTED
    if tag == t.BOOLEAN:
        return bool(bits)
    if tag == t.STRING:
        try:
            return octets.decode()
        except UnicodeDecodeError:  # a column may hold invalid strings, which convert to NULL
            return None
    if tag == t.BYTES:
        return octets
    if tag in (t.FLOAT, t.DOUBLE):
        number = struct.unpack("<d", struct.pack("<q", bits))[0]
        return Float(number) if tag == t.FLOAT else Double(number)
    return _INTEGERS[tag](bits)


def _converted(source: FieldSource, columns: Sequence[Lane | None], rows: int) -> Lane:
    """Return the lane of a field converted from other names. Only the columns after the first may be None."""
    first = columns[0]
    assert first is not None
    if source.convert in (id_from_text, id_from_any_text, correlation_id_from_text):
        ids = _ids(first, any_text=source.convert is not id_from_text)
        if source.convert is correlation_id_from_text:
            ids.tags[~ids.data.reshape(-1, ID_BYTES).any(axis=1)] = t.NULL
        return ids
    if len(columns) == 1:
        plain = lane("", mixed_array([source.convert(value) for value in values(first)]))
        return Lane(plain.tags, plain.bits, plain.sizes, plain.data, first.rows)
    arguments = [[None] * rows if column is None else values_of_rows(column) for column in columns]
    return lane("", mixed_array([source.convert(*row) for row in zip(*arguments, strict=True)]))


def values_of_rows(column: Lane) -> list[Value | Unsupported | None]:
    """Return the value of each row of a lane."""
    entries = values(column)
    return entries if column.rows is None else [entries[i] for i in column.rows.tolist()]


def _ids(texts: Lane, any_text: bool) -> Lane:
    """Return strings as 24 bytes, see ``id_from_text`` and ``octets_of_text``."""
    entries = len(texts.tags)
    octets = np.zeros((entries, ID_BYTES), np.uint8)
    strings = texts.tags == t.STRING
    data = np.concatenate((texts.data, np.zeros(_TEXT_ID, np.uint8)))
    hexadecimal = np.flatnonzero(strings & (texts.sizes == _TEXT_ID))
    letters = data[texts.bits[hexadecimal, None] + np.arange(_TEXT_ID)]
    nibbles = _NIBBLES[letters[:, 3:]]
    right = np.all(letters[:, :3] == np.frombuffer(b"ID:", np.uint8), axis=1) & np.all(nibbles < 16, axis=1)
    octets[hexadecimal[right]] = nibbles[right, ::2] << 4 | nibbles[right, 1::2]
    known = np.zeros(entries, np.bool_)
    known[hexadecimal[right]] = True
    if any_text:
        others = np.flatnonzero(strings & ~known)
        places = np.arange(ID_BYTES)
        within = places < texts.sizes[others, None]
        octets[others] = np.where(within, data[texts.bits[others, None] + places], 0)
        known = strings
    tags = np.where(known, t.BYTES, t.NULL).astype(np.int8)
    flat = octets.reshape(-1)
    flat.flags.writeable = False
    starts = np.arange(entries, dtype=np.int64) * ID_BYTES
    return Lane(tags, starts, np.full(entries, ID_BYTES, np.int32), flat, texts.rows)


def _first_present(lanes: Sequence[Lane]) -> Lane:
    """Return for each row the value of the first lane in which it is not NULL."""
    if len(lanes) == 1:
        return lanes[0]
    tags, bits, sizes = (array.copy() for array in _spread(lanes[0], 0))
    length = len(lanes[0].data)
    for other in lanes[1:]:
        missing = tags == t.NULL
        for mine, theirs in zip((tags, bits, sizes), _spread(other, length), strict=True):
            mine[missing] = theirs[missing]
        length += len(other.data)
    data = np.concatenate([part.data for part in lanes])
    data.flags.writeable = False
    return Lane(tags, bits, sizes, data)


def _spread(part: Lane, before: int) -> tuple[t.Array, t.Array, t.Array]:
    bits = np.where(part.tags >= t.STRING, part.bits + before, part.bits)
    return part.spread(part.tags), part.spread(bits), part.spread(part.sizes)


class Rows:
    """Messages of a batch, one by one; each column is read once, at its first use."""

    def __init__(self, batch: ColumnBatch) -> None:
        self._batch = batch
        self._columns: dict[str, list[Value | Unsupported | None] | None] = {}

    def message(self, row: int, names: Iterable[str]) -> Message:
        """Return the message of a row with the values of these columns; a missing one is NULL.

        Raises `ColumnTypeError` for a column of a type that no property has, MessageError for invalid values.
        """
        values = {name: column[row] for name in names if (column := self._column(name)) is not None}
        topic, body = values.pop(TOPIC, None), values.pop(BODY, None)
        headers = {name: value for name, value in values.items() if name in HEADER_TYPES}
        properties = {name: value for name, value in values.items() if name not in HEADER_TYPES}
        return Message(headers, properties, topic, body)  # type: ignore[arg-type]  # checked there

    def _column(self, name: str) -> list[Value | Unsupported | None] | None:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> list[Value | Unsupported | None] | None:
        array = self._batch.column(name)
        if array is None:
            return None
        if name.startswith("@") and not is_mixed(array.type):
            plain: list[Value | Unsupported | None] = array.to_pylist()
            return plain
        name = name.removeprefix("@")
        check_column(name, array.type, byte_strings=True)  # no messages with parts left out
        return values_of_rows(lane(name, array))
