"""Records are written byte for byte as a plain reference writes them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectroute.kafka.batches import RecordBatchError
from selectroute.kafka.batches.codecs import NAMES
from selectroute.kafka.batches.decode import COLUMNS, HEADERS, decode
from selectroute.kafka.batches.encode import Producer, encode
from tests.support.record_batches import TRANSACTIONAL, Record, batch_bytes, batches, records

FIELDS = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
OWN = st.lists(st.tuples(st.text(max_size=20), FIELDS), max_size=4)
MESSAGES = st.lists(st.tuples(FIELDS, FIELDS, OWN), max_size=6)
TIMES = st.integers(-(1 << 62), 1 << 62)


def columns(messages, value_type=None):
    """Return messages (key, value, headers) as columns."""
    lists = [[{"key": name, "value": value} for name, value in headers] for _, _, headers in messages]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _, _ in messages], pa.binary()),
            pa.array([value for _, value, _ in messages], value_type or pa.binary()),
            pa.array(lists, HEADERS),
        ],
        ["key", "value", "headers"],
    )


def expected(messages, rows, times, own=(), **fields):
    """Return the batch of the reference: row ``i`` with the own headers ``own[i]``."""
    given = []
    for number, row in enumerate(rows):
        key, value, headers = messages[row]
        headers = tuple((name.encode(), text) for name, text in [*headers, *(own[number] if own else ())])
        given.append(Record(number, times[number], key, value, headers))
    return batch_bytes(given, **fields)


SOME = [
    (b"key", b"value", [("color", b"red"), ("none", None)]),
    (None, None, []),
    (b"", b"", [("", b"")]),
    (b"k" * 300, b"v" * 70_000, [("n" * 200, b"c" * 300)]),
]


def test_records_are_written_as_the_reference_writes_them():
    rows, times = [0, 0, 3, 2, 1, 3, 0], [5, 5, 6, 4, 10**12, 0, -(10**12)]
    [batch] = encode(columns(SOME), np.array(rows), np.array(times), batch_bytes=1 << 20)
    assert bytes(batch.data) == expected(SOME, rows, times)
    assert batch[:4] == (0, 0, 7, -1)


@settings(deadline=None)
@given(MESSAGES, st.data())
def test_any_records_are_written_as_the_reference_writes_them(messages, data):
    rows = data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=12)) if messages else []
    times = data.draw(st.lists(TIMES, min_size=len(rows), max_size=len(rows)))
    ids = data.draw(st.lists(FIELDS, min_size=len(rows), max_size=len(rows)))
    own = {"id": pa.array(ids, pa.binary()), "fixed": b"always"}
    found = encode(columns(messages), np.array(rows, np.int32), np.array(times, np.int64), own)
    together = [[("id", one), ("fixed", b"always")] for one in ids]
    assert [bytes(one.data) for one in found] == ([expected(messages, rows, times, together)] if rows else [])
    if rows:
        [part] = decode(found[0].data, "cars", 0, 0)
        assert part.records.num_rows == len(rows)


LOGS = st.lists(st.tuples(st.integers(0, 1 << 40), FIELDS, FIELDS, OWN), min_size=1, max_size=8)


@settings(deadline=None)
@given(LOGS, st.sampled_from(NAMES))
def test_what_is_written_is_read(log, compression):
    messages = columns([one[1:] for one in log])
    times = np.array([one[0] for one in log])
    [batch] = encode(messages, np.arange(len(log)), times, compression=compression)
    [part] = decode(batch.data, "cars", 0, 0)
    assert part.records.column("offset").to_pylist() == [*range(len(log))]
    assert part.records.column("timestamp").to_pylist() == times.tolist()
    for name in ("key", "value", "headers"):
        assert part.records.column(name).equals(messages.column(name))
    # And once more, from the columns as they were read.
    [again] = encode(part.records, np.arange(len(log)), times, compression=compression)
    assert again == batch
    part.records.validate(full=True)
    assert part.records.schema == COLUMNS


# ---- own headers


def test_own_headers_follow_those_of_the_message_and_are_put_together():
    subscriptions = pa.array(["red", "blue"])
    own = {
        "subscription": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), subscriptions),
        "id": (
            b"cars/",
            pa.array([3, 3, 12], pa.int32()),
            b"/",
            pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), pa.array([1 << 40, -7])),
            b"/",
            pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), subscriptions),
        ),
        "revision": b"17",
        "text": pa.array(["a", None, "é"]),
        "number": pa.array([0, None, -(1 << 63)]),
        "last": (b"a", b"b"),
    }
    [batch] = encode(columns(SOME), np.array([0, 0, 1]), 9, own)
    ids = [b"cars/3/1099511627776/blue", b"cars/3/1099511627776/red", b"cars/12/-7/blue"]
    columns_of_own = {
        **{"subscription": [b"blue", b"red", b"blue"], "id": ids, "revision": [b"17"] * 3},
        **{"text": [b"a", None, "é".encode()], "number": [b"0", None, b"%d" % -(1 << 63)]},
        "last": [b"ab"] * 3,
    }
    together = [[(name, column[row]) for name, column in columns_of_own.items()] for row in range(3)]
    assert bytes(batch.data) == expected(SOME, [0, 0, 1], [9] * 3, together)


@settings(deadline=None)
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=30))
def test_integers_are_written_in_decimal(numbers):
    messages = columns([(None, None, [])])
    [batch] = encode(messages, np.zeros(len(numbers), np.int64), 0, {"n": pa.array(numbers, pa.int64())})
    found = [int(one.headers[0][1]) for one in records(bytes(batch.data))]
    assert found == numbers


def test_a_value_is_null_if_a_part_or_an_index_is():
    own = {"id": (b"a", pa.array([None, "b"]), pa.array(["c", None]))}
    [batch] = encode(columns(SOME), np.array([1, 1]), 0, own)
    assert [one.headers for one in records(bytes(batch.data))] == [((b"id", None),)] * 2
    part = pa.DictionaryArray.from_arrays(pa.array([None, 0], pa.int32()), pa.array(["x"]))
    [batch] = encode(columns(SOME), np.array([1, 1]), 0, {"id": part})
    assert [one.headers[0][1] for one in records(bytes(batch.data))] == [None, b"x"]


# ---- columns as they come


def test_slices_nulls_and_other_types_of_arrow():
    assert encode(columns(SOME), np.array([], np.int64), 0, {"id": pa.array([], pa.binary())}) == []
    assert encode(columns([]), np.array([], np.int64), 0) == []
    null = pa.RecordBatch.from_arrays(
        [pa.nulls(2, pa.binary()), ["text", None], pa.array([None, [{"key": "a", "value": b"b"}]], HEADERS)],
        ["key", "value", "headers"],
    )
    [batch] = encode(null, np.arange(2), 3)
    assert bytes(batch.data) == expected([(None, b"text", []), (None, None, [("a", b"b")])], [0, 1], [3, 3])
    whole = columns([*SOME, *SOME])
    times = [1, 2, 3]
    large = columns([*SOME, *SOME], pa.large_binary())
    for messages in (whole.slice(4), large.slice(4), whole.take(pa.array([0, 1, 2, 3]))):
        own = {"id": pa.array(["x", "a", "b", "c"]).slice(1), "n": pa.array([9, 1, 2, 3]).slice(1)}
        [batch] = encode(messages, np.array([0, 3, 2]), np.array(times), own, batch_bytes=1 << 20)
        together = [
            [("id", one), ("n", number)]
            for one, number in zip((b"a", b"b", b"c"), (b"1", b"2", b"3"), strict=True)
        ]
        assert bytes(batch.data) == expected(SOME, [0, 3, 2], times, together)


# ---- batches


def test_records_are_divided_by_size():
    sized = [(None, bytes(size), []) for size in (100, 5_000, 200)]
    messages = columns(sized)
    rows = np.array([0] * 50 + [1] + [2] * 10)
    found = encode(messages, rows, 0, batch_bytes=1_000)
    assert all(len(one.data) <= 1_000 or one.records == 1 for one in found)
    assert sum(one.records for one in found) == 61
    assert [one.first for one in found][:2] == [0, found[0].records]
    # Each could not take the record after it.
    sizes = [100] * 50 + [5_000] + [200] * 10
    for one, later in pairwise(found):
        assert len(one.data) + sizes[later.first] + 7 > 1_000
    for one in found:
        assert bytes(one.data) == expected(sized, rows[one.first :][: one.records], [0] * 61)


def test_each_group_has_batches_and_sequence_numbers_of_its_own():
    rows, bounds = np.array([0, 1, 2, 2, 0]), [0, 2, 2, 4, 5]
    producer = Producer(1 << 40, 7, True)
    most = (1 << 31) - 1
    options = {"bounds": bounds, "sequences": [10, 0, most, 3], "producer": producer, "batch_bytes": 1}
    found = encode(columns(SOME), rows, 5, **options)
    places = [(0, 0, 1, 10), (0, 1, 1, 11), (2, 2, 1, most), (2, 3, 1, 0), (3, 4, 1, 3)]
    assert [one[:4] for one in found] == places
    fields = {"attributes": TRANSACTIONAL, "producer": 1 << 40, "epoch": 7}
    for one in found:
        plain = expected(SOME, [rows[one.first]], [5], sequence=one.sequence, **fields)
        assert bytes(one.data) == plain


def test_a_record_above_the_limit_is_refused():
    [batch] = encode(columns(SOME), np.array([3]), 0)
    size = len(batch.data)
    [same] = encode(columns(SOME), np.array([3]), 0, most_bytes=size)
    assert same.data == batch.data
    with pytest.raises(RecordBatchError) as raised:
        encode(columns(SOME), np.array([0, 3]), 0, most_bytes=size - 1)
    assert str(raised.value) == f"record 1 needs a batch of {size:,} bytes; the limit is {size - 1:,}"


@pytest.mark.parametrize("compression", NAMES[1:])
def test_compressed_batches(compression):
    messages = columns([(None, b"%d" % k * 50, [("color", b"red")]) for k in range(5_000)])
    producer = Producer(5, 2, True)
    rows = np.arange(5_000)
    options = {"producer": producer, "batch_bytes": 1 << 22, "most_bytes": 1 << 22}
    [plain] = encode(messages, rows, 7, **options)
    [batch] = encode(messages, rows, 7, **options, compression=compression)
    assert len(batch.data) < len(plain.data) / 2
    [(fields, _)] = batches(bytes(batch.data))
    [(of_plain, _)] = batches(bytes(plain.data))
    attributes = TRANSACTIONAL | NAMES.index(compression)
    same = fields._replace(length=of_plain.length, crc=of_plain.crc, attributes=TRANSACTIONAL)
    assert fields.attributes == attributes and same == of_plain
    [part] = decode(batch.data, "cars", 0, 0)
    assert part.records.select(["key", "value", "headers"]).equals(messages)
    # A batch that would grow is not compressed.
    messages = columns([(None, b"x", [])])
    [plain] = encode(messages, np.array([0]), 7)
    [batch] = encode(messages, np.array([0]), 7, compression=compression)
    assert bytes(batch.data) == bytes(plain.data)


# ---- what does not fit together

OUTSIDE = pa.DictionaryArray.from_arrays(pa.array([5], pa.int32()), pa.array(["x"]), safe=False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rows": np.array([4])}, "below 4"),
        ({"rows": np.array([-1])}, "below 4"),
        ({"timestamps": np.array([1, 2])}, "2 timestamps for 1 records"),
        ({"own": {"id": pa.array(["a", "b"])}}, "2 values for 1 records"),
        ({"bounds": [0]}, "ascend from 0 to 1"),
        ({"bounds": [0, 2]}, "ascend from 0 to 1"),
        ({"bounds": [0, 1, 0, 1]}, "ascend from 0 to 1"),
        ({"bounds": [0, 1], "sequences": [1, 2]}, "2 sequence numbers for 1 groups"),
        ({"compression": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"own": {"id": OUTSIDE}}, "indices of an own header"),
        ({"messages": columns([(None, None, [(None, b"x")])])}, "NULL"),
    ],
)
def test_columns_that_do_not_fit_together(change, why):
    given = {"messages": columns(SOME), "rows": np.array([0]), "timestamps": 0, **change}
    with pytest.raises(ValueError, match=why):
        encode(**given)
