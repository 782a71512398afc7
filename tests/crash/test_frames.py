"""A short run of the killed stream of a DataFrame's rows, and that it would find a fault."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

pytestmark = [pytest.mark.nightly, pytest.mark.spark]


def test_a_killed_stream_of_rows_loses_and_repeats_nothing_and_a_fault_would_be_found(tmp_path):
    from tests.crash.programs.frames import KILLS, Killed

    killed = Killed(tmp_path, seed=3)
    counts = killed.run([("put", "after"), ("match", "after"), ("commit", "after"), None])
    assert [counts[name] for name in KILLS] == [1, 3] and counts["rows"] >= 1_000
    with pytest.raises(AssertionError, match=r"queue: [0-9,]+ lost"):
        killed.check(counts["rows"])  # the queue was emptied by the first check
    first = next((killed.queues.world.output / "deliveries").iterdir())
    shutil.copytree(first, first.with_name("batch=9999"))
    with pytest.raises(AssertionError, match=r"deliveries: \d+ twice"):
        killed.check(counts["rows"])
