"""``selectroute stream run`` as a user runs it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

import selectroute as sr
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from tests.spark.published import republished
from tests.spark.registry_log import committed, delivered

ROOT = Path(__file__).parents[3]
RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


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
    words = "--available-now", "dead-letters", "selectroute index build", "SELECTROUTE_", "Input: files"
    assert all(word in done.stdout for word in words)


@pytest.mark.slow
def test_a_missing_snapshot_is_one_sentence_at_once(world):
    done = ran(*folders(world), "--available-now")
    assert done.returncode == 3 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("selectroute: no snapshot is published in")
    assert not world.output.exists()


@pytest.mark.slow
@pytest.mark.application
def test_a_job_from_its_first_start_until_it_is_routed_again(world):
    # Three starts: ended by a signal, after a pause, and after a resume with a file gone.
    url = f"sqlite:///{world.root}/registry.db"
    spec = SubscriptionSpec("color = 'red'")
    with sr.Registry.open(url) as registry, RegistryPublisher(registry) as published:
        registry.register(spec, id="red")
        published.catch_up()
        world.drop_json("0.jsonl", RED, BLUE)
        out, err = stopped_after_a_batch(world, url)
        assert out == "" and "2 messages: 1 routed" in err and "Traceback" not in err

        registry.pause("red")
        published.catch_up()
        world.drop_json("1.jsonl", RED)
        world.drop_json("2.jsonl", RED)
        run_once(world, url)

        folders = "--input", world.input, "--snapshots", registry.snapshots_folder, "--output", world.output
        republished(world, "unrouted", lambda table: table.slice(1))
        again = ran("all", *folders, "--into", world.root / "again", verb="rerun")
        assert again.returncode == 1, again.stderr
        start, *lines = again.stderr.splitlines()
        assert start.startswith("routing all batches of") and lines == [
            "batch 0  revision 1  other rows: unrouted: 1 row was not published, the first 0.jsonl/0/1",
            "batch 1  revision 2  same files",
        ]

        (world.input / "1.jsonl").unlink()
        registry.resume("red", from_="last-processed")
        published.catch_up()
        said = run_once(world, url)
        assert "backfill -1  revision 3" in said
        gone = "of batch 1, removed or changed since it was routed: 1.jsonl"
        assert f"backfill -1 is incomplete: {gone}" in said
        got = {place[:4] for place in delivered(world)}
        assert got == {(0, "0.jsonl", 0, "red"), (-1, "2.jsonl", 0, "red")}
        assert committed(world, -1)["backfill"]["batches"] == [1]
        assert [one.batch for one in registry.streams.effective_from(2)] == [1]


def run_once(world, url):
    done = ran("--input", world.input, "--output", world.output, "--registry", url, "--available-now")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def stopped_after_a_batch(world, url):
    """Start the job, told by its environment; stop it by a signal when batch 0 is committed."""
    environment = {
        "SELECTROUTE_INPUT": str(world.input),
        "SELECTROUTE_REGISTRY": url,
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
    return out, err


def test_a_rerun_without_a_folder_or_with_an_open_range_is_wrong_usage(world):
    folders = "--input", world.input, "--snapshots", world.snapshots, "--output", world.output
    assert ran("all", *folders, verb="rerun").returncode == 2
    assert ran("3-", *folders, "--into", "x", verb="rerun").returncode == 2
