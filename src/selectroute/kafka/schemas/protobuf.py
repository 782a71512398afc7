"""Decoder of Protobuf: a message is parsed as a whole, and the values at the bound paths are taken from it.

Paths name fields as in the schema, or by their JSON names. An enum is its value's name, a wrapper what it
wraps, a ``Struct`` an object, ``Timestamp`` and ``Duration`` are times. A field that knows whether it is set
(``optional``, of a oneof, or of a message type) is NULL if it is not; any other is then 0, false or empty,
as Protobuf can't tell the two apart.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.framing import Decoder, InvalidSchemaError, Paths, message_index
from selectroute.kafka.texts import NonFinite, Temporal, decimal_of

_SHIPPED: Final = re.compile(r"(google/protobuf|google/type|confluent|confluent/types?)/[a-z_]+\.proto")
"""Files that schemas import without a reference, because every client has them."""

_BOOL, _STRING = 7, 9
"""Numbers of types in C++, which keys of maps may have; all others are integers."""

_BOOLEANS: Final[Mapping[str | int, bool]] = {"true": True, "false": False}


def protobuf_decoder(text: str, references: tuple[tuple[str, str], ...], paths: Paths) -> Decoder:
    """Compile a Protobuf schema.

    Args:
        text: the file's descriptor, in Base64.
        references: file names and descriptors of the files that it imports, each after those that it imports.
        paths: the paths to read.

    Raises:
        InvalidSchemaError: a descriptor is not valid.
    """
    file = _file(text, references)
    kinds: dict[tuple[int, ...], Any] = {}

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        steps, length = message_index(datum if index is None else index)
        kind = kinds.get(steps)
        if kind is None:
            kind = kinds[steps] = GetMessageClass(_message_type(file, steps))
        try:
            message = kind.FromString(datum[length:] if index is None else datum)
        except DecodeError:
            raise RecordError("parse", "not-protobuf", "the body is not Protobuf of its schema") from None
        return [_at_path(message, path) for path in paths]

    return decode


def _file(text: str, references: tuple[tuple[str, str], ...]) -> Any:
    """Return the descriptor of a file, in a pool with all that it imports."""
    pool = DescriptorPool()
    shipped: set[str] = set()

    def add(name: str, content: bytes) -> None:
        file = FileDescriptorProto.FromString(content)
        file.name = name
        for other in file.dependency:
            if other not in shipped and _SHIPPED.fullmatch(other):
                shipped.add(other)
                module = other.removesuffix(".proto").replace("/", ".") + "_pb2"
                package = "confluent_kafka.schema_registry." if module.startswith("confluent.") else ""
                add(other, import_module(package + module).DESCRIPTOR.serialized_pb)
        pool.Add(file)

    try:
        for name, other in references:
            if not _SHIPPED.fullmatch(name):
                add(name, b64decode(other.encode(), validate=True))
        add("the body's schema", b64decode(text.encode(), validate=True))
        return pool.FindFileByName("the body's schema")  # where missing imports are found
    except (Base64Error, DecodeError):
        raise InvalidSchemaError(
            "the registry did not return the descriptor of its file (format=serialized)"
        ) from None
    except Exception as error:  # the pool raises TypeError, KeyError and others
        raise InvalidSchemaError(f"its descriptor is not valid ({type(error).__name__})") from None


def _message_type(file: Any, index: tuple[int, ...]) -> Any:
    """Return the descriptor of the message with this index in a file. Raises RecordError."""
    message, inside = None, list(file.message_types_by_name.values())
    for step in index:
        if not 0 <= step < len(inside):
            raise RecordError("parse", "not-protobuf", f"its schema has no message with index {list(index)}")
        message = inside[step]
        inside = message.nested_types
    return message


class _Field(NamedTuple):
    """Field of a message: what its descriptor says, which is slow to ask.

    Attributes:
        name: its name in the schema.
        has_presence, is_repeated: whether it knows that it is set; whether it has any number of values.
        key: the field of a map's keys; None if it is not a map.
        is_message: whether its values, or those of the map, are messages.
        enum: names of an enum's numbers.
    """

    name: str
    has_presence: bool
    is_repeated: bool
    key: Any
    is_message: bool
    enum: Mapping[int, str]


@lru_cache(maxsize=10_000)
def _field(kind: Any, step: str | int) -> _Field | None:
    """Return the field of a message type with this name; None if there is none."""
    field = kind.fields_by_name.get(step) or kind.fields_by_camelcase_name.get(step)
    if field is None:
        return None
    of_value, key = field, None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inside = field.message_type.fields_by_name
        of_value, key = inside.get("value"), inside.get("key")
        if of_value is None or key is None:
            return None
    enum = of_value.enum_type
    names = {} if enum is None else {number: value.name for number, value in enum.values_by_number.items()}
    is_message = of_value.message_type is not None
    return _Field(field.name, field.has_presence, field.is_repeated, key, is_message, names)


def _at_path(message: Any, path: Path) -> Any:
    """Return the value at a path of a message, None if there is none. An array is [], an object {}."""
    kind = message.DESCRIPTOR
    name = kind.full_name
    if name == "google.protobuf.Value":
        path = (message.WhichOneof("kind") or "null_value", *path)
    elif not path:
        return _WHOLE[name](message) if name in _WHOLE else {}
    elif name in _CONTENT:
        path = (_CONTENT[name], *path)
    field = _field(kind, path[0])
    if field is None or (field.has_presence and not message.HasField(field.name)):
        return None
    value, path = getattr(message, field.name), path[1:]
    if field.is_repeated:
        if not path:
            return [] if field.key is None else {}
        if field.key is not None:
            value = _of_key(value, field.key.cpp_type, path[0])
        else:
            value = value[path[0]] if isinstance(path[0], int) and path[0] < len(value) else None
        if value is None:
            return None
        path = path[1:]
    if field.is_message:
        return _at_path(value, path)
    if path or (name == "google.protobuf.Value" and field.enum):
        return None
    if field.enum:
        return field.enum.get(value, value)  # a number of a later schema is not a string
    return NonFinite(value) if isinstance(value, float) and not math.isfinite(value) else value


def _of_key(entries: Any, kind: int, step: str | int) -> Any:
    """Return the value of a map's key of this kind, written as in JSON; None if there is none."""
    try:
        key = step if kind == _STRING else _BOOLEANS[step] if kind == _BOOL else int(step)
        return entries[key] if isinstance(step, str) and key in entries else None
    except (KeyError, ValueError):
        return None  # there can't be such a key


def _nanos(message: Any) -> int:
    return int(message.seconds) * 1_000_000_000 + int(message.nanos)


def _wrapped(message: Any) -> Any:
    return _at_path(message, ("value",))


_WRAPPERS: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WHOLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": lambda message: Temporal("instant", _nanos(message)),
    "google.protobuf.Duration": lambda message: Temporal("duration", _nanos(message)),
    "google.protobuf.ListValue": lambda message: [],
    "confluent.type.Decimal": lambda message: decimal_of(message.value, message.scale),
    **{f"google.protobuf.{kind}Value": _wrapped for kind in _WRAPPERS},
}
"""Messages that are one value, as a whole. Any other is an object, like one of JSON."""

_CONTENT: Final = {"google.protobuf.Struct": "fields", "google.protobuf.ListValue": "values"}
"""JSON in Protobuf: the field that has the content of an object or array."""
