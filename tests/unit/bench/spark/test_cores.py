"""Processor time is that of a process and of all that it started."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from bench.spark.cores import processor_seconds

BUSY = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.5: pass\n"


def test_what_a_child_used_counts_while_it_runs_and_after_it_ended():
    before = processor_seconds()
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY + "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    assert processor_seconds() - before >= 0.45
    child.communicate(b"\n")
    assert processor_seconds() - before >= 0.45
