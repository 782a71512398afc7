"""Record batches are read as a plain reference reads them, and as Kafka's Java client shows them."""

import copy
import re
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.kafka.batches import RecordBatchError
from selectroute.kafka.batches.decode import COLUMNS, MOST_HEADERS, decode
from selectroute.spark.sources.kafka.columns import Headers
from tests.support.record_batches import (
    ABORT,
    COMMIT,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    batch_bytes,
    crc32c,
    marker,
    record_bytes,
    records,
    sealed,
    varint,
    visible,
)

ONE = Record(7, 1_000, b"key", b"value", ((b"name", b"content"), (b"none", None)))


def rows(part):
    """Return the records of a part as the reference has them."""
    columns = part.records.to_pydict()
    return [
        Record(offset, timestamp, key, value, tuple((one["key"].encode(), one["value"]) for one in headers))
        for offset, timestamp, key, value, headers in zip(*columns.values(), strict=True)
    ]


def read(data, start=0, end=None, aborted=(), **limits):
    """Return the records and the last part."""
    found = []
    for part in decode(data, "cars", 3, start, end, aborted, **limits):
        part.records.validate(full=True)
        assert part.records.schema == COLUMNS
        found += rows(part)
    return found, part


def problem(data, **options):
    with pytest.raises(RecordBatchError) as raised:
        read(data, **options)
    assert raised.value.topic == "cars" and raised.value.partition == 3
    return str(raised.value)


# ---- what is there


def test_every_field_of_a_record_is_read_and_no_bytes_are_no_records():
    found, last = read(batch_bytes([ONE]))
    assert found == [ONE]
    assert (last.next_offset, last.lacks) == (8, 0) and last.size == len(batch_bytes([ONE]))
    found, last = read(b"", 5)
    assert found == [] and (last.next_offset, last.size, last.lacks) == (5, 0, 0)
    assert last.records.schema == COLUMNS


def test_null_and_empty_are_not_the_same():
    given = [Record(0, 0, None, b"", ((b"", b""),)), Record(1, 0, b"", None, ((b"", None),)), Record(2)]
    assert read(batch_bytes(given))[0] == given


FIELDS = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20).map(str.encode), FIELDS), max_size=4).map(tuple)
TIMES = st.integers(0, 1 << 41)


@st.composite
def logs(draw):
    """Draw batches with gaps between and in them, as compaction leaves them."""
    offset = draw(st.integers(0, 1 << 40))
    found = []
    for _ in range(draw(st.integers(0, 5))):
        offset += draw(st.sampled_from([0, 0, 1, 1_000]))
        own = []
        for _ in range(draw(st.integers(1, 8))):
            own.append(Record(offset, draw(TIMES), draw(FIELDS), draw(FIELDS), draw(HEADERS)))
            offset += draw(st.sampled_from([1, 1, 1, 70]))
        found.append((own, draw(st.integers(0, 4)), offset - own[0].offset))
        offset += 2
    return found


@settings(deadline=None)
@given(logs(), st.data())
def test_any_log_is_read_as_it_was_written(log, data):
    stored = b"".join(batch_bytes(own, attributes=codec, last_delta=last) for own, codec, last in log)
    everything = [record for own, _, _ in log for record in own]
    offsets = [one.offset for one in everything] or [0]
    start = data.draw(st.integers(max(0, offsets[0] - 3), offsets[-1] + 3))
    end = data.draw(st.none() | st.integers(start, offsets[-1] + 3))
    limit = data.draw(st.sampled_from([0, 100, 1 << 20]))
    found, last = read(stored, start, end, most_part_bytes=limit)
    assert found == [one for one in everything if start <= one.offset and (end is None or one.offset < end)]
    assert end is None or last.next_offset <= end
    if everything and end is None:
        assert last.next_offset == max(start, log[-1][0][0].offset + log[-1][2] + 1)
        assert last.size == len(stored)


def test_a_part_ends_with_the_batch_that_fills_it():
    for codec in (0, 4):
        batches = [batch_bytes([Record(k, 0, None, bytes(1_000))], attributes=codec) for k in range(5)]
        parts = list(decode(b"".join(batches), "cars", 3, 0, most_part_bytes=1_500))
        assert [len(part.records) for part in parts] == [2, 2, 1]
        assert [part.next_offset for part in parts] == [2, 4, 5]
        ends = np.cumsum([len(one) for one in batches])
        assert [part.size for part in parts] == [ends[1], ends[3], ends[4]]


def test_more_batches_than_are_scanned_at_a_time():
    given = [Record(k, k) for k in range(5_000)]
    parts = list(decode(b"".join(batch_bytes([one]) for one in given), "cars", 3, 0))
    assert [len(part.records) for part in parts] == [4_096, 904]
    assert [record for part in parts for record in rows(part)] == given


def test_columns_go_where_headers_are_looked_up():
    given = [Record(0, 0, None, None, ((b"a", b"1"), (b"b", None))), Record(1), ONE._replace(offset=2)]
    [part] = decode(batch_bytes(given), "cars", 3, 0)
    headers = Headers(part.records.column("headers"))
    assert headers.counts.tolist() == [2, 0, 2] and set(headers.names) == {"a", "b", "name", "none"}
    assert headers.has("a").tolist() == [True, False, False] and not headers.has("b").any()


# ---- time


def test_timestamps_are_the_producers_or_the_one_when_the_batch_was_appended():
    given = [Record(0, 10), Record(1, 1 << 41), Record(2, -1)]
    assert [one.timestamp for one in read(batch_bytes(given))[0]] == [10, 1 << 41, None]
    stored = batch_bytes(given, attributes=LOG_APPEND_TIME, max_timestamp=99)
    assert [one.timestamp for one in read(stored)[0]] == [99, 99, 99]


# ---- names of headers


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"\xf0\x9f\x9a\x97", "🚗"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xed\xa0\x80!", "\ufffd!"),  # Java: one for a surrogate; Python has three
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
    ],
)
def test_what_is_not_utf_8_in_a_name_is_replaced(stored, name):
    given = [Record(0, 0, None, None, ((b"valid", b"\xff"), (stored, b"x"))), ONE]
    found, _ = read(batch_bytes(given))
    assert found[0].headers == ((b"valid", b"\xff"), (name.encode(), b"x"))
    assert found[1] == ONE


# ---- what is visible


def test_markers_of_transactions_are_not_records():
    stored = batch_bytes([Record(0)], attributes=TRANSACTIONAL, producer=5) + marker(1, COMMIT, 5)
    found, last = read(stored)
    assert found == [Record(0)] and last.next_offset == 2
    other = Record(0, 0, struct.pack(">hh", 0, 2), b"leader")
    found, last = read(batch_bytes([other], attributes=CONTROL))
    assert found == [] and last.next_offset == 1, "nor are other control batches"


def test_aborted_records_are_left_out_until_the_marker():
    def tx(offset, producer):
        return batch_bytes([Record(offset)], attributes=TRANSACTIONAL, producer=producer)

    plain = batch_bytes([Record(4)], producer=5)  # in no transaction
    committed = tx(0, 5) + marker(1, COMMIT, 5)
    stored = committed + tx(2, 5) + tx(3, 6) + plain + marker(5, ABORT, 5)
    stored += tx(6, 5) + marker(7, COMMIT, 6) + tx(8, 5) + marker(9, COMMIT, 5)
    stored += tx(10, 5) + marker(11, ABORT, 5)
    assert [one.offset for one in read(stored, 0, None, [(5, 2), (5, 10)])[0]] == [0, 3, 4, 6, 8]
    assert [one.offset for one in read(stored, 4, None, [(5, 2), (5, 10)])[0]] == [4, 6, 8]
    assert [one.offset for one in read(stored)[0]] == [0, 2, 3, 4, 6, 8, 10]


def test_an_aborted_batch_need_not_be_unpacked():
    stored = batch_bytes([Record(0)], attributes=TRANSACTIONAL | 4, producer=5, content=b"not zstd")
    assert read(stored, aborted=[(5, 0)])[0] == []
    assert "zstd" in problem(stored)


@st.composite
def transactions(draw):
    """Draw a log of transactions of three producers; and the aborted ones, with their markers."""
    stored, aborted, opened = [], [], {}
    offset = 0
    for _ in range(draw(st.integers(0, 25))):
        producer = draw(st.integers(1, 3))
        offset += draw(st.integers(0, 2))
        step = draw(st.sampled_from(["write", "write", "plain", "end"]))
        if step == "plain":
            stored.append(batch_bytes([Record(offset)], producer=producer))
        elif step == "write":
            opened.setdefault(producer, offset)
            own = [Record(offset), Record(offset + 1)]
            stored.append(batch_bytes(own, attributes=TRANSACTIONAL, producer=producer))
            offset += 1
        elif producer in opened:
            ending = draw(st.sampled_from([ABORT, COMMIT]))
            first = opened.pop(producer)
            if ending == ABORT:
                aborted.append((producer, first, offset))
            stored.append(marker(offset, ending, producer))
        offset += 1
    return stored, draw(st.permutations(aborted))


@settings(deadline=None)
@given(transactions(), st.integers(0, 12))
def test_transactions_are_read_as_kafkas_java_client_does(log, skipped):
    stored = log[0][skipped:]
    data = b"".join(stored)
    first = int.from_bytes(data[:8], "big")  # a broker lists the transactions that ended later
    aborted = [(producer, began) for producer, began, ended in log[1] if ended >= first]
    assert read(data, 0, None, aborted)[0] == list(visible(data, aborted))


def test_records_before_and_after_the_wanted_ones_are_left_out():
    stored = batch_bytes([Record(k) for k in range(10)]) + batch_bytes([Record(k) for k in range(10, 20)])
    found, last = read(stored, 4, 8)
    assert [one.offset for one in found] == [4, 5, 6, 7] and last.next_offset == 8
    found, last = read(stored, 4, 10)
    assert last.next_offset == 10 and last.size == len(stored) // 2
    found, last = read(stored, 12, 100)
    assert [one.offset for one in found] == [*range(12, 20)] and last.next_offset == 20
    # A gap may hide the wanted end, and compaction may have emptied a batch.
    found, last = read(batch_bytes([Record(3)]) + batch_bytes([Record(1_000)]), 0, 500)
    assert found == [Record(3)] and last.next_offset == 500
    emptied = batch_bytes([], base_offset=5, last_delta=4)
    found, last = read(emptied + batch_bytes([Record(10)]))
    assert found == [Record(10)] and last.next_offset == 11


# ---- compression


@pytest.mark.parametrize("codec", range(5))
def test_compressed_batches(codec):
    given = [ONE._replace(offset=k, value=bytes(k)) for k in range(300)]
    stored = batch_bytes(given[:200], attributes=codec) + batch_bytes(given[200:], attributes=codec)
    assert read(stored)[0] == given


@pytest.mark.parametrize("codec", range(1, 5))
def test_damaged_compression(codec):
    name = ("gzip", "snappy", "lz4", "zstd")[codec - 1]
    for content in (b"", b"damaged", bytes(100)):
        said = problem(batch_bytes([ONE], attributes=codec, content=content))
        assert said.startswith("cars-3@7: ") and (name in said or "the record is damaged" in said)


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_unpacks_to_too_much_is_refused_before_it_is_in_memory(codec):
    big = Record(0, 0, None, bytes(30_000_000))
    stored = batch_bytes([big], attributes=codec)
    assert len(stored) < 2_000_000
    tracemalloc.start()
    said = problem(stored, most_batch_bytes=4_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said == "cars-3@0: the unpacked records have more than 4,000,000 bytes, the limit"
    assert peak < 12_000_000


def test_a_small_batch_unpacks_to_a_part_or_a_thousand_times_its_size():
    zeros = batch_bytes([Record(0, 0, None, bytes(3_000_000))], attributes=4)
    assert len(zeros) < 1_000
    assert len(read(zeros, most_part_bytes=3_100_000)[0]) == 1
    assert "the unpacked records have more than" in problem(zeros, most_part_bytes=100_000)


def test_of_a_million_headers_so_many_are_read_as_no_message_has():
    many = Record(0, 0, b"k", b"v", ((b"", None),) * 1_000_000)
    whole = Record(1, 0, b"k", b"v", ((b"name", b"content"),) * MOST_HEADERS)
    stored = batch_bytes([many, whole, Record(2)])
    assert read(stored)[0] == [many._replace(headers=many.headers[:MOST_HEADERS]), whole, Record(2)]


def test_snappy_without_a_frame_cut_off_or_with_too_large_a_claim():
    def stored(content):
        return batch_bytes([ONE], attributes=2, content=content)

    plain = record_bytes(ONE, 7, 1_000)
    assert read(stored(pa.compress(plain, "snappy", asbytes=True)))[0] == [ONE]
    assert "claims more content" in problem(stored(b"\xff\xff\xff\x7f" + bytes(10)))
    frame = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 99)
    for content in (frame + b"x", frame[:-1], frame[:-4] + struct.pack(">i", -1)):
        assert "cut off" in problem(stored(content))


def test_unknown_compression():
    for codec in (5, 6, 7):
        said = problem(batch_bytes([ONE], attributes=codec, content=b"x"))
        assert said == f"cars-3@7: the record batch has an unknown compression, number {codec}"


# ---- bytes that end, and bytes that are wrong


def test_a_batch_that_is_cut_off_is_left_to_the_next_fetch():
    whole, more = batch_bytes([ONE]), batch_bytes([ONE._replace(offset=8)])
    for cut in range(1, len(more)):
        found, last = read(whole + more[:cut])
        assert found == [ONE] and last.size == len(whole) and last.next_offset == 8
        assert last.lacks == (len(more) if cut > 16 else 61)
        found, last = read(more[:cut])
        assert found == [] and (last.next_offset, last.size) == (0, 0)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_older_message_sets_and_unknown_magic_are_refused_in_one_sentence(magic):
    stored = struct.pack(">qiIbb", 7, 22, 0, magic, 0) + bytes(20)
    said = f"a message set of magic {magic}, as before Kafka 0.11; only record batches (magic 2) are read"
    if magic == 3:
        stored, said = batch_bytes([ONE], magic=3), "a record batch of magic 3; only magic 2 is known"
    assert problem(stored) == f"cars-3@7: {said}"


def test_one_wrong_bit_is_found():
    stored = bytearray(batch_bytes([ONE]))
    for at in range(17, len(stored)):
        stored[at] ^= 4
        assert re.search("damaged|unknown compression", problem(bytes(stored)))
        stored[at] ^= 4


def test_what_comes_before_a_batch_with_a_wrong_checksum_is_read():
    whole, next_ = batch_bytes([ONE]), bytearray(batch_bytes([ONE._replace(offset=8)]))
    next_[-1] ^= 4
    parts = decode(whole + bytes(next_) + whole, "cars", 3, 0, None)
    first = next(parts)
    assert rows(first) == [ONE] and (first.next_offset, first.size, first.lacks) == (8, len(whole), 0)
    with pytest.raises(RecordBatchError, match=r"cars-3@8: .* its checksum \(CRC-32C\) is wrong"):
        next(parts)


def test_lengths_that_cannot_be():
    stored = batch_bytes([ONE])
    for length in (-1, 0, 48):
        said = problem(stored[:8] + struct.pack(">i", length) + stored[12:])
        assert said == f"cars-3@7: the record batch is damaged: its length is {length}"


def test_a_batch_above_the_limit():
    stored = batch_bytes([ONE])
    assert read(stored, most_batch_bytes=len(stored))[0] == [ONE]
    said = problem(stored, most_batch_bytes=len(stored) - 1)
    assert said == f"cars-3@7: the record batch has {len(stored)} bytes; the limit is {len(stored) - 1}"
    huge = stored[:8] + struct.pack(">i", (1 << 31) - 1) + stored[12:]
    assert "2,147,483,659 bytes" in problem(huge)


def test_a_batch_that_begins_too_early():
    stored = batch_bytes([Record(5), Record(6)])
    assert "begin before the previous batch ends" in problem(stored + batch_bytes([Record(6)]))
    assert "begin before" in problem(batch_bytes([Record(-1)]))


def test_headers_of_batches_that_cannot_be():
    for fields in ({"count": -1}, {"count": 3}, {"last_delta": -2, "count": 0}):
        assert "it claims" in problem(batch_bytes([ONE], **fields))
    assert "it claims" in problem(batch_bytes([Record(2**63 - 2)]))


def test_a_damaged_marker():
    broken = batch_bytes([Record(0, 0, b"x")], attributes=CONTROL | TRANSACTIONAL, producer=1)
    packed = batch_bytes([Record(0, 0, bytes(4))], attributes=CONTROL | 4)
    said = "the control batch is damaged: it has no marker of a transaction's end"
    assert all(problem(stored).endswith(said) for stored in (broken, packed))


def with_content(content, count=1, last_delta=0):
    return batch_bytes([], base_offset=7, last_delta=last_delta, count=count, content=content)


GOOD = record_bytes(Record(7, -1), 7, -1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1],
        varint(-1) + GOOD[1:],
        varint(0) + GOOD[1:],
        varint(5) + GOOD[1:],
        varint(7) + GOOD[1:] + b"\0",
        varint(1 << 40) + GOOD[1:],
        b"\x80" * 12,
        b"\xff" * 9 + b"\x01" + GOOD[1:],
        varint(6) + b"\0\0\0" + varint(9) + b"\0\0",  # a key beyond the record
        varint(15) + b"\0\0\0" + varint(1 << 62) + b"\0\0\0",
        varint(15) + b"\0\0\0" + varint((1 << 63) - 1) + b"\0\0",
        varint(15) + b"\0\0\0\1" + varint((1 << 63) - 1) + b"\0",
        varint(16) + b"\0\0\0\1\1" + varint(1) + varint((1 << 63) - 1),
        varint(6) + b"\0\0\0\1\1" + varint(-1),  # headers
        varint(6) + b"\0\0\0\1\1" + varint(1),
        varint(15) + b"\0\0\0\1\1" + b"\xff" * 9 + b"\x01",  # -2^63 headers
        varint(15) + b"\0\0\0\1\1" + b"\xfe" + b"\xff" * 8 + b"\x01",
        varint(8) + b"\0\0\0\1\1" + varint(1) + varint(-1) + b"\0",  # a name that is NULL
        varint(8) + b"\0\0\0\1\1" + varint(1) + b"\0" + varint(1),
    ],
)
def test_records_whose_lengths_are_wrong(content):
    assert "cars-3@7: the record is damaged" in problem(with_content(content))


def test_records_whose_offsets_are_wrong():
    later = record_bytes(Record(8, -1), 7, -1)
    assert "offset delta 0 is not above" in problem(with_content(GOOD + GOOD, 2, 1))
    assert "offset delta 1 is not above" in problem(with_content(later))
    assert "offset delta -1 is not above" in problem(with_content(record_bytes(Record(6, -1), 7, -1)))
    said = "cars-3@7: the record batch is damaged: bytes follow its last record"
    assert problem(with_content(GOOD + b"\0")) == said


def test_parts_before_the_damage_are_read():
    stored = batch_bytes([Record(0)]) + batch_bytes([Record(1)], magic=3)
    parts = decode(stored, "cars", 3, 0)
    assert rows(next(parts)) == [Record(0)]
    with pytest.raises(RecordBatchError, match=r"cars-3@1: .* magic 3"):
        next(parts)


LOG = b"".join(
    batch_bytes([ONE._replace(offset=k + n, key=bytes(n)) for n in range(3)], attributes=codec, producer=k)
    for k, codec in enumerate((0, 0, 1, 2, 3, 4, TRANSACTIONAL, CONTROL | TRANSACTIONAL))
    for k in [10 * k]
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bytes_break_it(data):
    """Columns are read, or an error is raised; where checksums are made right again, one from deeper."""
    stored = bytearray(LOG)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stored) - 1))
        stored[at] = data.draw(st.integers(0, 255))
    stored = bytes(stored[: data.draw(st.sampled_from([len(stored), len(stored) // 2, 90, 61]))])
    if data.draw(st.booleans()):
        stored = resealed(stored)
    aborted = data.draw(st.lists(st.tuples(st.sampled_from([0, 60]), st.integers(0, 80)), max_size=2))
    try:
        for part in decode(stored, "cars", 3, 0, None, aborted, most_batch_bytes=1 << 20):
            part.records.validate(full=True)
            assert part.size <= len(stored)
    except RecordBatchError as error:
        assert str(error).startswith("cars-3@")


def resealed(stored):
    """Return batches with right checksums, as far as their lengths lead."""
    found, at = b"", 0
    while at + 61 <= len(stored):
        size = 12 + int.from_bytes(stored[at + 8 : at + 12], "big", signed=True)
        if size < 61 or at + size > len(stored):
            break
        found += sealed(stored[at : at + size])
        at += size
    return found + stored[at:]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_nor_any_records(content):
    stored = with_content(content, 3, 1_000)
    assert crc32c(stored[21:]) == int.from_bytes(stored[17:21], "big")
    try:
        found, _ = read(stored)
    except RecordBatchError:
        return
    assert found == list(records(stored))


def test_an_error_crosses_processes():
    error = RecordBatchError("damaged", "cars", 3, 7)
    assert str(copy.deepcopy(error)) == str(error) == "cars-3@7: damaged"  # it is rebuilt from its arguments
    assert str(RecordBatchError("too large")) == "too large"
    assert str(RecordBatchError("damaged", "cars", 3)) == "cars-3: damaged"
