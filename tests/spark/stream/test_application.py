"""``selectroute stream run`` as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RED = {"properties": {"color": "red"}}


def command(*arguments, verb="run", **environment):
    # The checkout's own sources, whether or not the package is installed.
    source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return {
        "args": [sys.executable, "-m", "selectroute", "stream", verb, *map(str, arguments)],
        "env": {**os.environ, "PYTHONPATH": source, **environment},
        "stderr": subprocess.PIPE,
        "text": True,
    }


def ran(*arguments, verb="run", **environment):
    return subprocess.run(
        **command(*arguments, verb=verb, **environment), stdout=subprocess.PIPE, timeout=600, check=False
    )


def folders(world):
    return "--input", world.input, "--snapshots", world.snapshots, "--output", world.output


@pytest.mark.slow
def test_help_teaches():
    done = ran("--help")
    assert done.returncode == 0
    for word in (
        "--available-now",
        "dead-letters",
        "selectroute index build",
        "SELECTROUTE_",
        "Input: files",
    ):
        assert word in done.stdout


@pytest.mark.slow
def test_wrong_usage_is_exit_code_2():
    assert ran("--input", "x").returncode == 2
    assert ran("--cores", "many").returncode == 2


@pytest.mark.slow
def test_a_missing_snapshot_is_one_sentence_at_once(world):
    done = ran(*folders(world), "--available-now")
    assert done.returncode == 3 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("selectroute: no snapshot is published in")
    assert not world.output.exists()


@pytest.mark.spark
def test_it_routes_what_arrives_until_it_is_told_to_stop(spark, world):
    # `spark` only to be skipped where there is no Java: the application starts its own.
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", RED)
    environment = {
        "SELECTROUTE_INPUT": str(world.input),
        "SELECTROUTE_SNAPSHOTS": str(world.snapshots),
        "SELECTROUTE_OUTPUT": str(world.output),
        "SELECTROUTE_TRIGGER_SECONDS": "0",
    }
    process = subprocess.Popen(**command("--cores", "2", **environment), stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 600
        while not (world.output / "_commits" / "0.json").exists():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out == "" and "1 message: 1 routed" in err and "Traceback" not in err
    assert world.deliveries() == Counter([("a.jsonl", 0, "red", 1)])
