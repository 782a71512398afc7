"""Columns with dots, fields that have several names, byte strings and invalid names, as columns."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import selectroute as sr
from selectroute.match.columns.batch import ColumnBatch, leaves
from selectroute.match.columns.fields import field_lane, values
from selectroute.match.columns.from_messages import MIXED, from_messages, mixed_array
from selectroute.selector.fields import DERIVED
from selectroute.selector.names import INVALID_NAMES
from tests.support.strategies import messages

ID = bytes(range(24))
TEXT_ID = "ID:" + ID.hex().upper()


def matched(selector: str, batch: pa.RecordBatch | pa.Table, dialect: str = "ibm-mq") -> list[bool]:
    index = sr.Index()
    index.add("s", selector, dialect=dialect)
    return [len(row) == 1 for row in index.freeze().match(batch)]


def test_a_field_of_a_struct_is_a_dotted_name():
    column = pa.array([{"b": 1, "c": {"d": "x"}}, {"b": 2, "c": None}, None])
    batch = pa.record_batch({"a": column})
    assert [name for name, _ in leaves(batch.schema)] == ["a.b", "a.c.d"]
    assert matched("a.b = 1", batch) == [True, False, False]
    assert matched("a.c.d = 'x'", batch) == [True, False, False]
    assert matched("a.c.d IS NULL", batch) == [False, True, True]
    assert matched("a.b = 1", pa.record_batch({"a.b": [1, 2]})) == [True, False]
    assert matched("a.b = 1", batch.slice(1)) == [False, False]


def test_a_group_is_no_property_and_a_name_stands_once():
    group = pa.record_batch({"a": pa.array([{"b": 1}, None])})
    assert matched("a = 1", group) == [False, False]
    assert matched("a IS NULL", group) == [False, True]
    inner = pa.record_batch({"a": pa.array([{"b": {"c": 1}}, {"b": None}])})
    assert matched("a.b = 1", inner) == [False, False]
    assert matched("a.b IS NULL", inner) == [False, True]
    assert matched("a.b.c = 1", inner) == [True, False]
    twice = pa.record_batch({"a": pa.array([{"b": 1}]), "a.b": [1]})
    with pytest.raises(sr.ColumnTypeError, match="several"):
        matched("a.b = 1", twice)


def test_a_mixed_struct_is_one_property():
    batch = pa.record_batch({"a": mixed_array([sr.Int(1), "x", b"\1\2", None])})
    assert [name for name, _ in leaves(batch.schema)] == ["a"]
    assert matched("a = 1", batch) == [True, False, False, False]
    assert matched('a = "0x0102"', batch) == [False, False, True, False]


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary(), pa.binary(2)])
def test_a_column_of_bytes_is_a_byte_string_in_a_dialect_that_has_them(type_):
    batch = pa.record_batch({"a": pa.array([b"\1\2", b"\2\1", None], type_)})
    assert matched('a = "0x0102"', batch) == [True, False, False]
    assert matched('a <> "0x0102"', batch) == [False, True, False]
    assert matched('NOT a = "0x0102" AND a IS NOT NULL', batch) == [False, True, False]
    assert matched("a = 'x' OR a IS NULL", batch) == [False, False, True]
    assert matched('a = b OR a = "0x0201"', batch.append_column("b", batch["a"])) == [True, True, False]
    assert matched('a = "0x0201"', batch.slice(1)) == [True, False]
    encoded = pa.record_batch({"a": batch["a"].cast(pa.binary()).dictionary_encode()})
    assert matched('a = "0x0102"', encoded) == [True, False, False]
    for other in (batch, encoded):
        assert matched("a IS NOT NULL", other, "jms") == [True, True, False]
        assert matched("a = 'x' OR a <> 'x' OR a > 1", other, "jms") == [False] * 3


def test_bytes_that_one_dialect_has_and_another_has_not_are_judged_in_each():
    index = sr.Index()
    index.add("mq", 'a = "0x78"', dialect="ibm-mq")
    index.add("jms", "NOT a = 'x' AND b = 1")
    index.add("other", "b = 1")
    assert sorted(index.freeze().match(pa.record_batch({"a": [b"x"], "b": [1]}))[0]) == [0, 1, 2]


def test_a_string_and_a_byte_string_of_the_same_bytes_are_two_constants():
    index = sr.Index()
    index.add("bytes", 'a = "0x61" OR a = "0x62"', dialect="ibm-mq")
    index.add("text", "a = 'a'", dialect="ibm-mq")
    matches = index.freeze().match(pa.record_batch({"a": mixed_array(["a", b"a", "b", b"b"])}))
    assert [row.tolist() for row in matches] == [[1], [0], [], [0]]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("JMSMessageID", pa.array([TEXT_ID, TEXT_ID.lower(), None])),
        ("JMSMessageID", pa.array([TEXT_ID, TEXT_ID.lower(), None]).dictionary_encode()),
        ("JMSMessageID", pa.array([TEXT_ID, "ID:", None], pa.large_string())),
        ("JMSMessageID", pa.array([ID, ID[::-1], None], pa.binary(24))),
        ("JMSMessageID", pa.array([ID, ID[::-1], None]).dictionary_encode()),
        ("Root.MQMD.MsgId", pa.array([ID, ID[::-1], None])),
    ],
)
def test_ids_come_as_text_or_as_24_bytes(name, column):
    batch = pa.record_batch({name: column})
    assert matched(f'Root.MQMD.MsgId = "0x{ID.hex()}"', batch) == [True, False, False]
    assert matched(f"JMSMessageID = '{TEXT_ID}'", batch) == [True, False, False]
    if name == "JMSMessageID":
        assert matched(f"JMSMessageID = 'ID:{ID.hex()}'", batch, "ibm-jms") == [True, False, False]
        assert matched(f"'ID:{'0' * 48}' = JMSMessageID", batch, "ibm-jms") == [True, True, True]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(messages(), min_size=1, max_size=8))
def test_a_field_as_a_column_is_what_the_message_says(batch):
    """Every derived field, from columns of mixed types and from columns of the type that they have."""
    names = sorted({name for one in batch for name in (*one.headers, *one.properties)})
    mixed = ColumnBatch(from_messages(batch, names))
    for name in DERIVED:
        lane = field_lane(name, mixed)
        entries = values(lane)
        rows = range(len(batch)) if lane.rows is None else lane.rows
        assert [entries[row] for row in rows] == [one.value(f"@{name}") for one in batch], name


def test_invalid_names_come_from_the_columns_that_are_not_null():
    batch = pa.record_batch(
        {
            "JMSFoo": pa.array([1, None, None, None]),
            "a": pa.array([1, 1, None, 1]),
            "a.b": pa.array([None, 1, 1, None]),
            "x": pa.array([1] * 4),
            "JMSDeliveryTime": pa.array([1] * 4),
            "@frame..": pa.array([1] * 4),
        }
    )
    assert ColumnBatch(batch).invalid_names().tolist() == [True, True, False, False]
    assert matched("x = 1", batch) == [False, False, True, True]
    assert matched("x = 1", batch, "jms") == [True] * 4
    assert matched("", batch) == [True] * 4
    nested = pa.record_batch({"a": pa.array([{"b": {"c": 1}}, None]), "a.b": pa.array([1, 1]), "x": [1, 1]})
    assert matched("x = 1", nested) == [False, True]
    null = pa.record_batch({"JMSFoo": mixed_array([None, sr.Int(1)]), "x": [1, 1]})
    assert null["JMSFoo"].type == MIXED and matched("x = 1", null) == [True, False]


def test_the_flag_may_come_as_a_column():
    flags = pa.array([True, False, None])
    assert matched("x = 1", pa.record_batch({"x": [1, 1, 1], INVALID_NAMES: flags})) == [False, True, True]
    with pytest.raises(sr.ColumnTypeError, match="boolean"):
        matched("x = 1", pa.record_batch({"x": [1], INVALID_NAMES: [1]}))


def test_a_snapshot_says_what_it_reads():
    index = sr.Index()
    index.add("s", "jms.Pri > 3 AND a.b = 1", dialect="ibm-mq")
    assert index.freeze().reads == (INVALID_NAMES, "JMSPriority", "Root.MQMD.Priority", "a.b", "jms.Pri")
    index = sr.Index()
    index.add("s", "JMSDeliveryMode = 1", dialect="mqe")
    snapshot = index.freeze()
    assert snapshot.reads == ("JMSDeliveryMode",)
    batch = pa.record_batch({"JMSDeliveryMode": ["NON_PERSISTENT", "PERSISTENT", None]})
    assert [len(row) for row in snapshot.match(batch)] == [1, 0, 0]


def test_hexadecimal_digits_of_a_mixed_byte_string_are_checked():
    broken = pa.StructArray.from_arrays(
        [pa.array([9], pa.int8()), pa.array([0], pa.int64()), pa.array(["0G"])], fields=list(MIXED)
    )
    assert matched('a = "0x00"', pa.record_batch({"a": broken})) == [False]
    assert matched("a IS NOT NULL", pa.record_batch({"a": broken})) == [True]


def test_ranges_of_a_strict_dialect_hold_for_no_unlike_type():
    index = sr.Index()
    for number in range(20):
        index.add(f"jms-{number}", f"NOT (a > {number})")
        index.add(f"mq-{number}", f"NOT (a > {number})", dialect="ibm-mq")
    snapshot = index.freeze()
    ids = np.array(snapshot.ids.to_pylist())
    rows = snapshot.match(pa.record_batch({"a": mixed_array(["x", sr.Int(5), None])}))
    assert {name.split("-")[0] for name in ids[rows[0]]} == {"jms"} and len(rows[0]) == 20
    assert len(rows[1]) == 30 and len(rows[2]) == 0
