"""Layout of a record batch (magic 2), and its numbers in memory::

    batch  0 base offset          int64     27 base timestamp   int64, milliseconds since 1970
           8 length from 12 on    int32     35 max timestamp    int64
          12 leader epoch         int32     43 producer id      int64, -1 for none
          16 magic                int8      51 producer epoch   int16
          17 CRC-32C from 21 on   uint32    53 base sequence    int32
          21 attributes           int16     57 records          int32
          23 last offset delta    int32     61 the records, all compressed together

    record   length, attributes (int8), timestamp delta, offset delta, key length, key, value length, value,
             number of headers, and each one's name length, name, value length, value

Numbers of a batch are big-endian. Those of a record are varints: zigzag, seven bits a byte, lowest first.
A negative length of a key or value is NULL. Sources: Kafka's protocol guide, "Record Batch"; KIP-98
(transactions), KIP-32 (timestamps), KIP-82 (headers).

Functions take addresses, as those in ``match/memory.py``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from selectroute.match.compiled import inlined
from selectroute.match.memory import byte_at, word_at

BASE_OFFSET: Final = 0
LENGTH: Final = 8
LEADER_EPOCH: Final = 12
MAGIC: Final = 16
CRC: Final = 17
ATTRIBUTES: Final = 21
LAST_DELTA: Final = 23
BASE_TIMESTAMP: Final = 27
MAX_TIMESTAMP: Final = 35
PRODUCER_ID: Final = 43
PRODUCER_EPOCH: Final = 51
BASE_SEQUENCE: Final = 53
COUNT: Final = 57
RECORDS: Final = 61
"""Positions of a batch's fields, in bytes."""

UNCOUNTED: Final = 12
"""Bytes of a batch that its length does not count."""

CODEC: Final = 0b000_111
LOG_APPEND_TIME: Final = 0b001_000
TRANSACTIONAL: Final = 0b010_000
CONTROL: Final = 0b100_000
"""Bits of the attributes."""

NO_TIMESTAMP: Final = -1
"""Timestamp of a record that has none (KIP-32)."""

SMALLEST_HEADER: Final = 2
"""Bytes of a header without name and value."""

LONGEST_VARINT: Final = 10

BEYOND: Final = 1 << 62
"""Address after a number that is cut off. It is above all addresses, so nothing can be read there, and a
reader need check only its last address.
"""

ROOM: Final = 16
"""Bytes that `paste` may write, with any content, after what it copies."""

_BYTE, _LONG = ir.IntType(8), ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def put_byte(_context: Any, _address: Any, _byte: Any) -> Any:
    """Write one byte."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.uint8), lower


@intrinsic  # type: ignore[untyped-decorator]
def put_word(_context: Any, _address: Any, _word: Any) -> Any:
    """Write a little-endian uint64."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _LONG.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), lower


@intrinsic  # type: ignore[untyped-decorator]
def put_int(_context: Any, _address: Any, _number: Any) -> Any:
    """Write an int32 in the machine's byte order."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(32)), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), lower


@intrinsic  # type: ignore[untyped-decorator]
def move(_context: Any, _to: Any, _source: Any, _count: Any) -> Any:
    """Copy bytes between addresses by one memcpy."""

    def lower(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        to, source = (builder.inttoptr(argument, _BYTE.as_pointer()) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, to, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), lower


@inlined
def paste(to: int, source: int, count: int, stop: int) -> int:
    """Copy bytes to where there is `ROOM` after them, and return the address after the copy.

    Most fields are short, and two words are copied faster than memcpy is called. No byte from ``stop`` on is
    read.
    """
    if count <= 16 and stop - source >= 16:
        put_word(to, word_at(source, 0))
        put_word(to + 8, word_at(source, 8))
    else:
        move(to, source, count)
    return to + count


@inlined
def number_at(at: int, size: int) -> int:
    """Return a signed big-endian number of ``size`` bytes."""
    number = np.int64(np.int8(byte_at(at, 0)))
    for k in range(1, size):
        number = number << 8 | np.int64(byte_at(at, k))
    return number  # type: ignore[return-value]


@inlined
def put_number(at: int, size: int, number: int) -> None:
    """Write the low ``size`` bytes of a number, big-endian."""
    for k in range(size):
        put_byte(at + k, np.uint8(number >> 8 * (size - 1 - k) & 0xFF))


@inlined
def varint_at(at: int, stop: int) -> tuple[int, int]:
    """Return a varint of up to 64 bits, and the address after it.

    The address is `BEYOND` if the varint does not end before ``stop`` or has more than ten bytes.
    """
    bits, shift = np.uint64(0), np.uint64(0)
    while at < stop and shift < np.uint64(7 * LONGEST_VARINT):
        byte = np.uint64(byte_at(at, 0))
        at += 1
        bits |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1)), at  # type: ignore[return-value]
        shift += np.uint64(7)
    return np.int64(0), np.int64(BEYOND)  # type: ignore[return-value]


@inlined
def put_varint(at: int, number: int) -> int:
    """Write a varint, and return the address after it."""
    bits = np.uint64(number << 1 ^ number >> 63)
    while bits >= np.uint64(0x80):
        put_byte(at, np.uint8(bits & np.uint64(0x7F) | np.uint64(0x80)))
        bits >>= np.uint64(7)
        at += 1
    put_byte(at, np.uint8(bits))
    return at + 1


@inlined
def size_of_varint(number: int) -> int:
    """Return the bytes of a varint."""
    bits = np.uint64(number << 1 ^ number >> 63)
    size = 1
    while bits >= np.uint64(0x80):
        bits >>= np.uint64(7)
        size += 1
    return size
