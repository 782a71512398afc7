"""Small files become few, in rounds, and no row is lost, added or changed."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.spark.tables.delta_table import LARGE, LiveFile, Merge, merge, plan_merge
from selectroute.spark.tables.parquet_file import ParquetFile
from selectroute.spark.tables.schemas import DEAD_LETTERS, DELIVERIES, WITH_BATCH
from selectroute.storage import Location


def part(batch, size=100, number=0):
    return LiveFile(f"part-{batch}-{number:032x}.parquet", size, batch, batch)


def merged(level, number, size=100):
    return LiveFile(f"merged-{level}-{number:032x}.parquet", size, 0, 9)


def test_files_are_merged_when_enough_batches_have_small_ones():
    files = [part(batch, number=number) for batch in range(4) for number in range(3)]
    assert plan_merge(files, 5) is None
    plan = plan_merge(reversed(files), 4)
    assert plan == Merge(tuple(files), 1)


def test_large_files_and_those_of_other_writers_are_left_alone():
    others = [LiveFile(f"part-0000{n}-0a1b-c000.snappy.parquet", 100, n, n) for n in range(40)]
    assert plan_merge([*others, *(part(batch, LARGE) for batch in range(40))], 2) is None


@settings(deadline=None)
@given(st.integers(2, 20), st.integers(1, 400))
def test_the_number_of_files_grows_with_the_logarithm_of_the_batches(every, batches):
    live, most, written = [], 0, 0
    for batch in range(batches):
        live.append(part(batch))
        while (plan := plan_merge(live, every)) is not None:
            live = [file for file in live if file not in plan.files]
            written += 1
            live.append(merged(plan.level, written))
        most = max(most, len(live))
    assert most <= every + 16 * 3


def test_one_merge_is_bounded():
    plan = plan_merge([part(batch, LARGE - 1) for batch in range(100)], 50)
    assert 2 <= len(plan.files) < 12
    assert len(plan_merge([part(batch, 1) for batch in range(9_999)], 50).files) == 2_000


def table(sink, batch, rows):
    schema = WITH_BATCH[sink]
    columns = {
        **{"batch": [batch] * rows, "revision": [7] * rows, "partition": [0] * rows},
        "offset": [None if sink == DEAD_LETTERS and n == 1 else n for n in range(rows)],
        "headers": [None if n % 2 else [{"key": "k", "value": b"v"}] for n in range(rows)],
        "raw": [bytes([n]) for n in range(rows)],
        "key": [None] * rows,
    }
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            texts = [
                None if field.name == "message_id" else f"{field.name} {batch} {n % 3}" for n in range(rows)
            ]
            arrays.append(pa.array(texts, pa.string()).dictionary_encode().cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("sink", [DELIVERIES, DEAD_LETTERS])
def test_a_merged_file_has_the_rows_of_all_in_order(tmp_path, sink):
    files, wanted = [], []
    for batch in range(5):
        path = Location.of(tmp_path / f"part-{batch}-{batch:032x}.parquet")
        file = ParquetFile(path, sink, WITH_BATCH[sink])
        for _ in range(2):
            file.write_table(table(sink, batch, 4))
            wanted += table(sink, batch, 4).to_pylist()
        report = file.close()
        files.append(LiveFile(report["path"], report["size"], batch, batch))
    report = merge(Location.of(tmp_path), sink, Merge(tuple(files), 1), lambda: False)
    assert (report["rows"], report["offsets"]) == (40, (0, 3))
    read = pq.ParquetFile(Location.of(tmp_path) / report["path"]).read()
    assert read.to_pylist() == wanted
    assert read.schema.equals(WITH_BATCH[sink])


def test_a_merge_that_is_stopped_leaves_no_file(tmp_path):
    file = ParquetFile(Location.of(tmp_path) / "part-0-0.parquet", DELIVERIES, WITH_BATCH[DELIVERIES])
    file.write_table(table(DELIVERIES, 0, 4))
    file.close()
    plan = Merge((LiveFile("part-0-0.parquet", 1, 0, 0),), 1)
    assert merge(Location.of(tmp_path), DELIVERIES, plan, lambda: True) is None
    assert [path.name for path in tmp_path.iterdir()] == ["part-0-0.parquet"]
