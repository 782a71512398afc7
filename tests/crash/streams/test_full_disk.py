"""Disks that are full under a stream, in short."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")


from tests.crash.programs.failing import compiled, full_disk
from tests.crash.programs.harness import ROOT
from tests.support.components import after_first, missing

FORMATS = pytest.mark.parametrize("table_format", ["parquet", "delta"])


@pytest.mark.parametrize("table_format", after_first(pytest.mark.nightly, "parquet", "delta"))
@pytest.mark.slow
def test_each_write_of_a_stream_may_fail_and_nothing_is_lost_or_twice(table_format):
    program = [sys.executable, "-m", "tests.crash.programs.streams.stream_faults"]
    command = [*program, "--step", "43", "--table-format", table_format]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.stderr.startswith("nothing was tried"):
        missing(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("ended") == 4, ended.stdout


@FORMATS
@pytest.mark.spark
@pytest.mark.nightly
def test_a_job_whose_disk_is_full_ends_in_one_sentence_and_goes_on_when_there_is_room(tmp_path, table_format):
    from tests.crash.programs.streams.full_disk import routed

    assert routed(tmp_path / "world", *shim(tmp_path), at=30, table_format=table_format)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_disk_that_is_full_when_spark_notes_a_batch_as_done_is_no_obstacle_afterwards(tmp_path):
    from tests.crash.programs.streams.full_disk import routed

    assert routed(tmp_path / "world", *shim(tmp_path), at=1, logged="commits/1")


def shim(folder):
    """What makes a disk full, and the environment in which it does."""
    made = compiled(folder)
    if isinstance(made, str):
        missing(made)
    preloaded, control = made
    return full_disk(control), preloaded
