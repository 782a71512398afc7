"""Decoder of record batches: fetched bytes of one partition to Arrow columns.

A part of the bytes is read in five steps, of which two are Python, once for a batch::

    scan     batch by batch: header, whether it was aborted ─→ a row of a table for each
    check    the checksum of each batch
    unpack   compressed batches, each into a buffer of its own
    measure  record by record: all lengths are checked and added up
    fill     the columns are allocated with these sizes, and filled without further checks
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.kafka.batches import RecordBatchError
from selectroute.kafka.batches import layout as f
from selectroute.kafka.batches.codecs import NONE, ZSTD, UnpackError, unpack
from selectroute.kafka.batches.layout import number_at, paste, put_byte, put_int, put_word, varint_at
from selectroute.match.compiled import compiled, compiling_alone, inlined
from selectroute.match.memory import byte_at

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""Columns of records. The timestamp is in milliseconds since 1970, any 64-bit number, NULL if the record has
none; headers are a list, empty if there are none, in the record's order."""

MOST_BATCH_BYTES: Final = 256 << 20
MOST_PART_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 1_000
"""Times its packed size to which a batch may unpack if that is more than a part: a few KB of zstd can unpack
to all that `MOST_BATCH_BYTES` allows."""
MOST_HEADERS: Final = 10_000
"""Headers of a record that are read. No message has so many properties, and an empty header is two bytes in a
record and some fifty in the columns and what is made from them."""
_MOST_COLUMN_BYTES: Final = (1 << 31) - 1
"""Bytes of a column of Arrow, whose bounds are int32."""

_NO_END: Final = (1 << 63) - 1
"""The end of a partition that has none: above all offsets."""


class Decoded(NamedTuple):
    """Records of some whole batches.

    Attributes:
        records: the wanted ones, `COLUMNS`, by offset.
        next_offset: the offset from which to go on; the wanted end when all before it has been read.
        size: bytes read so far.
        lacks: bytes of the batch that begins after them, at least, if it is cut off; else 0.
    """

    records: pa.RecordBatch
    next_offset: int
    size: int
    lacks: int


Numbers = npt.NDArray[np.int64]

_ROWS_OF_TABLE: Final = 4_096
"""Batches that are scanned at a time."""

_START, _STOP, _CODEC, _IS_VISIBLE, _BASE, _LAST, _COUNT, _TIMESTAMP, _IS_STAMPED, _AFTER, _NEXT = range(11)
_CRC: Final = 11
_FIELDS: Final = 12
"""Columns of a table of batches: the addresses between which the records are; the codec; whether some may be
visible; base offset, last offset delta and number of records; a timestamp, of all records if the log stamped
them, else their base; the address after the batch; the offset after it; and its checksum."""

_MORE, _DONE, _CUT, _OLD, _MAGIC, _LENGTH, _LARGE, _CHECKSUM, _BATCH, _ORDER, _UNKNOWN_CODEC = range(11)
_ENDING, _RECORD, _RECORD_ORDER, _REST = range(11, 15)
_PROBLEMS: Final = {
    _OLD: "a message set of magic {0}, as before Kafka 0.11; only record batches (magic 2) are read",
    _MAGIC: "a record batch of magic {0}; only magic 2 is known",
    _LENGTH: "the record batch is damaged: its length is {0}",
    _LARGE: "the record batch has {0:,} bytes; the limit is {1:,}",
    _CHECKSUM: "the record batch is damaged: its checksum (CRC-32C) is wrong",
    _BATCH: "the record batch is damaged: it claims {0} records, the last at offset delta {1}",
    _ORDER: "the record batch is damaged: its offsets begin before the previous batch ends",
    _UNKNOWN_CODEC: "the record batch has an unknown compression, number {0}",
    _ENDING: "the control batch is damaged: it has no marker of a transaction's end",
    _RECORD: "the record is damaged: the lengths of its fields do not add up to its own",
    _RECORD_ORDER: "the record is damaged: its offset delta {0} is not above that before, or too large",
    _REST: "the record batch is damaged: bytes follow its last record",
}
"""What ended a scan or a measuring: more batches, the wanted end or that of the bytes, a cut-off batch; any
other is an error, with its sentence."""

_RECORDS, _NULL_KEYS, _KEY_BYTES, _NULL_VALUES, _VALUE_BYTES = range(5)
_HEADERS, _NAME_BYTES, _NULL_HEADERS, _HEADER_BYTES = range(5, 9)
_TOTALS: Final = 9
"""What `_measure` adds up."""

_OFFSETS, _TIMESTAMPS, _LISTS = range(3)
_KEYS, _VALUES, _NAMES, _CONTENTS = 3, 6, 9, 12
_TARGETS: Final = 15
"""Addresses to fill: two columns and the bounds of the lists of headers; then for each column of bytes its
bitmap (0 if nothing in it is NULL), bounds and bytes."""

_ABORT, _COMMIT, _OTHER, _INVALID = 0, 1, 2, -1
"""Types of control records; those of Kafka's own topics end no transaction."""


def decode(
    fetched: Any,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    most_batch_bytes: int = MOST_BATCH_BYTES,
    most_part_bytes: int = MOST_PART_BYTES,
) -> Iterator[Decoded]:
    """Yield the visible records of a fetch response, in one or more parts. O(bytes).

    Records of control batches and of aborted transactions are not visible. The last batch may be cut off: it
    is left to the next fetch. The name of a header is as Kafka's Java client reads it: U+FFFD stands for what
    is not UTF-8. Of a record's headers the first `MOST_HEADERS` are read.

    Args:
        fetched: the bytes of one partition: ``bytes``, or another buffer, which is copied.
        topic, partition: where they are from, for errors.
        start, end: the wanted offsets; the first batch may begin before ``start``, and there may be gaps.
        aborted: producer id and first offset of each aborted transaction in the response; none to read with
            isolation level ``read_uncommitted``.
        most_batch_bytes: limit of a batch's bytes, and of its records unpacked; below 2 GiB. A batch that
            unpacks to 1,000 times its size is at its limit when it exceeds a part.
        most_part_bytes: a part ends with the batch by which its records, unpacked, exceed this.

    At least one part is yielded, without records if there are none. Its columns are copies.

    Raises:
        RecordBatchError: bytes are damaged, of an older format, or exceed a limit. Parts that were yielded
            before are valid.
    """
    content = bytes(fetched)
    source = pa.py_buffer(content)
    low, high = start, _NO_END if end is None else end
    most = min(most_batch_bytes, _MOST_COLUMN_BYTES)
    part = min(most_part_bytes, (_MOST_COLUMN_BYTES - most) // 2)
    transactions = np.array(sorted(aborted), np.int64).reshape(-1, 2)
    producers, firsts = np.ascontiguousarray(transactions[:, 0]), np.ascontiguousarray(transactions[:, 1])
    ended = np.zeros(len(transactions), np.int64)
    table = np.empty((_ROWS_OF_TABLE, _FIELDS), np.int64)
    status = np.zeros(5, np.int64)
    at, following = source.address, 0

    def error(problem: str, offset: int) -> RecordBatchError:
        return RecordBatchError(problem, topic, partition, offset)

    state = _MORE
    while state == _MORE:
        with compiling_alone("the scan of record batches"):
            rows, state = _scan(
                at, source.address + source.size, low, high, following, most, part,
                producers, firsts, ended, table, status,
            )  # fmt: skip
        at, following = int(status[0]), int(status[1])
        damaged = _first_damaged(table[:rows], content, source.address)
        if damaged is not None:
            rows, state, status[4] = damaged, _CHECKSUM, table[damaged, _BASE]
            at, following = table[rows - 1, [_AFTER, _NEXT]].tolist()  # not used without rows
        first, is_last = 0, rows == 0 and state in _PROBLEMS
        while not is_last:
            last, unpacked = _unpack(table, first, rows, most, part, error)
            records = _columns(table[first:last], low, high, error)
            del unpacked  # kept alive until here: the table holds raw pointers into these buffers
            is_last = last == rows
            yield Decoded(
                records,
                min(max(following if is_last else int(table[last - 1, _NEXT]), low), high),
                (at if is_last else int(table[last - 1, _AFTER])) - source.address,
                int(status[2]) if is_last and state == _CUT else 0,
            )
            first = last
    if state in _PROBLEMS:
        raise error(_PROBLEMS[state].format(status[2], status[3]), int(status[4]))


def _first_damaged(table: Numbers, content: bytes, address: int) -> int | None:
    """Return the row of the first batch whose checksum is wrong."""
    from google_crc32c import value  # needs the extra `kafka`

    places = table[:, [_START, _STOP, _CRC]] - (address + f.RECORDS - f.ATTRIBUTES, address, 0)
    for row, (start, stop, expected) in enumerate(places.tolist()):
        if value(content[start:stop]) != expected:
            return row
    return None


_Error = Callable[[str, int], RecordBatchError]


def _unpack(
    table: Numbers, first: int, rows: int, most: int, part: int, error: _Error
) -> tuple[int, list[Any]]:
    """Unpack the compressed batches of a part; return the row after the part, and the buffers.

    The table gets the new addresses.
    """
    buffers: list[Any] = []
    size = 0
    own = table[first:rows]
    for row in np.flatnonzero((own[:, _CODEC] != NONE) & (own[:, _IS_VISIBLE] != 0)).tolist():
        start, stop = own[row, _START : _STOP + 1].tolist()
        try:
            packed = memoryview(pa.foreign_buffer(start, stop - start)).cast("B")
            content = unpack(
                int(own[row, _CODEC]), packed, min(most, max(part, _MOST_RATIO * (stop - start)))
            )
        except UnpackError as problem:
            raise error(str(problem), int(own[row, _BASE])) from None
        buffers.append(content)
        own[row, _START], own[row, _STOP] = content.address, content.address + content.size
        size += content.size
        if size > part:
            return first + row + 1, buffers
    return rows, buffers


def _columns(table: Numbers, low: int, high: int, error: _Error) -> pa.RecordBatch:
    """Return the wanted records of the visible batches of a table."""
    totals, status = np.zeros(_TOTALS, np.int64), np.zeros(2, np.int64)
    with compiling_alone("the columns of records"):
        state = _measure(table, low, high, totals, status)
        if state != _DONE:
            raise error(_PROBLEMS[state].format(status[0]), int(status[1]))
        to = np.zeros(_TARGETS, np.int64)
        count, headers = int(totals[_RECORDS]), int(totals[_HEADERS])
        plain = [
            pa.allocate_buffer(8 * count),
            pa.allocate_buffer(8 * count),
            pa.allocate_buffer(4 * count + 4),
        ]
        to[:3] = [buffer.address for buffer in plain]
        keys = _targets(to, _KEYS, count, totals[_NULL_KEYS], totals[_KEY_BYTES])
        values = _targets(to, _VALUES, count, totals[_NULL_VALUES], totals[_VALUE_BYTES])
        names = _targets(to, _NAMES, headers, 0, totals[_NAME_BYTES])
        contents = _targets(to, _CONTENTS, headers, totals[_NULL_HEADERS], totals[_HEADER_BYTES])
        _fill(table, low, high, to)
    pairs = pa.Array.from_buffers(
        HEADERS.value_type,
        headers,
        [None],
        children=[
            _texts(pa.Array.from_buffers(pa.binary(), headers, names)),
            pa.Array.from_buffers(pa.binary(), headers, contents),
        ],
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), count, [None, plain[_OFFSETS]]),
            _timestamps(plain[_TIMESTAMPS], count),
            pa.Array.from_buffers(pa.binary(), count, keys),
            pa.Array.from_buffers(pa.binary(), count, values),
            pa.Array.from_buffers(HEADERS, count, [None, plain[_LISTS]], children=[pairs]),
        ],
        schema=COLUMNS,
    )


def _timestamps(buffer: Any, count: int) -> Any:
    timestamps = pa.Array.from_buffers(pa.int64(), count, [None, buffer])
    absent = pc.equal(timestamps, f.NO_TIMESTAMP)
    return pc.if_else(absent, None, timestamps) if absent.true_count else timestamps


def _targets(to: Numbers, column: int, count: int, nulls: int, size: int) -> list[Any]:
    """Allocate the buffers of a column of bytes, and enter their addresses."""
    bitmap = pa.py_buffer(np.zeros((count + 7) // 8, np.uint8)) if nulls else None
    buffers = [bitmap, pa.allocate_buffer(4 * count + 4), pa.allocate_buffer(int(size) + f.ROOM)]
    to[column : column + 3] = [0 if buffer is None else buffer.address for buffer in buffers]
    return buffers


_SURROGATES: Final = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT: Final = "\ufffd"


def _texts(names: Any) -> Any:
    """Return names of headers as strings.

    Python and Java replace the same bytes by U+FFFD, with one exception: for an encoded surrogate Java
    has one, Python three. Only here, where a name is not UTF-8, a Python object is made for each distinct
    name.
    """
    try:
        return pc.cast(names, pa.string())  # O(bytes): it checks them, and copies nothing
    except pa.ArrowInvalid:
        encoded = names.dictionary_encode()
        texts = [
            _SURROGATES.sub(_REPLACEMENT.encode(), name).decode("utf-8", "replace")
            for name in encoded.dictionary.to_pylist()
        ]
        return pa.array(texts, pa.string()).take(encoded.indices)


@compiled
def _scan(
    at: int,
    stop: int,
    low: int,
    high: int,
    following: int,
    most: int,
    part: int,
    producers: Numbers,
    firsts: Numbers,
    ended: Numbers,
    table: Numbers,
    status: Numbers,
) -> tuple[int, int]:
    """Enter batches into the table; return how many, and what ended the scan.

    ``following`` is the offset after the batches so far. ``status`` gets the address of the first batch that
    was not read, the offset after those that were, two numbers about an error (or how many bytes a batch
    lacks), and its offset.
    """
    rows = 0
    size = 0
    state = _MORE
    status[2:] = 0
    while rows < len(table) and size <= part:
        left = stop - at
        if following >= high or left == 0:
            state = _DONE
            break
        if left <= f.MAGIC:
            state, status[2] = _CUT, f.RECORDS
            break
        base, magic, length = number_at(at, 8), number_at(at + f.MAGIC, 1), number_at(at + f.LENGTH, 4)
        whole = length + f.UNCOUNTED
        status[4] = base
        if magic != 2:
            state, status[2] = _OLD if 0 <= magic < 2 else _MAGIC, magic
            break
        if base >= high:
            state, following = _DONE, high
            break
        if whole < f.RECORDS:
            state, status[2] = _LENGTH, length
            break
        if whole > most:
            state, status[2], status[3] = _LARGE, whole, most
            break
        if whole > left:
            state, status[2] = _CUT, whole
            break
        attributes = number_at(at + f.ATTRIBUTES, 2)
        count, last = number_at(at + f.COUNT, 4), number_at(at + f.LAST_DELTA, 4)
        if base < following:
            state = _ORDER
            break
        if not 0 <= count <= last + 1 or base > _NO_END - (1 << 32):
            state, status[2], status[3] = _BATCH, count, last
            break
        codec = attributes & f.CODEC
        if codec > ZSTD:
            state, status[2] = _UNKNOWN_CODEC, codec
            break
        following = base + last + 1
        is_visible = count > 0 and following > low
        producer = number_at(at + f.PRODUCER_ID, 8)
        if attributes & f.CONTROL:
            is_visible = False
            if count > 0:
                ending = _INVALID if codec != NONE else _ending_at(at + f.RECORDS, at + whole)
                if ending == _INVALID:
                    state = _ENDING
                    break
                if ending != _OTHER:
                    _end(producers, firsts, ended, producer, base)
        elif attributes & f.TRANSACTIONAL and _is_aborted(producers, firsts, ended, producer, following - 1):
            is_visible = False
        is_stamped = attributes & f.LOG_APPEND_TIME != 0
        table[rows, _START], table[rows, _STOP] = at + f.RECORDS, at + whole
        table[rows, _CODEC], table[rows, _IS_VISIBLE] = codec, is_visible
        table[rows, _BASE], table[rows, _LAST], table[rows, _COUNT] = base, last, count
        table[rows, _TIMESTAMP] = number_at(at + (f.MAX_TIMESTAMP if is_stamped else f.BASE_TIMESTAMP), 8)
        table[rows, _IS_STAMPED] = is_stamped
        table[rows, _AFTER], table[rows, _NEXT] = at + whole, following
        table[rows, _CRC] = number_at(at + f.CRC, 4) & 0xFFFFFFFF
        if is_visible:
            size += whole
        at += whole
        rows += 1
    status[0], status[1] = at, following
    return rows, state


@inlined
def _ending_at(at: int, stop: int) -> int:
    """Return the type of a control record: its key is a version and a type, two int16."""
    _, at = varint_at(at, stop)  # length
    _, at = varint_at(at + 1, stop)  # timestamp delta, after the attributes
    _, at = varint_at(at, stop)  # offset delta
    size, at = varint_at(at, stop)
    if size < 4 or stop - at < size:
        return _INVALID
    type_ = number_at(at + 2, 2)
    return type_ if type_ in (_ABORT, _COMMIT) else _OTHER


# Aborted transactions are sorted by producer and first offset; those of a producer end in this order. At the
# first one of each producer, `ended` is the number that ended.


@inlined
def _is_aborted(producers: Numbers, firsts: Numbers, ended: Numbers, producer: int, last: int) -> bool:
    """Return whether a producer's batch that ends at an offset is part of an aborted transaction."""
    group = np.searchsorted(producers, producer)
    if group == len(producers) or producers[group] != producer:
        return False
    row = group + ended[group]
    return row < len(producers) and producers[row] == producer and firsts[row] <= last  # type: ignore[no-any-return]


@inlined
def _end(producers: Numbers, firsts: Numbers, ended: Numbers, producer: int, offset: int) -> None:
    """End the transactions that a producer began before the marker at an offset.

    Kafka's Java client does this at the marker of an abort only. That of a commit cannot follow an aborted
    transaction unless its own marker was removed by compaction, together with all its records.
    """
    group = np.searchsorted(producers, producer)
    if group == len(producers):
        return
    row = group + ended[group]
    while row < len(producers) and producers[row] == producer and firsts[row] <= offset:
        row += 1
    ended[group] = row - group


@inlined
def _after(at: int, size: int, stop: int) -> int:
    """Return the address after a field; `BEYOND` if the field is cut off."""
    if size <= 0:
        return at
    return at + size if size <= stop - at else f.BEYOND


@compiled
def _measure(table: Numbers, low: int, high: int, totals: Numbers, status: Numbers) -> int:
    """Check all lengths of the visible batches, and add up what `_fill` will write.

    Returns `_DONE` or what is wrong; then ``status`` gets a number about the error, and its offset.
    """
    records, key_bytes, value_bytes, null_keys, null_values = 0, 0, 0, 0, 0
    headers, name_bytes, content_bytes, null_headers = 0, 0, 0, 0
    for batch in range(len(table)):
        if not table[batch, _IS_VISIBLE]:
            continue
        at, stop = table[batch, _START], table[batch, _STOP]
        base, last = table[batch, _BASE], table[batch, _LAST]
        before = -1
        for _ in range(table[batch, _COUNT]):
            status[1] = base + before + 1
            size, at = varint_at(at, stop)
            if not 0 < size <= stop - at:
                return _RECORD
            end = at + size
            _, at = varint_at(at + 1, end)  # the timestamp's delta, after the attributes
            delta, at = varint_at(at, end)
            if not before < delta <= last:
                status[0] = delta
                return _RECORD_ORDER
            before = delta
            status[1] = base + delta
            is_wanted = low <= base + delta < high
            key, at = varint_at(at, end)
            at = _after(at, key, end)
            value, at = varint_at(at, end)
            at = _after(at, value, end)
            count, at = varint_at(at, end)
            if not 0 <= count <= (end - at) // f.SMALLEST_HEADER:
                return _RECORD
            if is_wanted:
                records += 1
                headers += min(count, MOST_HEADERS)
                key_bytes += max(key, 0)
                value_bytes += max(value, 0)
                null_keys += key < 0
                null_values += value < 0
            for number in range(count):
                name, at = varint_at(at, end)
                if name < 0:
                    return _RECORD
                at = _after(at, name, end)
                content, at = varint_at(at, end)
                at = _after(at, content, end)
                if is_wanted and number < MOST_HEADERS:
                    name_bytes += name
                    content_bytes += max(content, 0)
                    null_headers += content < 0
            if at != end:
                return _RECORD
        if at != stop:
            return _REST
    totals[_RECORDS], totals[_NULL_KEYS], totals[_KEY_BYTES] = records, null_keys, key_bytes
    totals[_NULL_VALUES], totals[_VALUE_BYTES] = null_values, value_bytes
    totals[_HEADERS], totals[_NAME_BYTES] = headers, name_bytes
    totals[_NULL_HEADERS], totals[_HEADER_BYTES] = null_headers, content_bytes
    return _DONE


@compiled
def _fill(table: Numbers, low: int, high: int, to: Numbers) -> None:
    """Write the columns of the wanted records, which `_measure` has checked."""
    offsets, timestamps, lists = to[_OFFSETS], to[_TIMESTAMPS], to[_LISTS]
    key_bitmap, key_bounds, key_bytes = to[_KEYS], to[_KEYS + 1], to[_KEYS + 2]
    value_bitmap, value_bounds, value_bytes = to[_VALUES], to[_VALUES + 1], to[_VALUES + 2]
    name_bounds, name_bytes = to[_NAMES + 1], to[_NAMES + 2]
    bitmap, bounds, contents = to[_CONTENTS], to[_CONTENTS + 1], to[_CONTENTS + 2]
    key_at, value_at, name_at, content_at = key_bytes, value_bytes, name_bytes, contents
    row, header = 0, 0
    for batch in range(len(table)):
        if not table[batch, _IS_VISIBLE]:
            continue
        at, stop = table[batch, _START], table[batch, _STOP]
        base, timestamp, is_stamped = table[batch, _BASE], table[batch, _TIMESTAMP], table[batch, _IS_STAMPED]
        for _ in range(table[batch, _COUNT]):
            size, at = varint_at(at, stop)
            end = at + size
            later, at = varint_at(at + 1, stop)
            delta, at = varint_at(at, stop)
            if not low <= base + delta < high:
                at = end
                continue
            put_word(offsets + 8 * row, np.uint64(base + delta))
            put_word(timestamps + 8 * row, np.uint64(timestamp if is_stamped else timestamp + later))
            size, at = varint_at(at, stop)
            put_int(key_bounds + 4 * row, key_at - key_bytes)
            if size >= 0:
                key_at = paste(key_at, at, size, stop)
                at += size
                _set(key_bitmap, row)
            size, at = varint_at(at, stop)
            put_int(value_bounds + 4 * row, value_at - value_bytes)
            if size >= 0:
                value_at = paste(value_at, at, size, stop)
                at += size
                _set(value_bitmap, row)
            count, at = varint_at(at, stop)
            put_int(lists + 4 * row, header)
            for _h in range(min(count, MOST_HEADERS)):
                size, at = varint_at(at, stop)
                put_int(name_bounds + 4 * header, name_at - name_bytes)
                name_at = paste(name_at, at, size, stop)
                at += size
                size, at = varint_at(at, stop)
                put_int(bounds + 4 * header, content_at - contents)
                if size >= 0:
                    content_at = paste(content_at, at, size, stop)
                    at += size
                    _set(bitmap, header)
                header += 1
            at = end
            row += 1
    put_int(key_bounds + 4 * row, key_at - key_bytes)
    put_int(value_bounds + 4 * row, value_at - value_bytes)
    put_int(lists + 4 * row, header)
    put_int(name_bounds + 4 * header, name_at - name_bytes)
    put_int(bounds + 4 * header, content_at - contents)


@inlined
def _set(bitmap: int, bit: int) -> None:
    """Set a bit of a validity bitmap, unless there is none."""
    if bitmap:
        at = bitmap + (bit >> 3)
        put_byte(at, byte_at(at, 0) | np.uint8(1) << np.uint8(bit & 7))
