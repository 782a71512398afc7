"""Encoder of record batches: rows of Arrow columns, some headers for each record, to bytes.

In a fan-out many records are made of one message, which share its key, value and headers, and each has a few
headers of its own. So a record names the row of its message, and its own headers come as columns::

    messages   key, value, headers          rows  0  0  2  2  2     bounds  0        3     5
    own        selectroute-subscription           a  b  a  c  d             └ group 0 ┴ 1 ─┘

A group is what goes to one partition of one topic. Its records become one or more batches, in their order.
First all sizes are computed, then everything is written once, in ascending order. What the records of a
message share is encoded for the first of them, and copied from there for those after it.

Partitions are those that Kafka's own producers choose, by the murmur2 hash of a record's key:
``BuiltInPartitioner.partitionForKey`` of the Java client; librdkafka does the same with ``murmur2_random``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import pack_into
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.batches import RecordBatchError
from selectroute.kafka.batches import layout as f
from selectroute.kafka.batches.codecs import NAMES, NONE, pack
from selectroute.kafka.batches.layout import paste, put_byte, put_number, put_varint, size_of_varint
from selectroute.match.compiled import compiled, compiling_alone, inlined
from selectroute.match.memory import byte_at, long_at

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)


def key_hashes(keys: Any) -> Any:
    """Return the hash of each key from 0 to 2^31 - 1, int32[rows], NULL for no key.

    Modulo a topic's number of partitions it is the key's partition. O(bytes of keys).

    Args:
        keys: binary or large binary array.
    """
    keys = pc.cast(keys, pa.large_binary())
    hashes = np.empty(len(keys), np.int32)
    if len(keys):
        _, bounds, content = keys.buffers()
        # Addresses, because numba compiles anew for bytes that can be written and for bytes that cannot.
        _hash(bounds.address + 8 * keys.offset, content.address if content else 0, hashes)
    return pa.array(hashes, mask=np.asarray(pc.is_null(keys)))


@compiled
def _hash(bounds: int, content: int, hashes: Any) -> None:
    for row in range(len(hashes)):
        start, stop = long_at(bounds, row), long_at(bounds, row + 1)
        hashes[row] = np.int32(_murmur2(content + start, stop - start) & np.uint32(0x7FFFFFFF))


@inlined
def _murmur2(at: int, size: int) -> np.uint32:
    """Return ``org.apache.kafka.common.utils.Utils.murmur2`` as an unsigned number."""
    state = _SEED ^ np.uint32(size)
    stop = at + size
    while at + 4 <= stop:
        word = np.uint32(0)
        for k in range(4):
            word |= np.uint32(byte_at(at, k)) << np.uint32(8 * k)
        word = np.uint32(word * _FACTOR)
        word = np.uint32((word ^ word >> np.uint32(24)) * _FACTOR)
        state = np.uint32(state * _FACTOR) ^ word
        at += 4
    if at < stop:
        for k in range(stop - at):
            state ^= np.uint32(byte_at(at, k)) << np.uint32(8 * k)
        state = np.uint32(state * _FACTOR)
    state = np.uint32((state ^ state >> np.uint32(13)) * _FACTOR)
    return state ^ state >> np.uint32(15)


Numbers = npt.NDArray[np.int64]

Part: TypeAlias = Any
"""Part of a header's value: ``bytes``, the same for all records, or an Arrow array with an element for each
record, of byte strings, strings, or integers (which are written in decimal), also dictionary-encoded."""


class Producer(NamedTuple):
    """Producer that the broker knows, by InitProducerId; without an id it is not idempotent."""

    id: int = -1
    epoch: int = -1
    is_transactional: bool = False


NOT_IDEMPOTENT: Final = Producer()


class EncodedBatch(NamedTuple):
    """Record batch for a produce request, which may have one for each partition.

    Attributes:
        group: the group of its records.
        first, records: the first of its records, and their number.
        sequence: sequence number of the first one, -1 without a producer id.
        data: the bytes.
    """

    group: int
    first: int
    records: int
    sequence: int
    data: memoryview


_GROUP, _FIRST, _COUNT, _SEQUENCE, _START, _SIZE, _MAX_TIMESTAMP = range(7)
_FIELDS: Final = 7
"""Columns of the table of batches; the start and size are in bytes."""

_KEYS, _VALUES, _NAMES, _CONTENTS, _LISTS = 0, 4, 8, 12, 16
_BOUNDS, _BYTES, _END, _VALID = range(4)
_ADDRESSES: Final = 17
"""Addresses of the messages: for each column of bytes its bounds, its bytes, their end, and a byte for each
element, whether it is valid (0 if all are); then the bounds of the lists of headers."""

_INDEX: Final = 4
_PART: Final = 5
"""Addresses of a part of an own header: as above, and the element of each record (0: each has its own). The
bounds are 0 for integers, whose bytes are int64."""


class _Added(NamedTuple):
    """Own headers: constant texts before and after each value that differs from record to record.

    Attributes:
        headers: number of own headers.
        text, bounds: address of the texts, and the bounds of each; there is one more than values.
        starts: first part of each value, and the number of parts.
        parts: addresses, int64[parts, 5].
    """

    headers: int
    text: int
    bounds: Numbers
    starts: Numbers
    parts: Numbers


class _Records(NamedTuple):
    """Records to encode.

    Attributes:
        messages: addresses of the messages, int64[17].
        rows: the message of each record.
        timestamps, step: of record ``i`` it is ``timestamps[i * step]``.
        added: own headers.
        sizes: the length of each record, as `_measure` finds it.
    """

    messages: Numbers
    rows: Numbers
    timestamps: Numbers
    step: int
    added: _Added
    sizes: Numbers


_MOST_BYTES: Final = (1 << 31) - 1


def encode(
    messages: pa.RecordBatch,
    rows: npt.NDArray[np.integer[Any]],
    timestamps: int | npt.NDArray[np.integer[Any]],
    own: Mapping[str, Part | tuple[Part, ...]] | None = None,
    *,
    bounds: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    sequences: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
    producer: Producer = NOT_IDEMPOTENT,
    compression: str = "none",
    batch_bytes: int = 1 << 17,
    most_bytes: int = 1 << 20,
) -> list[EncodedBatch]:
    """Encode records as batches. O(bytes).

    Args:
        messages: columns ``key``, ``value`` (byte strings or strings) and ``headers`` (lists of structs of
            ``key`` and ``value``).
        rows: the message of each record.
        timestamps: of each record, or of all, in milliseconds since 1970.
        own: own headers, after those of the message, by name. A value may be put together of several parts,
            and is NULL if one of them is.
        bounds: first record of each group, and the number of records; all records are one group without it.
        sequences: the sequence number of each group's first record; 0 without it.
        producer: the producer; its batches count the sequence numbers on, modulo 2^31.
        compression: one of `NAMES`. A batch that would become longer stays as it is.
        batch_bytes: a batch has no more bytes before compression, unless it is a single record.
        most_bytes: limit of the bytes of a batch, and so of a record.

    Raises:
        RecordBatchError: a record, named by its number, exceeds the limit.
        ValueError: columns and rows do not fit together.
    """
    if compression not in NAMES:
        raise ValueError(f"compression must be one of {', '.join(NAMES)}, not {compression!r}")
    count = len(rows)
    kept: list[Any] = []  # the arrays whose addresses are used
    columns = _columns(messages, kept)
    added = _added(own or {}, count, kept)
    row = _numbers(rows)
    _check(row, len(messages), "rows", "messages")
    times = _numbers(np.atleast_1d(timestamps))
    step = np.ndim(timestamps)  # 0: one for all
    if step and len(times) != count:
        raise ValueError(f"{len(times):,} timestamps for {count:,} records")
    groups = _numbers([0, count] if bounds is None else bounds)
    if len(groups) < 1 or groups[0] != 0 or groups[-1] != count or np.any(groups[1:] < groups[:-1]):
        raise ValueError(f"the bounds of the groups must ascend from 0 to {count:,}")
    numbers = np.zeros(len(groups) - 1, np.int64) if sequences is None else _numbers(sequences)
    if len(numbers) != len(groups) - 1:
        raise ValueError(f"{len(numbers):,} sequence numbers for {len(groups) - 1:,} groups")
    codec = NAMES.index(compression)
    most = min(most_bytes, _MOST_BYTES)
    batch_bytes = min(batch_bytes, most)
    attributes = f.TRANSACTIONAL if producer.is_transactional else 0
    records = _Records(columns, row, times, step, added, np.empty(count, np.int64))
    table = np.empty((count, _FIELDS), np.int64)
    with compiling_alone("the encoder of records"):
        batches, size = _measure(records, groups, numbers, producer.id >= 0, batch_bytes, most, table)
        if batches < 0:
            raise RecordBatchError(
                f"record {~batches:,} needs a batch of {size:,} bytes; the limit is {most:,}"
            )
        out = pa.allocate_buffer(size + f.ROOM)
        _write(records, table[:batches], producer.id, producer.epoch, out.address, out.size)
    data = memoryview(out).cast("B")
    encoded = []
    for group, first, length, sequence, start, octets, _ in table[:batches].tolist():
        batch = data[start : start + octets]
        batch_attributes = attributes
        if codec != NONE and len(content := pack(codec, batch[f.RECORDS :])) < octets - f.RECORDS:
            batch = memoryview(bytearray().join((batch[: f.RECORDS], content)))
            batch_attributes |= codec
        _seal(batch, batch_attributes)
        encoded.append(EncodedBatch(group, first, length, sequence, batch))
    return encoded


def _seal(batch: memoryview, attributes: int) -> None:
    """Write what depends on a batch's final bytes."""
    from google_crc32c import value  # needs the extra `kafka`

    pack_into(">i", batch, f.LENGTH, len(batch) - f.UNCOUNTED)
    pack_into(">h", batch, f.ATTRIBUTES, attributes)
    pack_into(">I", batch, f.CRC, value(bytes(batch[f.ATTRIBUTES :])))


def _numbers(numbers: Any) -> Numbers:
    """Return writable int64 numbers.

    To numba, arrays that cannot be written are of another type, for which it would compile everything
    again.
    """
    array: Numbers = np.require(numbers, np.int64, ("C", "W"))
    return array


def _check(indices: Numbers, count: int, what: str, whose: str) -> None:
    if len(indices) and not (indices.min() >= 0 and indices.max() < count):
        raise ValueError(f"{what} must be from 0 to below {count:,}, the number of {whose}")


def _address(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _validity(column: Any, kept: list[Any]) -> int:
    """Return the address of a byte for each element, 0 if all are valid."""
    if not column.null_count:
        return 0
    valid = np.asarray(pc.is_valid(column)).view(np.uint8)
    kept.append(valid)
    return _address(valid)


def _texts(column: Any, kept: list[Any]) -> list[int]:
    """Return the addresses of a column of byte strings or strings: `_BOUNDS`, `_BYTES`, `_END`, `_VALID`."""
    texts = pc.cast(column, pa.large_binary())
    if not len(texts):
        return [0, 0, 0, 0]
    _, bounds, content = texts.buffers()
    kept.append(texts)
    start, stop = (content.address, content.address + content.size) if content else (0, 0)
    return [bounds.address + 8 * texts.offset, start, stop, _validity(texts, kept)]


def _columns(messages: pa.RecordBatch, kept: list[Any]) -> Numbers:
    """Return the addresses of messages, int64[17]."""
    lists = messages.column("headers")
    ends = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False), out=ends[1:])
    kept.append(ends)
    names, contents = lists.flatten().flatten()
    if names.null_count:
        raise ValueError("the name of a header is NULL")
    columns = (messages.column("key"), messages.column("value"), names, contents)
    return np.array(
        [*(address for column in columns for address in _texts(column, kept)), _address(ends)], np.int64
    )


def _added(own: Mapping[str, Part | tuple[Part, ...]], records: int, kept: list[Any]) -> _Added:
    """Return own headers; names and values that all records have are joined to one text each."""
    parts: list[list[int]] = []
    starts, bounds, text = [0], [0], bytearray()
    for name, value in own.items():
        values = value if isinstance(value, tuple) else (value,)
        text += _counted(name.encode())
        if all(isinstance(part, bytes) for part in values):
            text += _counted(b"".join(values))
        else:
            parts += [_part(part, records, kept) for part in values]
            starts.append(len(parts))
            bounds.append(len(text))
    bounds.append(len(text))
    content = pa.py_buffer(bytes(text))
    kept.append(content)
    table = np.array(parts, np.int64).reshape(-1, _PART)
    return _Added(len(own), content.address, np.array(bounds, np.int64), np.array(starts, np.int64), table)


def _part(part: Part, records: int, kept: list[Any]) -> list[int]:
    """Return the addresses of a part, `_PART`."""
    index = None
    if isinstance(part, bytes):
        index, part = np.zeros(records, np.int64), pa.array([part], pa.binary())
    elif len(part) != records:
        raise ValueError(f"an own header has {len(part):,} values for {records:,} records")
    elif pa.types.is_dictionary(part.type):
        if part.indices.null_count:
            part = part.dictionary_decode()
        else:
            index, part = _numbers(part.indices.to_numpy(zero_copy_only=False)), part.dictionary
            _check(index, len(part), "indices of an own header", "values of its dictionary")
    if pa.types.is_integer(part.type):
        numbers = _numbers(pc.fill_null(pc.cast(part, pa.int64()), 0).to_numpy(zero_copy_only=False))
        kept.append(numbers)
        addresses = [0, _address(numbers), 0, _validity(part, kept)]
    else:
        addresses = _texts(part, kept)
    kept.append(index)
    return [*addresses, 0 if index is None else _address(index)]


def _counted(content: bytes) -> bytes:
    """Return a length and its bytes."""
    rest, octets = 2 * len(content), bytearray()
    while rest >= 0x80:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(octets) + bytes([rest]) + content


@compiled
def _measure(
    records: _Records,
    groups: Numbers,
    sequences: Numbers,
    is_counted: bool,
    batch_bytes: int,
    most: int,
    table: Numbers,
) -> tuple[int, int]:
    """Divide the records into batches; return the number of batches and their bytes.

    If a record is too large: ``~record``, and the bytes of a batch with it.
    """
    rows, timestamps, step, added = records.rows, records.timestamps, records.step, records.added
    batches, total = 0, 0
    row, shared = -1, 0
    for group in range(len(groups) - 1):
        record, last = groups[group], groups[group + 1]
        sequence = sequences[group]
        while record < last:
            first, size = record, f.RECORDS
            base = latest = timestamps[record * step]
            while record < last:
                if rows[record] != row:
                    row = rows[record]
                    shared = _shared_size(records.messages, row, added.headers)
                timestamp = timestamps[record * step]
                length = 1 + size_of_varint(timestamp - base) + size_of_varint(record - first)
                length += shared + _own_size(added, record)
                whole = size_of_varint(length) + length
                if f.RECORDS + whole > most:
                    return ~record, f.RECORDS + whole
                if record > first and size + whole > batch_bytes:
                    break
                latest = max(latest, timestamp)
                records.sizes[record] = length
                size += whole
                record += 1
            count = record - first
            table[batches, _GROUP], table[batches, _FIRST], table[batches, _COUNT] = group, first, count
            table[batches, _SEQUENCE] = sequence if is_counted else -1
            table[batches, _START], table[batches, _SIZE] = total, size
            table[batches, _MAX_TIMESTAMP] = latest
            sequence = sequence + count & 0x7FFFFFFF  # after the largest int32 comes 0
            total += size
            batches += 1
    return batches, total


@compiled
def _write(
    records: _Records,
    table: Numbers,
    producer: int,
    epoch: int,
    out: int,
    room: int,
) -> None:
    """Write the batches of the table to an address where there is ``room``."""
    rows, timestamps, step, added = records.rows, records.timestamps, records.step, records.added
    row, shared, shared_size = -1, 0, 0
    for batch in range(len(table)):
        at, first, count = out + table[batch, _START], table[batch, _FIRST], table[batch, _COUNT]
        base = timestamps[first * step]
        put_number(at + f.BASE_OFFSET, 8, 0)  # the broker numbers the records
        put_number(at + f.LEADER_EPOCH, 4, -1)
        put_number(at + f.MAGIC, 1, 2)
        put_number(at + f.LAST_DELTA, 4, count - 1)
        put_number(at + f.BASE_TIMESTAMP, 8, base)
        put_number(at + f.MAX_TIMESTAMP, 8, table[batch, _MAX_TIMESTAMP])
        put_number(at + f.PRODUCER_ID, 8, producer)
        put_number(at + f.PRODUCER_EPOCH, 2, epoch)
        put_number(at + f.BASE_SEQUENCE, 4, table[batch, _SEQUENCE])
        put_number(at + f.COUNT, 4, count)
        at += f.RECORDS
        for record in range(first, first + count):
            at = put_varint(at, records.sizes[record])
            put_byte(at, np.uint8(0))
            at = put_varint(at + 1, timestamps[record * step] - base)
            at = put_varint(at, record - first)
            if rows[record] == row:
                at = paste(at, shared, shared_size, out + room)
            else:
                row, shared = rows[record], at
                at = _put_shared(records.messages, row, added.headers, at)
                shared_size = at - shared
            at = _put_own(added, record, at)


# What the records of a message share: key, value, the number of all headers, and those of the message.


@inlined
def _size_at(messages: Numbers, column: int, element: int) -> int:
    """Return the bytes of an element of a column, -1 for NULL."""
    valid, bounds = messages[column + _VALID], messages[column + _BOUNDS]
    if valid and not byte_at(valid, element):
        return -1
    return long_at(bounds, element + 1) - long_at(bounds, element)  # type: ignore[no-any-return]


@inlined
def _field_size(size: int) -> int:
    return size_of_varint(size) + max(size, 0)


@inlined
def _put_field(messages: Numbers, column: int, element: int, at: int) -> int:
    """Write an element of a column with its length."""
    size = _size_at(messages, column, element)
    at = put_varint(at, size)
    if size <= 0:
        return at
    source = messages[column + _BYTES] + long_at(messages[column + _BOUNDS], element)
    return paste(at, source, size, messages[column + _END])


@inlined
def _shared_size(messages: Numbers, row: int, own: int) -> int:
    size = _field_size(_size_at(messages, _KEYS, row)) + _field_size(_size_at(messages, _VALUES, row))
    first, last = long_at(messages[_LISTS], row), long_at(messages[_LISTS], row + 1)
    for header in range(first, last):
        size += _field_size(_size_at(messages, _NAMES, header))
        size += _field_size(_size_at(messages, _CONTENTS, header))
    return size + size_of_varint(last - first + own)


@inlined
def _put_shared(messages: Numbers, row: int, own: int, at: int) -> int:
    at = _put_field(messages, _KEYS, row, at)
    at = _put_field(messages, _VALUES, row, at)
    first, last = long_at(messages[_LISTS], row), long_at(messages[_LISTS], row + 1)
    at = put_varint(at, last - first + own)
    for header in range(first, last):
        at = _put_field(messages, _NAMES, header, at)
        at = _put_field(messages, _CONTENTS, header, at)
    return at


# Own headers: constant bytes, then a value's length and parts, and so on.


@inlined
def _element(parts: Numbers, part: int, record: int) -> int:
    index = parts[part, _INDEX]
    return long_at(index, record) if index else record


@inlined
def _part_size(parts: Numbers, part: int, record: int) -> int:
    """Return the bytes of a part, -1 for NULL."""
    element = _element(parts, part, record)
    valid, bounds = parts[part, _VALID], parts[part, _BOUNDS]
    if valid and not byte_at(valid, element):
        return -1
    if bounds == 0:
        return _digits(long_at(parts[part, _BYTES], element))
    return long_at(bounds, element + 1) - long_at(bounds, element)  # type: ignore[no-any-return]


@inlined
def _value_size(parts: Numbers, first: int, last: int, record: int) -> int:
    """Return the bytes of an own header's value, -1 for NULL."""
    total = 0
    for part in range(first, last):
        size = _part_size(parts, part, record)
        if size < 0:
            return -1
        total += size
    return total


@inlined
def _own_size(added: _Added, record: int) -> int:
    size = added.bounds[len(added.starts)]
    for value in range(len(added.starts) - 1):
        size += _field_size(_value_size(added.parts, added.starts[value], added.starts[value + 1], record))
    return size  # type: ignore[no-any-return]


@inlined
def _put_own(added: _Added, record: int, at: int) -> int:
    parts, starts, bounds = added.parts, added.starts, added.bounds
    values = len(starts) - 1
    stop = added.text + bounds[values + 1]
    for value in range(values):
        at = paste(at, added.text + bounds[value], bounds[value + 1] - bounds[value], stop)
        size = _value_size(parts, starts[value], starts[value + 1], record)
        at = put_varint(at, size)
        if size <= 0:
            continue
        for part in range(starts[value], starts[value + 1]):
            element, places = _element(parts, part, record), parts[part, _BOUNDS]
            if places == 0:
                at = _put_decimal(at, long_at(parts[part, _BYTES], element))
            else:
                start = long_at(places, element)
                size = long_at(places, element + 1) - start
                at = paste(at, parts[part, _BYTES] + start, size, parts[part, _END])
    start = added.text + bounds[values]
    return paste(at, start, stop - start, stop)


@inlined
def _digits(number: int) -> int:
    """Return the characters of a number in decimal."""
    rest = np.uint64(-number if number < 0 else number)
    size, power = 1, np.uint64(10)
    while rest >= power and size < 19:
        power *= np.uint64(10)
        size += 1
    return size + (number < 0)


@inlined
def _put_decimal(at: int, number: int) -> int:
    after = at + _digits(number)
    rest = np.uint64(-number if number < 0 else number)
    place = after
    while True:
        place -= 1
        put_byte(place, np.uint8(np.uint64(48) + rest % np.uint64(10)))
        rest //= np.uint64(10)
        if rest == np.uint64(0):
            break
    if number < 0:
        put_byte(at, np.uint8(45))
    return after
