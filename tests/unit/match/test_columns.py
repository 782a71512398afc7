"""Arrow types to property types, and the columns that no property can have."""

import numpy as np
import pyarrow as pa
import pytest

import selectroute as sr
from selectroute.match.columns.columns import ColumnTypeError, check_column
from selectroute.match.columns.from_messages import MIXED, from_messages, mixed_array
from selectroute.match.match import _joined
from selectroute.selector.dialect import DIALECTS
from selectroute.selector.evaluate import evaluate
from selectroute.selector.selector import Selector
from selectroute.selector.values import UNSUPPORTED


def matched(selector, column, name="x"):
    """Which rows of a column a selector selects."""
    index = sr.Index()
    index.add("s", selector)
    batch = pa.record_batch({name: column})
    return [len(row) == 1 for row in index.freeze().match(batch)]


def test_integer_columns_have_javas_width():
    """x * x * … wraps at the width that Java's promotion gives the type; a literal would make it a long."""
    product = " * ".join(["x"] * 6)  # 10^12 does not fit 32 bits
    wrapped = (10**12 + 2**31) % 2**32 - 2**31
    for arrow in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()):
        assert matched(f"{product} = {wrapped}", pa.array([100], arrow)) == [True], arrow
    for arrow in (pa.int64(), pa.uint32()):
        assert matched(f"{product} = {10**12}", pa.array([100], arrow)) == [True], arrow


def test_float_columns_are_no_decimal_twins():
    assert matched("x = 1.1", pa.array([1.1], pa.float32())) == [False]
    assert matched("x = 1.1F", pa.array([1.1], pa.float32())) == [True]
    assert matched("x = 1.1", pa.array([1.1], pa.float64())) == [True]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b"]),
        pa.array(["a", None, "b"], pa.large_string()),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["a", None, "b"])),
        pa.array(["z", "a", None, "b", "z"]).slice(1, 3),
        pa.array(["z", "a", None, "b", "z"]).dictionary_encode().slice(1, 3),
    ],
)
@pytest.mark.parametrize(
    ("selector", "rows"),
    [
        ("x = 'a'", [True, False, False]),
        ("x <> 'a'", [False, False, True]),
        ("x IS NULL", [False, True, False]),
        ("x IN ('b', 'c')", [False, False, True]),
        ("x NOT IN ('b', 'c')", [True, False, False]),
        ("x LIKE '_'", [True, False, True]),
        ("NOT (x > 1)", [True, False, True]),
        ("x = x", [True, False, True]),
    ],
)
def test_string_columns_of_every_form_and_slice(column, selector, rows):
    assert matched(selector, column) == rows


def test_boolean_columns_and_columns_that_are_null_or_absent():
    for name in ("x", "y", "X"):  # names are case-sensitive
        assert matched("x IS NULL", pa.nulls(2), name) == [True, True]
    assert matched("x", pa.array([True]), "X") == [False]
    column = pa.array([True, False, None])
    assert matched("x", column) == [True, False, False]
    assert matched("NOT x", column) == [False, True, False]
    assert matched("x = FALSE", column.slice(1)) == [True, False]


def test_nan_and_infinities_and_negative_zero():
    column = pa.array([float("nan"), float("inf"), float("-inf"), -0.0])
    assert matched("x <> x", column) == [True, False, False, False]
    assert matched("x = 0", column) == [False, False, False, True]
    assert matched("x > 1e308", column) == [False, True, False, False]
    assert matched("NOT (x > 1e308)", column) == [True, False, True, True]


def test_mixed_columns_have_a_type_in_each_row():
    values = [None, True, sr.Byte(5), sr.Short(5), sr.Int(5), sr.Long(5), sr.Float(5), sr.Double(5), "5"]
    batch = from_messages([sr.Message(properties={"x": value}) for value in values], ["x"])
    assert batch.schema.field("x").type == MIXED
    assert matched("x = 5", batch.column(0)) == [False, False] + [True] * 6 + [False]
    assert matched("x = '5'", batch.column(0)) == [False] * 8 + [True]
    assert matched("x", batch.column(0)) == [False, True] + [False] * 7
    assert matched("NOT (x > 4)", batch.column(0)) == [False, True] + [False] * 6 + [True]
    assert matched("x = 5", batch.column(0).slice(4, 2)) == [True, True]
    column = pa.array([None, {"tag": 5, "bits": 1, "text": None}, {"tag": 8, "bits": 0, "text": None}], MIXED)
    assert matched("x IS NULL", column) == [True, False, True], "a null struct is null"


def mixed(*rows, type_=MIXED):
    return pa.array([{"tag": tag, "bits": bits, "text": text} for tag, bits, text in rows], type_)


def double_bits(value):
    return np.float64(value).view(np.int64).item()


def test_any_bits_but_0_of_a_mixed_boolean_are_true():
    column = mixed((1, 0, None), (1, 1, None), (1, 2, None), (1, -1, None), (1, 256, None))
    assert matched("x", column) == [False, True, True, True, True]
    assert matched("NOT x", column) == [True, False, False, False, False]
    assert matched("x = TRUE AND y IS NULL", column) == [False, True, True, True, True]
    assert matched("x = x", column) == [True] * 5


@pytest.mark.parametrize(("tag", "width"), [(2, 8), (3, 16), (4, 32)])
def test_integers_of_a_mixed_column_are_within_their_type(tag, width):
    least, greatest = -(2 ** (width - 1)), 2 ** (width - 1) - 1
    column = mixed((tag, least, None), (tag, greatest, None), (5, 2**63 - 1, None), (0, 2**40, None))
    assert matched("x < 0", column) == [True, False, False, False]
    for bits in (least - 1, greatest + 1):
        column = mixed((tag, 1, None), (tag, bits, None))
        assert matched("NOT (x = 5)", column) == [True, True]  # unlike, and there
        assert matched("x <> 5", column) == [True, False]


def test_floats_of_a_mixed_column_are_floats():
    values = [0.5, float(np.float32(1.1)), float("inf"), float("-inf"), float("nan"), -0.0]
    column = mixed(*[(6, double_bits(value), None) for value in values], (7, double_bits(1.1), None))
    assert matched("x = 1.1F", column) == [False, True] + [False] * 5
    for value in (1.1, 1e300, 1e-300):
        assert matched("x > -1 OR x <= -1", mixed((6, double_bits(value), None))) == [False]


def test_a_mixed_column_may_promise_that_it_has_no_nulls():
    fields = [pa.field(field.name, field.type, nullable=False) for field in MIXED]
    column = mixed((5, 1, ""), (8, 0, "a"), type_=pa.struct(fields))
    assert column.type != MIXED
    assert matched("x = 1", column) == [True, False]
    assert matched("x = 'a'", column) == [False, True]
    assert matched("x = 1", pa.array([{"bits": 1, "tag": 5, "text": ""}])) == [False]


def test_a_header_in_a_mixed_column_takes_the_type_of_its_name():
    column = mixed((2, 4, None), (3, 4, None), (4, 4, None), (5, 4, None), (0, 0, None), (5, 5, None))
    for header in ("JMSPriority", "JMSTimestamp"):
        assert matched(f"{header} = 4", column, header) == [True] * 4 + [False] * 2
    # 2^16 * 2^16 wraps to 0 in an int, and not in a long.
    column = mixed((5, 2**16, None), (4, 2**16, None))
    assert matched("JMSPriority * JMSPriority = 0", column, "JMSPriority") == [True, True]
    assert matched("JMSTimestamp * JMSTimestamp = 0", column, "JMSTimestamp") == [False, False]
    assert matched("JMSTimestamp > 4", mixed((5, 2**40, None)), "JMSTimestamp") == [True]
    for row in ((5, 2**31, None), (2, 300, None), (7, double_bits(4.0), None), (8, 0, "4"), (1, 1, None)):
        assert matched("JMSPriority <= 4 OR JMSPriority > 4", mixed(row), "JMSPriority") == [False]
        assert matched("JMSPriority IS NOT NULL", mixed(row), "JMSPriority") == [True]


UNLIKE_ALL = [
    pa.array([1, None], pa.uint64()),
    pa.array([1, None], pa.decimal128(5, 2)),
    pa.array([[1], None]),
    pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([0, None], pa.timestamp("ms")),
    pa.array([0, None], pa.date32()),
    pa.array([0, None], pa.duration("s")),
    pa.array([np.float16(1), None], pa.float16()),
    pa.array([{"a": 1}, None]),
    pa.array([{"a": {"b": [1]}}, None]),
    pa.array([[{"a": ["x"] * 1000}] * 20, None]),
    pa.array([0, None], pa.date32()).dictionary_encode(),
]
TEMPLATES = [
    *("{x} = 'x'", "{x} <> 'x'", "{x} = 1", "{x} <> 1", "{x} > 1", "{x} <= 1", "{x}", "{x} = TRUE"),
    *("{x} + 1 > 0", "{x} = {x}", "{x} <> {x}", "{x} = y", "{x} <> y", "{x} > y", "-{x} < y"),
    *("{x} IS NULL", "{x} IS NOT NULL", "{x} BETWEEN 1 AND 2", "{x} NOT BETWEEN 1 AND 2"),
    *("{x} IN ('x', '')", "{x} NOT IN ('x', '')", "{x} LIKE '%'", "{x} NOT LIKE '_'"),
    *("{x} BETWEEN y AND 2", "{x} NOT BETWEEN y AND y", "y = 1 OR {x} = 1", "y BETWEEN {x} AND 2"),
]


@pytest.mark.parametrize("column", UNLIKE_ALL, ids=lambda column: str(column.type))
@pytest.mark.parametrize("dialect", ["jms", "ibm-jms", "ibm-mq"])
def test_a_type_that_no_property_has_is_unlike_everything_to_those_who_read_it(column, dialect):
    """And nobody else is touched: the reference decides, with UNSUPPORTED where the column has a value."""
    with pytest.raises(ColumnTypeError, match="'x'"):
        check_column("x", column.type)
    texts = [one.format(x="x") for one in TEMPLATES]
    texts += [f"NOT ({text})" for text in texts] + [f"z = 'a' AND ({text})" for text in texts]
    index = sr.Index()
    for number, text in enumerate([*texts, "z = 'a'", ""]):
        index.add(f"s{number}", text, dialect=dialect)
    rows = [(value, y) for value in (UNSUPPORTED, None) for y in (None, sr.Long(1), "x")]
    of_row = [0, 0, 0, 1, 1, 1]
    batch = pa.record_batch(
        {"x": column.take(pa.array(of_row)), "y": mixed_array([y for _, y in rows]), "z": ["a"] * 6}
    )
    own = [Selector(text, dialect=dialect) for text in texts]
    for row, (x, y) in zip(index.freeze().match(batch), rows, strict=True):
        message = {"x": x, "y": y, "z": "a"}
        wanted = [
            number
            for number, one in enumerate(own)
            if evaluate(one.expression, message.get, DIALECTS[dialect]) is sr.Truth.TRUE
        ]
        assert sorted(row.tolist()) == [*wanted, len(texts), len(texts) + 1]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view()])
def test_bytes_are_judged_as_those_of_a_message_in_json(type_):
    """Which `jms` has no literal for: a byte string is unlike everything but another one."""
    column = pa.array([b"x", None], pa.binary()).cast(type_)
    for text in [one.format(x="x") for one in TEMPLATES]:
        for dialect in ("jms", "ibm-jms", "ibm-mq"):
            selector = sr.Selector(text, dialect=dialect)
            index = sr.Index()
            index.add("s", selector)
            messages = [sr.Message(properties={"x": value, "y": b"x"}) for value in (b"x", None)]
            batch = pa.record_batch({"x": column, "y": pa.array([b"x", b"x"], pa.binary()).cast(type_)})
            found = [len(row) == 1 for row in index.freeze().match(batch)]
            assert found == [selector.matches(one) for one in messages], (text, dialect)


def test_strings_that_come_as_views_or_numbers_in_a_dictionary_are_what_they_are():
    assert matched("x = 'a'", pa.array(["a", None, "b"], pa.string_view())) == [True, False, False]
    assert matched("x = 1", pa.array([1, None, 2, 1]).dictionary_encode()) == [True, False, False, True]


def test_two_columns_of_one_name_are_refused():
    index = sr.Index()
    index.add("s", "x = 1")
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(ColumnTypeError, match="several columns"):
        index.freeze().match(batch)
    unread = pa.record_batch({"x": [1], "y": pa.array([[1]])})  # which may be of any type
    assert [len(row) for row in index.freeze().match(unread)] == [1]


@pytest.mark.parametrize(
    ("name", "column", "selector"),
    [
        ("JMSPriority", pa.array([4], pa.int64()), "JMSPriority = 4"),
        ("JMSPriority", pa.array([4], pa.int8()), "JMSPriority BETWEEN 3 AND 5"),
        ("JMSTimestamp", pa.array([4], pa.int32()), "JMSTimestamp = 4"),
        (
            "JMSMessageID",
            pa.array([bytes(range(24))], pa.binary(24)),
            f"JMSMessageID = 'ID:{bytes(range(24)).hex().upper()}'",
        ),
        ("JMSCorrelationID", pa.array([b"\xff" * 24]), f"JMSCorrelationID = 'ID:{'FF' * 24}'"),
    ],
)
def test_header_columns_have_their_type_by_name(name, column, selector):
    assert matched(selector, column, name) == [True]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("JMSPriority", pa.array(["4"])),
        ("JMSPriority", pa.array([2**31])),
        ("JMSTimestamp", pa.array([1.5])),
        ("JMSType", pa.array([4])),
        ("JMSMessageID", pa.array([b"short"])),
    ],
)
def test_a_header_column_of_another_type_is_unlike_everything(name, column):
    constant = "'4'" if name in ("JMSType", "JMSMessageID") else "4"
    assert matched(f"{name} IS NOT NULL", column, name) == [True]
    assert matched(f"{name} = {constant} OR {name} <> {constant}", column, name) == [False]
    assert matched(f"NOT ({name} = {constant})", column, name) == [True]
    assert matched("x = 1 OR JMSType IS NULL AND x IS NULL OR JMSType IS NOT NULL", column, name) == [True]


def test_ids_of_another_length_are_unlike_everything_row_by_row():
    column = pa.array([b"a" * 24, b"short", None, b"b" * 24])
    assert matched(f"JMSMessageID = 'ID:{b'b'.hex() * 24}'", column, "JMSMessageID") == [False] * 3 + [True]
    assert matched("JMSMessageID IS NULL", column, "JMSMessageID") == [False, False, True, False]
    assert matched("JMSMessageID LIKE '%'", column, "JMSMessageID") == [True, False, False, True]


def test_a_topic_that_is_no_string_matches_no_filter():
    index = sr.Index()
    for number, topic in enumerate(["a", "+", "a/#", "#/a/#/b", "#"]):
        index.add(f"s{number}", topic=topic)
    index.add("any")
    found = index.freeze().match(pa.record_batch({"@topic": [b"a"]}))[0]
    assert sorted(found) == [4, 5]  # "#" is as good as no filter


ZEROS = f"ID:{'0' * 48}"


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("JMSCorrelationID", pa.array([ZEROS, "ID:1", None])),
        ("JMSCorrelationID", pa.array([ZEROS, "ID:1", None], pa.large_string())),
        ("JMSCorrelationID", pa.array([ZEROS, "ID:1", None]).dictionary_encode()),
        ("JMSCorrelationID", pa.array([bytes(24), b"a" * 24, None])),
        ("JMSCorrelationID", pa.array([bytes(24), b"a" * 24, None], pa.binary(24))),
        ("JMSCorrelationID", mixed_array([ZEROS, "ID:1", None])),
        ("jms.Cid", pa.array([ZEROS, "ID:1", None])),
        ("Root.MQMD.CorrelId", pa.array([bytes(24), b"a" * 24, None])),
        ("Root.MQMD.CorrelId", mixed_array([bytes(24), b"a" * 24, None])),
    ],
    ids=lambda one: one if isinstance(one, str) else str(one.type)[:12],
)
def test_a_correlation_id_of_zeros_is_null_in_a_column(name, column):
    for dialect in ["ibm-mq"] if "." in name else ["jms", "ibm-jms", "ibm-mq", "mqe"]:
        index = sr.Index()
        index.add("null", "JMSCorrelationID IS NULL", dialect=dialect)
        index.add("text", f"JMSCorrelationID = '{ZEROS}' AND x IS NULL", dialect=dialect)
        if dialect == "ibm-mq":
            index.add("octets", "Root.MQMD.CorrelId IS NULL", dialect=dialect)
            index.add("cid", "jms.Cid IS NULL", dialect=dialect)
        if dialect == "ibm-jms":
            index.add("any", f"JMSCorrelationID = '{ZEROS}'", dialect=dialect)
        snapshot = index.freeze()
        found = [
            set(snapshot.ids.take(pa.array(row)).to_pylist())
            for row in snapshot.match(pa.record_batch({name: column}))
        ]
        null = {"null"} | ({"octets", "cid"} if dialect == "ibm-mq" else set())
        every = {"any"} if dialect == "ibm-jms" else set()
        assert found == [null | every, every, null | every], dialect


def test_tables_of_several_chunks_and_empty_batches():
    index = sr.Index()
    index.add("s", "x = 'a'")
    snapshot = index.freeze()
    table = pa.concat_tables([pa.table({"x": ["a", "b"]}), pa.table({"x": ["a"]})])
    assert [len(row) for row in snapshot.match(table)] == [1, 0, 1]
    assert len(snapshot.match(table.slice(0, 0))) == 0
    assert snapshot.match(table.slice(0, 0)).offsets.tolist() == [0]


def test_more_matches_than_the_first_guess_of_runs():
    """The buffer of runs grows: many residual subscriptions on many messages."""
    index = sr.Index()
    for number in range(3_000):
        index.add(f"s{number}", f"s <> 'x{number}'")
    result = index.freeze().match(pa.record_batch({"s": ["x1", "x2", "y"]}))
    assert np.diff(result.offsets).tolist() == [2_999, 2_999, 3_000]


def test_counters_tell_what_was_judged():
    index = sr.Index()
    index.add("a", "JMSType = 'x' AND s LIKE 'a%'")
    index.add("b", "JMSType = 'y' AND s LIKE 'a%'")
    counters = index.freeze().match(pa.record_batch({"JMSType": ["x", "z"], "s": ["a", "a"]})).counters
    assert (counters.hits, counters.judged) == (1, 1)


def test_a_table_too_large_for_one_batch_is_matched_whole():
    """Arrow splits what exceeds 2 GiB of strings into several batches: all of them count."""
    index = sr.Index()
    index.add("s", "x = 'a' OR x = 'b'")
    snapshot = index.freeze()
    table = pa.table({"x": ["a", "c", "b", "a"]})
    whole = snapshot.match(table)
    parts = [snapshot.match(table.slice(start, 1)) for start in range(4)]
    joined = _joined(parts)
    assert joined.offsets.tolist() == whole.offsets.tolist()
    assert joined.ordinals.tolist() == whole.ordinals.tolist()
    assert joined.counters.probes == whole.counters.probes


@pytest.mark.parametrize("data", [b"\xf0", b"a\xe2\x82", b"\xff\xff"])
def test_strings_that_are_no_utf_8_are_not_read_beyond_their_end(data):
    offsets = pa.py_buffer(np.array([0, len(data), len(data) + 3], np.int32))
    column = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(data + b"a\xf0\x9f"))
    matched("x LIKE '%\U0001f600_'", column)  # under NUMBA_BOUNDSCHECK=1 this once failed
    assert matched("x LIKE '%'", column) == [True, True]
    with pytest.raises(ColumnTypeError, match="not UTF-8"):
        index = sr.Index()
        index.add("s", topic="a/+")
        index.freeze().match(pa.record_batch({"@topic": column}))


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize(("filter_", "others"), [("#", True), ("a/#", True), ("#/b/#", True), ("+", False)])
def test_a_topic_longer_than_a_message_may_have_matches_no_filter(type_, filter_, others):
    bound = "a/b/" + "/" * 997
    topics = pa.array(["a/b", bound, "a/b/" + "/" * 998, "a/b/" + "x" * 65_532, None], pa.string()).cast(
        type_
    )
    snapshot = sr.build_snapshot([{"id": "s", "selector": "", "topic": filter_}])
    found = [len(row) == 1 for row in snapshot.match(pa.record_batch({"@topic": topics}))]
    assert found == [others, others, False, False, False]
