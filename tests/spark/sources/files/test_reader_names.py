"""Files: nested and dotted columns, bytes, synonyms, and the rules on property names."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.match.columns.from_messages import MIXED, mixed_array
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.splits import plan
from selectroute.spark.task.task import judge

ID = "AB" * 24


def snapshot_of(dialect="ibm-mq", **selectors):
    index = sr.Index()
    for name, selector in selectors.items():
        index.add(name, selector, dialect=dialect)
    return index.freeze()


def written(tmp_path, data, **options):
    """Write columns as Parquet, or messages as JSON lines."""
    if isinstance(data, list):
        path = tmp_path / "a.jsonl"
        path.write_text("".join(json.dumps(message) + "\n" for message in data))
    else:
        path = tmp_path / "a.parquet"
        pq.write_table(data if isinstance(data, pa.Table) else pa.table(data), path, **options)
    return path


def read_all(path, snapshot):
    splits = [split for task in plan([path], path.parent, "auto", 1) for split in task]
    return [one for split in splits for one in read(split, snapshot.reads, 1 << 20)]


def found(path, snapshot):
    """The subscriptions of each row, or the reason why it is dead."""
    rows = {}
    for one in read_all(path, snapshot):
        for judged in judge(snapshot, one):
            if isinstance(judged, DeadLetterBatch):
                rows |= dict.fromkeys(judged.rows.tolist(), judged.reason)
            else:
                messages, matches = judged
                named = [{snapshot.ids[int(ordinal)].as_py() for ordinal in row} for row in matches]
                rows |= dict(zip(messages.rows.tolist(), named, strict=True))
    return [rows[row] for row in sorted(rows)]


def names_read(path, snapshot):
    (messages,) = read_all(path, snapshot)
    return messages.columns.schema


def struct(**fields):
    return pa.StructArray.from_arrays(list(map(pa.array, fields.values())), names=list(fields))


def test_nested_and_dotted_columns_are_read_and_nothing_beside_them(tmp_path):
    table = {
        "a": struct(b=["x", "y"], c=[1, 2], d=struct(e=[True, None], f=["no", "no"])),
        "p.q": [1, None],
        "mixed": struct(m=mixed_array([sr.Long(1), "x"])),
        "body": ["no", "no"],
    }
    snapshot = snapshot_of(b="a.b = 'x'", e="a.d.e", q="p.q = 1", m="mixed.m = 'x'", gone="a.z IS NOT NULL")
    path = written(tmp_path, table)
    assert found(path, snapshot) == [{"b", "e", "q"}, {"m"}]
    schema = names_read(path, snapshot)
    assert [field.name for field in schema.field("a").type] == ["b", "d"]
    assert [field.name for field in schema.field("a").type.field("d").type] == ["e"]
    assert set(schema.names) == {"a", "p.q", "mixed"} and schema.field("mixed").type.field("m").type == MIXED


def test_nested_strings_that_repeat_stay_dictionary_encoded_and_bytes_do_not(tmp_path):
    table = {"a": struct(color=["red", "blue"] * 5000, raw=[b"x", b"y"] * 5000), "raw": [b"x", b"y"] * 5000}
    snapshot = snapshot_of(color="a.color = 'red'", raw='raw = "0x79" AND a.raw = "0x79"')
    path = written(tmp_path, table)
    schema = names_read(path, snapshot)
    assert pa.types.is_dictionary(schema.field("a").type.field("color").type)
    assert schema.field("a").type.field("raw").type == schema.field("raw").type == pa.binary()
    assert found(path, snapshot) == [{"color"}, {"raw"}] * 5000


def test_ids_of_24_bytes_that_repeat_are_read(tmp_path):
    table = {"JMSCorrelationID": [bytes.fromhex(ID)] * 5000, "JMSMessageID": [b"x" * 24] * 5000}
    snapshot = snapshot_of(same=f"JMSCorrelationID = 'ID:{ID}'", mqmd=f'Root.MQMD.CorrelId = "0x{ID}"')
    assert found(written(tmp_path, table), snapshot) == [{"same", "mqmd"}] * 5000


def test_nested_bytes_that_are_not_utf_8_concern_their_row_only(tmp_path):
    bad = pa.array([b"ok", b"\xff", None, b"fine"], pa.binary())
    strings = pa.StringArray.from_buffers(4, bad.buffers()[1], bad.buffers()[2], bad.buffers()[0])
    path = written(tmp_path, {"a": struct(b=strings, c=[1, 2, 3, 4])})
    assert found(path, snapshot_of(b="a.b IS NOT NULL")) == [{"b"}, "not-utf-8", set(), {"b"}]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a.b": [1], "a": struct(b=[1])}),
        pa.Table.from_arrays([struct(b=[1]), struct(b=[2])], names=["a", "a"]),
        pa.table({"a.b": [1], "in": [1], "x": [1]}).rename_columns(["a.b", "in", "in"]),
    ],
)
def test_a_name_that_is_needed_and_stands_twice_is_judged_dead(tmp_path, table):
    assert found(written(tmp_path, table), snapshot_of(b="a.b = 1")) == ["ambiguous-column"]


OTHERS = {
    "timestamp": pa.array([0, None], pa.timestamp("us")),
    "date": pa.array([0, None], pa.date32()),
    "decimal": pa.array([1, None], pa.decimal128(10, 2)),
    "list": pa.array([["x"], None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "uint64": pa.array([2**63, None], pa.uint64()),
    "group": pa.array([{"b": {"c": [1, 2]}}, None]),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("dialect", ["jms", "ibm-jms", "ibm-mq"])
def test_a_column_that_is_no_property_concerns_only_those_who_read_it(tmp_path, kind, dialect):
    path = written(tmp_path, {"at": OTHERS[kind], "color": ["red", "red"]})
    snapshot = snapshot_of(
        dialect,
        red="color = 'red'", there="at IS NOT NULL", gone="at IS NULL", equal="at = 'x' OR at <> 'x'",
        negated="color = 'red' AND NOT at = 1", all="",
    )  # fmt: skip
    negated = {"negated"} if dialect == "jms" else set()
    assert found(path, snapshot) == [{"red", "all", "there"} | negated, {"red", "all", "gone"}]


def test_bytes_that_a_dialect_does_not_have_are_judged_as_those_of_a_line(tmp_path):
    lines = [{"properties": {"b": {"type": "bytes", "value": text}}} for text in ("78", "79")]
    selectors = {
        "equal": "b = 'x'",
        "not": "NOT (b = 'x')",
        "there": "b IS NOT NULL",
        "same": "b = b",
        "all": "",
    }
    for data in ({"b": [b"x", b"y"]}, lines):
        path = written(tmp_path, data)
        assert found(path, snapshot_of("jms", **selectors)) == [{"not", "there", "same", "all"}] * 2
        assert found(path, snapshot_of(b='b = "0x78"')) == [{"b"}, set()]


SYNONYMS = {
    "id": f"JMSMessageID = 'ID:{ID}'",
    "mqmd": f'Root.MQMD.MsgId = "0x{ID}"',
    "priority": "JMSPriority = 7",
    "pri": "jms.Pri = 7",
}


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"JMSMessageID": [f"ID:{ID}"]}, {"id", "mqmd"}),
        ({"JMSMessageID": [bytes.fromhex(ID)]}, {"id", "mqmd"}),
        ({"Root": struct(MQMD=struct(MsgId=[bytes.fromhex(ID)]))}, {"id", "mqmd"}),
        ({"Root.MQMD.MsgId": [bytes.fromhex(ID)], "JMSPriority": [7]}, set(SYNONYMS)),
        ({"jms": struct(Pri=[7])}, {"priority", "pri"}),
        ([{"headers": {"JMSMessageID": f"ID:{ID}", "JMSPriority": 7}}], set(SYNONYMS)),
        ([{"properties": {"Root.MQMD.MsgId": {"type": "bytes", "value": ID}, "jms.Pri": 7}}], set(SYNONYMS)),
    ],
)
def test_a_field_is_read_under_any_of_its_names(tmp_path, data, wanted):
    assert found(written(tmp_path, data), snapshot_of(**SYNONYMS)) == [wanted]


STRICT = {"one": "color = 'red'", "all": ""}
GOOD, BAD = {"one", "all"}, {"all"}


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"JMSFoo": [1, None]}, [BAD, GOOD]),
        ({"in": struct(x=[1, 1])}, [GOOD, GOOD]),
        ({"x": [1, 1, None], "x.y": [1, None, 1]}, [BAD, GOOD, GOOD]),
        ({"x": [1, 1], "x.y": pa.StructArray.from_arrays([pa.array([1, 2])], names=["z"])}, [BAD, BAD]),
        ({"mq": struct(a=struct(b=[None, [1]]))}, [GOOD, BAD]),
        ({"mixed": struct(a=[1, 1]), "IN": mixed_array([None, sr.Long(1)])}, [GOOD, BAD]),
        ({"JMSType": ["x"], "JMSDeliveryTime": [1], "@in": [1]}, [GOOD]),
        ({"in": [1, 1, 1], "@invalid-names": [True, False, None]}, [BAD, GOOD, GOOD]),
        ([{"JMSFoo": 1}, {"JMSFoo": None}, {"x": 1, "x.y": 2}, {"x.y": 1, "a.": 2}, {}],
         [BAD, GOOD, BAD, BAD, GOOD]),
    ],
)  # fmt: skip
def test_the_rules_on_names_count_what_is_there_and_not_null(tmp_path, data, wanted):
    if isinstance(data, list):
        data = [{"properties": {"color": "red", **properties}} for properties in data]
    else:
        data = {"color": ["red"] * len(wanted), **data}
    path = written(tmp_path, data)
    assert found(path, snapshot_of(**STRICT)) == wanted
    assert found(path, snapshot_of("jms", **STRICT)) == [GOOD] * len(wanted)


def test_of_columns_that_no_selector_reads_only_those_of_a_breach_are_decoded(tmp_path):
    table = {"color": ["red"], "x": [1], "x.y": struct(z=[1]), "fine": ["no"], "in": [1], "JMSType": ["x"]}
    path = written(tmp_path, table)
    assert set(names_read(path, snapshot_of(**STRICT)).names) == {"color", "x", "x.y", "in"}
    assert names_read(path, snapshot_of("jms", **STRICT)).names == ["color"]
