"""Schema ids of bodies, by Confluent's wire format (before the body, or in a header), and types of decoders.

Prefix and header have the same form: 0 and a schema id of 4 bytes, or 1 and the schema's GUID of 16 bytes.
For Protobuf the index of the message in its file follows: the number of steps and each step, zigzag varints,
or only 0 for the first message.

A decoder is a function from the datum of a schema to its values at paths. Avro and Protobuf have values that
JSON does not have: times, infinities. Byte strings and decimals are Python's own ``bytes`` and ``Decimal``;
every other value is what the same JSON would be. `value_of_json` converts all of them to the bound types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.texts import NOT_UTF_8
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.strict_json import JsonError, parse_json

Paths = tuple[Path, ...]

Decoder = Callable[[bytes, bytes | None], list[Any]]
"""Function from a datum, and the index of its message if a header has it, to one value a path.

A value is None, what parsed JSON would have, or one of `values`. It raises `RecordError` for a datum that is
not valid.
"""


class InvalidSchemaError(SelectRouteError):
    """Schema that can't be compiled."""


def parsed(value: bytes) -> Any:
    """Return a record's value as parsed JSON. Raises RecordError."""
    try:
        return parse_json(value)
    except JsonError as error:
        stage = "read" if error.kind == NOT_UTF_8 else "parse"
        raise RecordError(stage, error.kind, f"the body is {error}") from None


def at_path(body: Any, path: Path) -> Any:
    """Return the value at a path of parsed JSON, None if there is none."""
    for step in path:
        if isinstance(step, int):
            body = body[step] if isinstance(body, list) and step < len(body) else None
        else:
            body = body.get(step) if isinstance(body, dict) else None
        if body is None:
            return None
    return body


def json_decoder(paths: Paths) -> Decoder:
    """Return the decoder of JSON Schema, whose bodies are JSON. They are not validated."""

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        body = parsed(datum)
        return [at_path(body, path) for path in paths]

    return decode


HEADER: Final = "__value_schema_id"
"""Header with the schema id of a record's value."""

PREFIX_BYTES: Final = 17
"""Bytes of a body that suffice for `schema_of_prefix`: magic byte and GUID."""

_ID_BYTES: Final = 5

_MAX_STEPS: Final = 100
_MAX_VARINT_BYTES: Final = 5

SchemaId = int | str
"""Id of a schema in its registry, or its GUID."""


class Framed(NamedTuple):
    """Body with the id of its schema.

    Attributes:
        id: the id of the schema.
        datum: the encoded body; begins with the message's index if it is Protobuf and ``message`` is None.
        message: the index of a Protobuf message, encoded, if the id is in a header.
    """

    id: SchemaId
    datum: bytes
    message: bytes | None


def framed(value: bytes, header: bytes | None) -> Framed | None:
    """Split a body into schema id and datum; None if the body has no schema id.

    Args:
        value: the body.
        header: the header `HEADER`, which counts if there is one.

    Raises:
        RecordError: header or body is too short for a schema id, or the header is anything else.
    """
    if header is not None:
        split = _split(header, f"the header {HEADER}")
        if split is None:
            raise RecordError("parse", "not-framed", f"the header {HEADER} does not begin with 0 or 1")
        return Framed(split[0], value, split[1])
    # Also JSON: its text can't begin with a control character.
    split = _split(value, "the body")
    return None if split is None else Framed(split[0], split[1], None)


def schema_of_prefix(prefix: bytes | None, header: bytes | None) -> SchemaId | None:
    """Return the schema id of a body that begins with these `PREFIX_BYTES`; None without a valid id."""
    try:
        frame = None if prefix is None else framed(prefix, header)
    except RecordError:
        return None
    return None if frame is None else frame.id


def message_index(data: bytes) -> tuple[tuple[int, ...], int]:
    """Parse the index of a Protobuf message; return it and its length in bytes. Raises RecordError."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_STEPS:
        raise RecordError("parse", "not-protobuf", f"the index of the message has {count:,} steps")
    steps = []
    for _ in range(count):
        step, at = _varint(data, at)
        steps.append(step)
    return tuple(steps), at


def _split(data: bytes, where: str) -> tuple[SchemaId, bytes] | None:
    """Return the id at the beginning and the rest; None for any other beginning."""
    magic = data[:1]
    if magic == b"\0" and len(data) >= _ID_BYTES:
        return int.from_bytes(data[1:_ID_BYTES], "big"), data[_ID_BYTES:]
    if magic == b"\1" and len(data) >= PREFIX_BYTES:
        return str(UUID(bytes=data[1:PREFIX_BYTES])), data[PREFIX_BYTES:]
    if magic in (b"\0", b"\1"):
        raise RecordError("parse", "not-framed", f"{where} ends within its schema id")
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if at + place >= len(data):
            raise RecordError("parse", "not-protobuf", "the body ends within the index of its message")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise RecordError("parse", "not-protobuf", "the index of the message is not valid")
