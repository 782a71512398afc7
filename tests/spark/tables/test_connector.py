"""Delta tables and Spark's own connector for them: a job's tables are read, and a table is a job's source."""

from collections import Counter

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

import selectroute as sr
from selectroute.spark.audit.audit import audit
from tests.support.servers.delta_connector import KILLED, in_spark

pytestmark = pytest.mark.spark

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


@pytest.mark.nightly
def test_spark_reads_the_table_of_a_job_as_a_batch_as_it_was_and_as_a_stream(delta):
    delta.publish(1, red="color = 'red'", any="color IS NOT NULL")
    for number in range(3):
        delta.drop_json(f"{number}.jsonl", RED, BLUE, {})
        delta.route(f"{number}.jsonl")
    rows = [
        [number, f"{number}.jsonl", row, name, 1]
        for number in range(3)
        for row, name in ((0, "any"), (0, "red"), (1, "any"))
    ]
    seen = in_spark("read", delta.output / "deliveries")
    assert seen["now"] == seen["streamed"] == rows
    assert seen["first"] == [row for row in rows if row[0] == 0]  # version 0 is the table without rows
    assert seen["sql"] == [row for row in rows if row[0] == 1]
    written = DeltaTable(delta.output / "deliveries").schema().fields
    names = {"long": "bigint", "integer": "int"}
    assert seen["schema"] == {one.name: names.get(one.type.type, one.type.type) for one in written}


@pytest.mark.nightly
def test_rows_of_a_table_are_routed_once_by_jobs_that_are_killed(tmp_path):
    def append(*numbers):
        colors = ["red" if number % 3 == 0 else "blue" for number in numbers]
        write_deltalake(tmp_path / "table", pa.table({"id": [*numbers], "color": colors}), mode="append")

    for start in range(0, 30, 10):
        append(*range(start, start + 10))
    sr.publish(sr.build_snapshot([("red", "color = 'red'")]), tmp_path / "snapshots")
    in_spark("route:committed", tmp_path, KILLED)  # of batch 1 Spark does not know that it was done
    assert in_spark("route", tmp_path)["batches"][-1] == 2
    append(*range(30, 40))
    in_spark("route:staged", tmp_path, KILLED)
    sr.publish(
        sr.build_snapshot([("red", "color = 'red'"), ("all", "color IS NOT NULL")]), tmp_path / "snapshots"
    )
    append(*range(40, 50))
    assert in_spark("route", tmp_path)["batches"] == [3, 4]
    found = DeltaTable(tmp_path / "out" / "deliveries").to_pyarrow_table()
    pairs = zip(found["offset"].to_pylist(), found["subscription"].to_pylist(), strict=True)
    expected = [(number, "red") for number in range(0, 50, 3)] + [(number, "all") for number in range(40, 50)]
    assert Counter(pairs) == Counter(expected)
    assert audit(tmp_path / "out").findings == []
