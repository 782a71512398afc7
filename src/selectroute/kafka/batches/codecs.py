"""Compression of the records of a batch: gzip, snappy, lz4 and zstd, by the libraries in pyarrow.

Kafka's snappy and lz4 framings differ from the standard ones. Java's snappy has a frame of its own (of the
library xerial), and librdkafka's none; both are read. Kafka refuses lz4 frames whose blocks depend on each
other, as pyarrow's do; here a frame is put around independent raw blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Codecs by the number in a batch's attributes. Kafka's ``compression.type`` has these names, and Arrow."""

_FIRST_ROOM: Final = 1 << 16
_GROWTH: Final = 4

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16  # its name, version and compatible version
_XERIAL_BLOCK: Final = struct.Struct(">i")
_SNAPPY_RATIO: Final = 22
"""Snappy's densest element is three bytes for a copy of 64."""

_LZ4_BLOCK: Final = 1 << 16
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Largest block, as of Kafka's own producer, and the frame's header: magic number, version 1 with independent
blocks and without checksums, the block's size, and the checksum of these two bytes."""
_LZ4_SIZE: Final = struct.Struct("<I")
_LZ4_PLAIN: Final = 1 << 31
_LZ4_END: Final = bytes(4)


class UnpackError(Exception):
    """Compressed bytes that are damaged, or have more content than the limit."""


def unpack(codec: int, packed: memoryview, most: int) -> Any:
    """Return the content as a buffer of Arrow, at most ``most`` bytes.

    No more memory is taken than some times what is there or what it has unpacked to so far; for zstd also its
    window, by its library at most 128 MiB.

    Raises:
        UnpackError: the bytes are damaged, the content is longer, or the codec is missing.
    """
    name = NAMES[codec]
    if not pa.Codec.is_available(name):
        raise UnpackError(f"pyarrow has been built here without {name}")
    try:
        return _snappy(packed, most) if codec == SNAPPY else _streamed(name, packed, most)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnpackError(f"{name} cannot unpack the records: {error}") from None


def _streamed(name: str, packed: memoryview, most: int) -> Any:
    with pa.CompressedInputStream(pa.BufferReader(packed), name) as stream:
        room: Any = np.empty(min(most + 1, max(_FIRST_ROOM, _GROWTH * len(packed))), np.uint8)
        size = 0
        while count := stream.readinto(memoryview(room)[size:]):
            size += count
            if size > most:
                raise _too_long(most)
            if size == len(room):
                larger = np.empty(min(most + 1, _GROWTH * size), np.uint8)
                larger[:size] = room
                room = larger
    return pa.py_buffer(room).slice(0, size)


def _snappy(packed: memoryview, most: int) -> Any:
    if bytes(packed[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(packed, most, most)
    blocks = []
    at, left = _XERIAL_HEADER, most
    while at < len(packed):
        (size,) = _XERIAL_BLOCK.unpack_from(packed, at) if at + 4 <= len(packed) else (-1,)
        at += 4
        if not 0 <= size <= len(packed) - at:
            raise UnpackError("a block of snappy is cut off")
        blocks.append(_snappy_block(packed[at : at + size], left, most))
        at += size
        left -= len(blocks[-1])
    return blocks[0] if len(blocks) == 1 else pa.py_buffer(b"".join(blocks))


def _snappy_block(packed: memoryview, left: int, most: int) -> Any:
    size = shift = 0
    for byte in packed[:5]:  # the length of the content, a varint
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _SNAPPY_RATIO * len(packed):
        raise UnpackError("a block of snappy claims more content than it can have")
    if size > left:
        raise _too_long(most)
    return pa.decompress(pa.py_buffer(packed), size, "snappy")


def _too_long(most: int) -> UnpackError:
    return UnpackError(f"the unpacked records have more than {most:,} bytes, the limit")


def pack(codec: int, plain: memoryview) -> bytes:
    """Return the compressed content. A frame of lz4 or snappy is one that Kafka's own clients read."""
    return _PACKERS[codec](plain)


def _lz4(plain: memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(plain), _LZ4_BLOCK):
        block: Any = plain[start : start + _LZ4_BLOCK]
        packed = pa.compress(pa.py_buffer(block), "lz4_raw", asbytes=True)
        if len(packed) < len(block):
            parts += [_LZ4_SIZE.pack(len(packed)), packed]
        else:
            parts += [_LZ4_SIZE.pack(len(block) | _LZ4_PLAIN), block]
    return b"".join((*parts, _LZ4_END))


def _by_arrow(name: str, level: int | None = None) -> Callable[[memoryview], bytes]:
    def packed(plain: memoryview) -> bytes:
        octets: bytes = pa.Codec(name, level).compress(pa.py_buffer(plain), asbytes=True)
        return octets

    return packed


_PACKERS: Final[tuple[Callable[[memoryview], bytes], ...]] = (
    bytes,
    _by_arrow("gzip", 6),  # levels as Kafka's Java client has them by default
    _by_arrow("snappy"),
    _lz4,
    _by_arrow("zstd", 3),
)
