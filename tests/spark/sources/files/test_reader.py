from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import selectroute as sr
from selectroute.match.columns.from_messages import MIXED
from selectroute.spark.messages import DeadLetterBatch
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.splits import plan
from selectroute.spark.task.task import judge


def everything(path, names, limit=1 << 20):
    found = []
    for task in plan([path], path.parent, "auto", 1):
        for split in task:
            found += read(split, names, limit)
    return [x for x in found if not isinstance(x, DeadLetterBatch)], [
        x for x in found if isinstance(x, DeadLetterBatch)
    ]


def lines(tmp_path, *given: bytes):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(given))
    return path


def test_each_bad_line_is_a_dead_letter_with_its_line_number_and_the_rest_goes_on(tmp_path):
    cases = [
        (b'{"properties": {"a": 1}}', None),
        (b"{", "not-json"),
        (b"", None),
        (b'{"properties": {"a": NaN}}', "not-json"),
        (b'{"properties": {"a": 1e999}}', "not-json"),
        (b'"\xff"', "not-utf-8"),
        (b"{}".decode().encode("utf-16"), "not-utf-8"),
        (b"[" * 200_000, "too-deep"),
        (b"x" * 300_000, "too-large"),
        (b"[1]", "not-a-message"),
        (b'{"what": 1}', "not-a-message"),
        (b'{"properties": {"a": {"type": "int", "value": 3000000000}}}', "not-a-message"),
        (b'{"properties": {"a": "\\ud800"}}', "not-json"),
        (b"   \r", None),
        (b'{"properties": {"a": 2}}\r', None),
    ]
    messages, dead = everything(lines(tmp_path, *(line for line, _ in cases)), ("a",), 250_000)
    assert [(int(one.rows[0]), one.reason) for one in dead] == [
        (row, reason) for row, (_, reason) in enumerate(cases) if reason
    ]
    assert all(one.raw is not None and len(one.raw) <= 65_536 for one in dead)
    assert [row for batch in messages for row in batch.rows] == [0, 14]
    assert messages[0].columns.column("a").type == MIXED


def test_a_name_may_be_as_long_as_one_that_a_selector_reads(tmp_path):
    long, longer = "n" * 5_000, "n" * 5_001
    given = [json.dumps({"properties": {name: 1}}).encode() for name in (long, longer)]
    messages, dead = everything(lines(tmp_path, *given), (long,))
    assert [one.reason for one in dead] == ["not-a-message"]
    assert [row[long]["bits"] for row in messages[0].columns.to_pylist()] == [1]


def test_a_byte_order_mark_at_the_start_is_no_part_of_the_message(tmp_path):
    messages, dead = everything(lines(tmp_path, b"\xef\xbb\xbf{}", b"{}"), ())
    assert not dead and messages[0].rows.tolist() == [0, 1]


def parquet(tmp_path, table, **options):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, **options)
    return path


def test_only_columns_that_are_read_are_decoded(tmp_path):
    path = parquet(tmp_path, pa.table({"a": [1, 2], "body": ["x", "y"], "JMSMessageID": ["ID:1", None]}))
    messages, dead = everything(path, ("a", "missing"))
    assert not dead
    assert messages[0].columns.schema.names == ["a", "JMSMessageID"]
    assert messages[0].ids.to_pylist() == ["ID:1", None]


def test_message_id_comes_from_the_frame_first(tmp_path):
    path = parquet(tmp_path, pa.table({"@id": [b"\xab" * 24, None], "JMSMessageID": ["ID:1", "ID:2"]}))
    messages, _ = everything(path, ())
    assert messages[0].ids.to_pylist() == ["ID:" + "AB" * 24, None]


def test_rows_without_any_column_to_read_are_still_counted(tmp_path):
    messages, _ = everything(parquet(tmp_path, pa.table({"body": ["x"] * 7})), ())
    assert messages[0].columns.num_rows == 7 and messages[0].rows.tolist() == list(range(7))


def test_strings_that_repeat_stay_dictionary_encoded(tmp_path):
    table = pa.table({"color": ["red", "blue"] * 5000, "unique": [f"{i:040}" for i in range(10_000)]})
    messages, _ = everything(parquet(tmp_path, table), ("color", "unique"))
    types = messages[0].columns.schema
    assert pa.types.is_dictionary(types.field("color").type)
    assert types.field("unique").type == pa.string()


def test_a_row_group_that_does_not_decode_is_dead_and_the_others_are_not(tmp_path):
    table = pa.table({"a": [f"text {i}" for i in range(300)]})
    path = parquet(tmp_path, table, row_group_size=100, compression="zstd", use_dictionary=False)
    group = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    start = group.data_page_offset
    data[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(data)
    messages, dead = everything(path, ("a",))
    assert [row for batch in messages for row in batch.rows] == [*range(100), *range(200, 300)]
    assert [(one.stage, one.reason, one.rows.tolist()) for one in dead] == [
        ("read", "corrupt-row-group", list(range(100, 200)))
    ]


def test_bytes_that_are_not_utf_8_concern_their_row_only(tmp_path):
    bad = pa.array([b"ok", b"\xff", None, b"fine"], pa.binary())
    strings = pa.StringArray.from_buffers(4, bad.buffers()[1], bad.buffers()[2], bad.buffers()[0])
    messages, dead = everything(parquet(tmp_path, pa.table({"a": strings})), ("a",))
    assert [(one.reason, one.rows.tolist()) for one in dead] == [("not-utf-8", [1])]
    assert [row for batch in messages for row in batch.rows] == [0, 2, 3]


def test_a_column_that_stands_twice_is_judged_dead(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    _, dead = everything(parquet(tmp_path, table), ("a",))
    assert [(one.stage, one.reason, one.rows.tolist()) for one in dead] == [
        ("judge", "ambiguous-column", [0])
    ]


def judged(path, *selectors):
    index = sr.Index()
    for number, selector in enumerate(selectors):
        index.add(f"s{number}", selector)
    snapshot = index.freeze()
    messages, _ = everything(path, snapshot.reads)
    found = [one for batch in messages for one in judge(snapshot, batch)]
    dead = {int(row): one for one in found if isinstance(one, DeadLetterBatch) for row in one.rows}
    alive = {
        int(row): sorted(matches.ids().to_pylist()[place])
        for batch, matches in (one for one in found if not isinstance(one, DeadLetterBatch))
        for place, row in enumerate(batch.rows)
    }
    return alive, dead


def test_a_column_whose_type_no_property_can_have_concerns_only_those_who_read_it(tmp_path):
    times = pa.array([1, 2, None], pa.timestamp("us"))
    path = parquet(tmp_path, pa.table({"a": times, "b": ["x", "x", "x"]}))
    alive, dead = judged(path, "a = 1", "a IS NOT NULL", "b = 'x'")
    assert not dead and alive == {0: ["s1", "s2"], 1: ["s1", "s2"], 2: ["s2"]}


def test_a_value_that_its_header_cannot_have_is_unlike_everything_in_its_row_only(tmp_path):
    path = parquet(tmp_path, pa.table({"JMSPriority": pa.array([1, 2**40, 3, None], pa.int64())}))
    alive, dead = judged(path, "JMSPriority > 2", "JMSPriority IS NOT NULL")
    assert not dead and alive == {0: ["s1"], 1: ["s1"], 2: ["s0", "s1"], 3: []}


def test_ids_of_a_wrong_length_are_unlike_everything_in_their_rows_only(tmp_path):
    path = parquet(tmp_path, pa.table({"JMSCorrelationID": [b"x" * 24, b"x", b"y" * 24]}))
    alive, dead = judged(path, f"JMSCorrelationID = 'ID:{'78' * 24}'", "JMSCorrelationID IS NOT NULL")
    assert not dead and alive == {0: ["s0", "s1"], 1: ["s1"], 2: ["s1"]}


def test_a_json_message_is_read_as_its_wire_form_says(tmp_path):
    message = sr.Message(headers={"JMSType": "car"}, properties={"w": sr.Int(3), "x": 1.5}, topic="cars/eu")
    path = lines(tmp_path, json.dumps(message.to_json()).encode())
    messages, _ = everything(path, ("w", "x", "@topic", "JMSType"))
    row = messages[0].columns.to_pylist()[0]
    assert row["@topic"] == "cars/eu" and row["JMSType"]["text"] == "car" and row["w"]["bits"] == 3


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_parquet_row_larger_than_a_message_may_be_is_dead_and_the_others_are_not(tmp_path, type_):
    path = tmp_path / "a.parquet"
    texts = pa.array(["x", "y" * 5_000, None, "z" * 1_001, "z" * 1_000] + ["q"] * 40).cast(type_)
    pq.write_table(pa.table({"a": texts, "n": range(len(texts))}), path)
    messages, dead = everything(path, ("a", "n"), 1_000)
    assert [(one.reason, one.rows.tolist()) for one in dead] == [("too-large", [1, 3])]
    assert [row for batch in messages for row in batch.rows.tolist()] == [0, 2, *range(4, 45)]


def test_a_row_group_of_nothing_but_huge_texts_is_not_decoded(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["x" * (50 << 20)]}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was decoded"))
    messages, dead = everything(path, ("a",))
    assert not messages and [(one.reason, one.rows.tolist()) for one in dead] == [("too-large", [0])]
