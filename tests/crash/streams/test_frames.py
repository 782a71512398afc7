"""A short run of the killed stream of a DataFrame's rows, and that it would find a fault."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

pytestmark = [pytest.mark.nightly, pytest.mark.spark]


def repeat(world):
    """Write the deliveries of a batch twice."""
    folder = world.output / "deliveries"
    if world.table_format == "parquet":
        first = next(folder.iterdir())
        shutil.copytree(first, first.with_name("batch=9999"))
    else:
        deltalake = pytest.importorskip("deltalake")
        deltalake.write_deltalake(folder, pa.Table.from_pylist(world.rows("deliveries")[:1]), mode="append")


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_a_killed_stream_of_rows_loses_and_repeats_nothing_and_a_fault_would_be_found(tmp_path, table_format):
    from tests.crash.programs.streams.frames import Killed
    from tests.crash.programs.streams.killed import KILLS

    killed = Killed(tmp_path, seed=3, table_format=table_format)
    counts = killed.run([("put", "after"), ("match", "after"), ("commit", "after"), None])
    assert [counts[name] for name in KILLS] == [1, 3] and counts["rows"] >= 1_000
    with pytest.raises(AssertionError, match=r"queue: [0-9,]+ lost"):
        killed.check(counts["rows"])  # the queue was emptied by the first check
    repeat(killed.queues.world)
    with pytest.raises(AssertionError, match=r"deliveries: \d+ twice"):
        killed.check(counts["rows"])
