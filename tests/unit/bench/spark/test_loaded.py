"""The benchmark of registries that are loaded part by part, at a small size."""

import pytest

pytest.importorskip("pyspark")

from bench.definition import Size
from bench.measure import WrongCountError
from bench.spark import loaded
from bench.workloads import replies
from bench.workloads.oracle import Expected

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(loaded, "FILE_ROWS", 500)
    monkeypatch.setattr("bench.spark.engines.FILE_ROWS", 500)
    monkeypatch.setattr(loaded, "_FILES_A_BATCH", 2)


def test_each_step_is_timed_and_its_counts_are_checked(spark, tmp_path, few):
    size = Size("R", 1_000, replies.expected(1_000, 2_000), 2_000)
    taken = loaded.measured(size, 2_000, 1, tmp_path, spark)
    assert [one.engine for one in taken] == ["load", *["change"] * 20, "open", "match", "stream"]
    by_engine = {one.engine: one for one in taken}
    assert (by_engine["load"].messages, by_engine["stream"].messages) == (1_000, 2_000)
    assert by_engine["load"].bytes_a_rule > 0 and all(one.seconds > 0 for one in taken)


def test_a_wrong_count_is_an_error(spark, tmp_path, few):
    size = Size("R", 1_000, Expected(1, 1), 2_000)
    with pytest.raises(WrongCountError, match="load R 1k: found Expected"):
        loaded.measured(size, 2_000, 1, tmp_path, spark)
