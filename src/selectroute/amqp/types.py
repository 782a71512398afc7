"""AMQP 1.0 types (AMQP 1.0, part 1): values to bytes and back.

The values in Python::

    null None · boolean bool · unsigned integers and timestamp (ms) int · signed integers Signed
    float, double float · decimals Decimal · char, string str · symbol Symbol · binary bytes · uuid UUID
    list, array list · map dict · described value Described
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

MAX_DEPTH: Final = 32
"""Most lists, maps, arrays and descriptors around a value."""


class DecodeError(ValueError):
    """Bytes that do not encode a value of AMQP."""


class Symbol(str):
    """Symbol: a name, in ASCII."""

    __slots__ = ()


class Signed(int):
    """Number of a signed type, which no field of the protocol has."""

    __slots__ = ()


class Decimal(bytes):
    """Number of one of the types decimal32, decimal64 and decimal128, as its bytes."""

    __slots__ = ()


class Described(NamedTuple):
    """Value with a descriptor: a number, or a name."""

    descriptor: int | Symbol
    value: Any


Decoded = tuple[Any, int]
"""A value, and the position behind it."""

Decoder = Callable[[bytes, int], Decoded]
"""Decodes the value at a position. Raises what `DECODING_FAILED` lists; the position behind the value may lie
behind the end of the bytes, which the caller checks."""

DECODING_FAILED: Final = (ValueError, IndexError, TypeError, struct.error)
"""Errors of a decoder; a TypeError is that of a map with a key that cannot be one."""

_Read = Callable[[bytes, int, int], Decoded]
"""Reads a value from the position behind its constructor, at a depth."""

_U16, _U32, _U64 = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
_I64, _F64, _SIZE = struct.Struct(">q"), struct.Struct(">d"), struct.Struct(">II")
_U8 = struct.Struct("B").pack


def decoder(classes: Mapping[str, Callable[[Any], Any]] | None = None) -> Decoder:
    """Return a decoder of all types.

    Args:
        classes: what the numbers of a type become, by its name in AMQP: ``{"int": sr.Int}``. Of the types
            that are not named the table above holds.
    """
    read: list[_Read] = [_unknown] * 256
    made = {**_CLASSES, **(classes or {})}

    def decode(buffer: bytes, position: int) -> Decoded:
        return read[buffer[position]](buffer, position + 1, 0)

    def described(buffer: bytes, position: int, depth: int) -> Decoded:
        depth = _deeper(depth)
        if buffer[position] == _SMALL_ULONG:
            descriptor, position = buffer[position + 1], position + 2
        else:
            descriptor, position = read[buffer[position]](buffer, position + 1, depth)
            if type(descriptor) not in (int, Symbol):
                raise DecodeError("a descriptor is a ulong or a symbol")
        value, position = read[buffer[position]](buffer, position + 1, depth)
        return Described(descriptor, value), position

    def items(buffer: bytes, position: int, depth: int, size: int, count: int) -> Decoded:
        if depth >= MAX_DEPTH or count > size:
            _deeper(depth)
            _fitting(count, size)
        end = position + size
        depth += 1
        values: list[Any] = []
        append = values.append
        for _ in range(count):
            value, position = read[buffer[position]](buffer, position + 1, depth)
            append(value)
        if position != end:
            _ended(position, end)
        return values, end

    def pairs(buffer: bytes, position: int, depth: int, size: int, count: int) -> Decoded:
        values, end = items(buffer, position, depth, size, count)
        if count % 2:
            raise DecodeError("a map has a key without a value")
        return dict(zip(values[::2], values[1::2], strict=True)), end

    def array(buffer: bytes, position: int, depth: int, size: int, count: int) -> Decoded:
        end = position + size
        depth = _deeper(depth)
        constructor = buffer[position]
        position += 1
        descriptor = None
        if not constructor:
            descriptor, position = read[buffer[position]](buffer, position + 1, depth)
            constructor = buffer[position]
            position += 1
        if not constructor:
            raise DecodeError("an array has two descriptors")
        read_one = read[constructor]
        values = []
        for _ in range(_fitting(count, size)):
            value, position = read_one(buffer, position, depth)
            values.append(value if descriptor is None else Described(descriptor, value))
        return values, _ended(position, end)

    def short_compound(compound: Any) -> _Read:
        # The count is the first byte of the size.
        return lambda buffer, position, depth: compound(
            buffer, position + 2, depth, buffer[position] - 1, buffer[position + 1]
        )

    def long_compound(compound: Any) -> _Read:
        def read_long(buffer: bytes, position: int, depth: int) -> Decoded:
            size, count = _SIZE.unpack_from(buffer, position)
            decoded: Decoded = compound(buffer, position + 8, depth, size - 4, count)
            return decoded

        return read_long

    read[0x00] = described
    read[0x45] = lambda _, position, __: ([], position)
    for constructor, name, value in _CONSTANT:
        read[constructor] = _constant(made.get(name, _same)(value))
    for constructor, name, code in _FIXED:
        read[constructor] = _fixed(struct.Struct(code), made.get(name))
    for constructor, convert in _TEXTS:
        read[constructor] = _short_text(convert)
        read[constructor + 0x10] = _long_text(convert)
    for constructor, compound in ((0xC0, items), (0xC1, pairs), (0xE0, array)):
        read[constructor] = short_compound(compound)
        read[constructor + 0x10] = long_compound(compound)
    return decode


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"more than {MAX_DEPTH} values are in one another")
    return depth + 1


def _fitting(count: int, size: int) -> int:
    """Return a number of values. Raises DecodeError for more than there are bytes for.

    An array's may be of no size: four bytes could ask for four billion of them.
    """
    if count > size:
        raise DecodeError(f"{count:,} values cannot be in {size:,} bytes")
    return count


def _ended(position: int, end: int) -> int:
    if position != end:
        raise DecodeError("the values of a list are not as long as it says")
    return end


def _unknown(buffer: bytes, position: int, _: int) -> Decoded:
    raise DecodeError(f"there is no type with the constructor 0x{buffer[position - 1]:02x}")


def _same(value: Any) -> Any:
    return value


def _constant(value: Any) -> _Read:
    return lambda _, position, __: (value, position)


def _fixed(shape: struct.Struct, make: Callable[[Any], Any] | None) -> _Read:
    unpack, size = shape.unpack_from, shape.size
    if make is not None:
        return lambda buffer, position, _: (make(unpack(buffer, position)[0]), position + size)
    if shape.format == "B":
        return lambda buffer, position, _: (buffer[position], position + 1)
    return lambda buffer, position, _: (unpack(buffer, position)[0], position + size)


def _short_text(convert: Callable[[bytes], Any]) -> _Read:
    def read_short(buffer: bytes, position: int, _: int) -> Decoded:
        end = position + 1 + buffer[position]
        return convert(buffer[position + 1 : end]), end

    return read_short


def _long_text(convert: Callable[[bytes], Any]) -> _Read:
    def read_long(buffer: bytes, position: int, _: int) -> Decoded:
        end = position + 4 + _U32.unpack_from(buffer, position)[0]
        return convert(buffer[position + 4 : end]), end

    return read_long


_SMALL_ULONG: Final = 0x53

_CONSTANT: Final = (
    (0x40, "null", None),
    (0x41, "boolean", True),
    (0x42, "boolean", False),
    (0x43, "uint", 0),
    (0x44, "ulong", 0),
)
"""Types of no bytes: constructor, name, value."""

_FIXED: Final = (
    (0x50, "ubyte", "B"),
    (0x51, "byte", "b"),
    (0x52, "uint", "B"),
    (0x53, "ulong", "B"),
    (0x54, "int", "b"),
    (0x55, "long", "b"),
    (0x56, "boolean", "?"),
    (0x60, "ushort", ">H"),
    (0x61, "short", ">h"),
    (0x70, "uint", ">I"),
    (0x71, "int", ">i"),
    (0x72, "float", ">f"),
    (0x73, "char", "4s"),
    (0x74, "decimal", "4s"),
    (0x80, "ulong", ">Q"),
    (0x81, "long", ">q"),
    (0x82, "double", ">d"),
    (0x83, "timestamp", ">q"),
    (0x84, "decimal", "8s"),
    (0x94, "decimal", "16s"),
    (0x98, "uuid", "16s"),
)
"""Types of a fixed width: constructor, name, code of ``struct``."""

_CLASSES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "byte": Signed,
    "short": Signed,
    "int": Signed,
    "long": Signed,
    "char": lambda octets: octets.decode("utf-32-be"),
    "decimal": Decimal,
    "uuid": lambda octets: UUID(bytes=octets),
}

_TEXTS: Final[Sequence[tuple[int, Callable[[bytes], Any]]]] = (
    (0xA0, bytes),
    (0xA1, bytes.decode),
    (0xA3, lambda octets: Symbol(octets, "ascii")),
)

# ---- Encoding

NULL: Final = b"\x40"


def uint(number: int) -> bytes:
    """Encode a uint."""
    return b"\x43" if not number else b"\x52" + _U8(number) if number < 256 else b"\x70" + _U32.pack(number)


def ulong(number: int) -> bytes:
    """Encode a ulong."""
    return b"\x44" if not number else b"\x53" + _U8(number) if number < 256 else b"\x80" + _U64.pack(number)


def ushort(number: int) -> bytes:
    """Encode a ushort."""
    return b"\x60" + _U16.pack(number)


def ubyte(number: int) -> bytes:
    """Encode a ubyte."""
    return b"\x50" + _U8(number)


def timestamp(milliseconds: int) -> bytes:
    """Encode a timestamp, in milliseconds since 1970."""
    return b"\x83" + _I64.pack(milliseconds)


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    return b"\x41" if value else b"\x42"


def binary(octets: bytes) -> bytes:
    """Encode a binary."""
    return _text(0xA0, octets)


def string(text: str) -> bytes:
    """Encode a string."""
    return _text(0xA1, text.encode())


def symbol(name: str) -> bytes:
    """Encode a symbol."""
    return _text(0xA3, name.encode("ascii"))


def symbols(names: Sequence[str]) -> bytes:
    """Encode several symbols, as an array."""
    body = b"".join(_U32.pack(len(name)) + name.encode("ascii") for name in names)
    return b"\xf0" + _SIZE.pack(len(body) + 5, len(names)) + b"\xb3" + body


def fields_of(fields: Sequence[bytes]) -> bytes:
    """Encode the list of encoded fields of a composite type; nulls at its end are left out."""
    count = len(fields)
    while count and fields[count - 1] == NULL:
        count -= 1
    return _compound(0xC0, b"".join(fields[:count]), count) if count else b"\x45"


def map_of(pairs: Mapping[Any, Any]) -> bytes:
    """Encode a map, as `encode` does its keys and values."""
    return map_of_encoded({encode(key): encode(value) for key, value in pairs.items()})


def map_of_encoded(pairs: Mapping[bytes, bytes]) -> bytes:
    """Encode a map of encoded keys and values."""
    body = b"".join(key + value for key, value in pairs.items())
    return _compound(0xC1, body, 2 * len(pairs))


def described(descriptor: int | str, value: bytes) -> bytes:
    """Encode a described value from the encoded one."""
    return b"\x00" + (ulong(descriptor) if isinstance(descriptor, int) else symbol(descriptor)) + value


def encode(value: Any) -> bytes:
    """Encode a value by its class, numbers as long or double. Raises TypeError for any that is not above."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return b"\x81" + _I64.pack(value)
    if isinstance(value, float):
        return b"\x82" + _F64.pack(value)
    if isinstance(value, Symbol):
        return symbol(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes):
        return binary(value)
    if isinstance(value, UUID):
        return b"\x98" + value.bytes
    if isinstance(value, Described):
        return described(value.descriptor, encode(value.value))
    if isinstance(value, dict):
        return map_of(value)
    if isinstance(value, list):
        return _compound(0xC0, b"".join(map(encode, value)), len(value))
    raise TypeError(f"{type(value).__name__} is not a type of AMQP")


def _text(constructor: int, octets: bytes) -> bytes:
    size = len(octets)
    if size < 256:
        return bytes((constructor, size)) + octets
    return bytes((constructor + 0x10,)) + _U32.pack(size) + octets


def _compound(constructor: int, body: bytes, count: int) -> bytes:
    if len(body) < 255 and count < 256:
        return bytes((constructor, len(body) + 1, count)) + body
    return bytes((constructor + 0x10,)) + _SIZE.pack(len(body) + 4, count) + body
