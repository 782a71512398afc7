"""Engines in Spark: whole files of messages, and the quick tour as a user calls it."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from bench import ROOT
from bench.definition import benchmarks, sizes
from bench.spark import engines


@pytest.mark.parametrize("count", [0, 20_000, 30_000])
def test_a_number_of_messages_that_is_not_whole_files_is_refused(tmp_path, count):
    with pytest.raises(ValueError, match="whole files of 25,000"):
        engines.write_files(tmp_path, lambda rows, first: None, count)


@pytest.mark.parametrize("quick", [True, False])
def test_the_definitions_give_whole_files(quick):
    names = {"spark", "partitions", "partitions-stream", "cores"}
    for benchmark in (one for one in benchmarks() if one.name in names):
        for size in (one for one in sizes() if benchmark.covers(one, quick)):
            for engine in benchmark.engines:
                assert benchmark.messages(engine, size, quick) % engines.FILE_ROWS == 0


@pytest.mark.nightly
@pytest.mark.application
def test_the_quick_tour_in_spark_runs_where_nothing_says_where_the_checkout_is():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "bench", "--only", "spark"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "`noop-array`" in ended.stdout and "`route`" in ended.stdout
