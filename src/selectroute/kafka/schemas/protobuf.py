"""Decoders of Protobuf: a message is parsed as a whole, and only the fields on bound paths are taken from it.

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
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from selectroute.kafka.binding import Path
from selectroute.kafka.errors import RecordError
from selectroute.kafka.schemas.decoder import Decoder, InvalidSchemaError, Paths
from selectroute.kafka.schemas.values import NonFinite, Temporal, decimal_of
from selectroute.kafka.schemas.wire import message_index

Getter = Callable[[Any], Any]
"""Function from a message, or another value of Protobuf, to the value at a path."""

_SHIPPED: Final = re.compile(r"(google/protobuf|google/type|confluent|confluent/types?)/[a-z_]+\.proto")
"""Files that schemas import without a reference, because every client has them."""

_WRAPPERS: Final = re.compile(
    r"google\.protobuf\.(Double|Float|Int64|UInt64|Int32|UInt32|Bool|String|Bytes)Value"
)
_TYPE_BYTES, _TYPE_ENUM, _TYPE_MESSAGE, _TYPE_GROUP = 12, 14, 11, 10
"""Numbers of types in ``descriptor.proto``."""


def protobuf_decoder(text: str, references: tuple[tuple[str, str], ...], paths: Paths) -> Decoder:
    """Compile a Protobuf schema.

    Args:
        text: the file's descriptor, in Base64.
        references: file names and descriptors of the files that it imports, each after those that it imports.
        paths: the paths to read.

    Raises:
        InvalidSchemaError: a descriptor is not valid.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool, root = _pool(text, references)
    found: dict[tuple[int, ...], tuple[Any, list[Getter]] | RecordError] = {}

    def message_type(index: tuple[int, ...]) -> tuple[Any, list[Getter]] | RecordError:
        name = _message_name(root, index)
        if name is None:
            return RecordError("parse", "not-protobuf", f"its schema has no message with index {list(index)}")
        descriptor = pool.FindMessageTypeByName(name)
        return GetMessageClass(descriptor), [_of_message(descriptor, path) for path in paths]

    def decode(datum: bytes, index: bytes | None) -> list[Any]:
        steps, length = message_index(datum if index is None else index)
        known = found.get(steps)
        if known is None:
            known = found[steps] = message_type(steps)
            if isinstance(known, RecordError):
                del found[steps]  # there are too many wrong ones to keep
        if isinstance(known, RecordError):
            raise known
        kind, getters = known
        try:
            message = kind.FromString(datum[length:] if index is None else datum)
        except DecodeError:
            raise RecordError("parse", "not-protobuf", "the body is not Protobuf of its schema") from None
        return [get(message) for get in getters]

    return decode


def _pool(text: str, references: tuple[tuple[str, str], ...]) -> tuple[Any, Any]:
    """Return a pool with the file and all that it imports, and the file's descriptor."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added: set[str] = set()
    referenced = {name for name, _ in references}

    def add_shipped(name: str) -> None:
        if name in added or name in referenced or not _SHIPPED.fullmatch(name):
            return
        added.add(name)
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        if module.startswith("confluent."):
            module = f"confluent_kafka.schema_registry.{module}"
        try:
            descriptor = import_module(module).DESCRIPTOR
        except ImportError:
            return  # the pool names the missing file
        for other in descriptor.dependencies:
            add_shipped(other.name)
        pool.AddSerializedFile(descriptor.serialized_pb)

    try:
        for name, other in references:
            if not _SHIPPED.fullmatch(name):
                referenced_file = _file(name, other)
                for dependency in referenced_file.dependency:
                    add_shipped(dependency)
                pool.Add(referenced_file)
            else:
                referenced.discard(name)
        root = _file("the body's schema", text)
        for dependency in root.dependency:
            add_shipped(dependency)
        pool.Add(root)
        pool.FindFileByName(root.name)  # where missing imports are found
    except InvalidSchemaError:
        raise
    except Exception as error:  # the pool raises TypeError, KeyError and others
        raise InvalidSchemaError(f"its descriptor is not valid ({type(error).__name__})") from None
    return pool, root


def _file(name: str, text: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (Base64Error, ValueError, DecodeError):
        raise InvalidSchemaError(
            "the registry did not return the descriptor of its file (format=serialized)"
        ) from None
    file.name = name
    return file


def _message_name(file: Any, index: tuple[int, ...]) -> str | None:
    """Return the full name of the message with this index; None if there is none."""
    names = [file.package] if file.package else []
    inside = file.message_type
    for step in index:
        if not 0 <= step < len(inside):
            return None
        names.append(inside[step].name)
        inside = inside[step].nested_type
    return ".".join(names)


def _of_message(descriptor: Any, path: Path) -> Getter:
    """Return the function from a message of this type to the value at the path."""
    if _WRAPPERS.fullmatch(descriptor.full_name):
        wrapped = _of_scalar(descriptor.fields_by_name["value"])
        return _constant(None) if path else lambda message: wrapped(message.value)
    if descriptor.full_name in _DYNAMIC:
        return lambda message: _at_dynamic(message, path)
    if not path:
        # Any other message is an object, like one of JSON, which is of no bound type.
        return _WHOLE.get(descriptor.full_name, _constant({}))
    step, rest = path[0], path[1:]
    field = None
    if isinstance(step, str):
        field = descriptor.fields_by_name.get(step) or descriptor.fields_by_camelcase_name.get(step)
    return _constant(None) if field is None else _of_field(field, rest)


def _of_field(field: Any, path: Path) -> Getter:
    name = field.name
    of_message = field.message_type
    if of_message is not None and of_message.GetOptions().map_entry:
        return _of_map(name, of_message, path)
    value = _of_single(field, path)
    if _is_repeated(field):
        if not path:
            return _constant([])  # an array, like that of JSON
        step = path[0]
        if not isinstance(step, int):
            return _constant(None)
        item = _of_single(field, path[1:])

        def of_item(message: Any) -> Any:
            items = getattr(message, name)
            return item(items[step]) if step < len(items) else None

        return of_item
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _of_single(field: Any, path: Path) -> Getter:
    """Return the function for one value of a field."""
    if field.message_type is not None:
        return _of_message(field.message_type, path)
    return _constant(None) if path else _of_scalar(field)


def _of_map(name: str, entry: Any, path: Path) -> Getter:
    if not path:
        return _constant({})
    key = _map_key(entry.fields_by_name["key"], path[0])
    if key is None:
        return _constant(None)
    value = _of_single(entry.fields_by_name["value"], path[1:])

    def of_key(message: Any) -> Any:
        entries = getattr(message, name)
        return value(entries[key]) if key in entries else None

    return of_key


def _map_key(field: Any, step: str | int) -> Any:
    """Return the key of a map, written as in JSON; None if there can't be such a key."""
    if not isinstance(step, str) or field.type == 9:
        return step if isinstance(step, str) else None
    if field.type == 8:
        return {"true": True, "false": False}.get(step)
    return int(step) if re.fullmatch(r"-?[0-9]{1,20}", step) and _fits(int(step), field.cpp_type) else None


def _fits(number: int, cpp_type: int) -> bool:
    low, high = {1: (-(2**31), 2**31), 2: (-(2**63), 2**63), 3: (0, 2**32)}.get(cpp_type, (0, 2**64))
    return low <= number < high


def _of_scalar(field: Any) -> Getter:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)  # of a later schema: then it is not a string
    if field.cpp_type in (5, 6):
        return _finite
    return lambda value: value


def _finite(value: float) -> float:
    return value if math.isfinite(value) else NonFinite(value)


def _is_repeated(field: Any) -> bool:
    # Protobuf 7 has the property, and no label any more.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


def _constant(value: Any) -> Getter:
    return lambda message: value


def _nanos(message: Any) -> int:
    return int(message.seconds) * 1_000_000_000 + int(message.nanos)


_WHOLE: Final[dict[str, Getter]] = {
    "google.protobuf.Timestamp": lambda message: Temporal("instant", _nanos(message)),
    "google.protobuf.Duration": lambda message: Temporal("duration", _nanos(message)),
    "confluent.type.Decimal": lambda message: decimal_of(message.value, message.scale),
}
"""Messages that are one value."""

_DYNAMIC: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


def _at_dynamic(value: Any, path: Path) -> Any:
    """Return the value at a path of JSON in Protobuf."""
    for step in (*path, None):
        if value.DESCRIPTOR.full_name == _DYNAMIC[1]:
            kind = value.WhichOneof("kind")
            value = None if kind in (None, "null_value") else getattr(value, kind)
        if not hasattr(value, "DESCRIPTOR"):
            if step is not None or value is None:
                return None
            return _finite(value) if isinstance(value, float) else value
        is_list = value.DESCRIPTOR.full_name == _DYNAMIC[2]
        if step is None:
            return [] if is_list else {}
        if is_list:
            if not isinstance(step, int) or step >= len(value.values):
                return None
            value = value.values[step]
        elif isinstance(step, str) and step in value.fields:
            value = value.fields[step]
        else:
            return None
    raise AssertionError("the last step returns")
