"""Kafka's record batches (magic 2) written and read plainly, as a reference: one record at a time, as Kafka's
protocol guide has them.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
ABORT, COMMIT = 0, 1
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FIELD = struct.Struct(">I")

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    offset: int
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


class Batch(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer: int
    epoch: int
    sequence: int
    count: int


def crc32c(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [_entry(byte) for byte in range(256)]


def varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def counted(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record_bytes(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = b"\0" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += counted(record.key) + counted(record.value) + varint(len(record.headers))
    body += b"".join(counted(part) for header in record.headers for part in header)
    return varint(len(body)) + body


def batch_bytes(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    content: bytes | None = None,
    attributes: int = 0,
    **fields: int,
) -> bytes:
    """Return one batch; ``content`` are its records as they are to be stored, if not simply one by one.
    ``fields`` are those of `Batch` that are to be others.
    """
    base = records[0].offset if base_offset is None else base_offset
    first = records[0].timestamp if records else -1
    plain = b"".join(record_bytes(one, base, first) for one in records)
    stored = packed(attributes & 7, plain) if content is None else content
    last = records[-1].offset - base if records else 0
    newest = max((one.timestamp for one in records), default=-1)
    size, count = HEADER.size - 12 + len(stored), len(records)
    usual = Batch(base, size, -1, 2, 0, attributes, last, first, newest, -1, -1, -1, count)
    return sealed(HEADER.pack(*usual._replace(**fields)) + stored)


def sealed(batch: bytes) -> bytes:
    """Return a batch with the checksum of its bytes."""
    return batch[:17] + CRC_FIELD.pack(crc32c(batch[21:])) + batch[21:]


def marker(offset: int, ending: int, producer: int, **fields: int) -> bytes:
    """Return a control batch: the end of a producer's transaction."""
    record = Record(offset, 0, struct.pack(">hh", 0, ending), struct.pack(">hi", 0, 0))
    return batch_bytes([record], attributes=TRANSACTIONAL | CONTROL, producer=producer, epoch=0, **fields)


def packed(codec: int, plain: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(plain)
    if codec == SNAPPY:
        return xerial(plain)
    return plain if codec == NONE else pa.compress(plain, {LZ4: "lz4", ZSTD: "zstd"}[codec], asbytes=True)


def xerial(plain: bytes, block: int = 1 << 10) -> bytes:
    """Return snappy in the frame of Java's library, in small blocks."""
    found = [b"\x82SNAPPY\0", struct.pack(">ii", 1, 1)]
    for start in range(0, len(plain), block):
        one = pa.compress(plain[start : start + block], "snappy", asbytes=True)
        found += [struct.pack(">i", len(one)), one]
    return b"".join(found)


class Reader:
    """Reader of numbers and bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        bits = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            bits |= (byte & 127) << shift
            if byte < 128:
                bits &= (1 << 64) - 1
                return bits >> 1 ^ -(bits & 1)
            shift += 7

    def counted(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at]


def batches(data: bytes) -> Iterator[tuple[Batch, bytes]]:
    """Yield the fields and the whole bytes of each batch."""
    at = 0
    while at < len(data):
        fields = Batch(*HEADER.unpack_from(data, at))
        yield fields, data[at : at + 12 + fields.length]
        at += 12 + fields.length


def records(data: bytes, plain: bytes | None = None) -> Iterator[Record]:
    """Yield the records of one batch; ``plain`` are its unpacked records, if they are compressed."""
    fields = Batch(*HEADER.unpack_from(data))
    reader = Reader(data[HEADER.size :] if plain is None else plain)
    for _ in range(fields.count):
        size = reader.varint()
        end = reader.at + size
        reader.at += 1
        timestamp, delta = _wrapped(fields.base_timestamp + reader.varint()), reader.varint()
        if fields.attributes & LOG_APPEND_TIME:
            timestamp = fields.max_timestamp
        key, value = reader.counted(), reader.counted()
        headers = tuple((reader.counted() or b"", reader.counted()) for _ in range(reader.varint()))
        assert reader.at == end
        yield Record(fields.base_offset + delta, timestamp, key, value, headers)
    assert reader.at == len(reader.data)


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def visible(data: bytes, aborted: Iterable[tuple[int, int]] = ()) -> Iterator[Record]:
    """Yield what a consumer sees of uncompressed batches: Kafka's Java client, one batch at a time."""
    waiting = sorted(aborted, key=lambda one: one[1])
    ongoing: set[int] = set()
    for fields, one in batches(data):
        while waiting and waiting[0][1] <= fields.base_offset + fields.last_delta:
            ongoing.add(waiting.pop(0)[0])
        if fields.attributes & CONTROL:
            for record in records(one):
                if struct.unpack_from(">hh", record.key or b"")[1] == ABORT:
                    ongoing.discard(fields.producer)
        elif not (fields.attributes & TRANSACTIONAL and fields.producer in ongoing):
            yield from records(one)
