"""Processor time is that of a process and of all that it started."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from bench.spark.cores import processor_seconds

BUSY = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.5: pass\n"


def started(code):
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_what_a_child_used_counts_while_it_runs_and_after_it_ended():
    before = processor_seconds()
    child = started(BUSY + "print(flush=True); input()")
    child.stdout.readline()
    assert processor_seconds() - before >= 0.45
    child.communicate(b"\n")
    assert processor_seconds() - before >= 0.45


def test_what_a_child_used_counts_also_where_its_parent_ignores_that_it_ends():
    """As Spark's Python daemon does, whose workers' time the system then counts nowhere."""
    before = processor_seconds()
    parent = started(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {BUSY + 'print(flush=True); input()'!r}])\n"
        "child.wait()\nprint('ended', flush=True); sys.stdin.read()"
    )
    parent.stdout.readline()
    busy = processor_seconds()
    assert busy - before >= 0.45
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == b"ended\n"
    assert processor_seconds() >= busy
    parent.communicate()
    assert processor_seconds() >= busy
