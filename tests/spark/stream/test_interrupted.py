"""Ctrl-C and SIGTERM in a streaming job at a terminal: while it starts, is idle, routes, waits, and ends."""

import signal
import time
from collections import Counter

import pytest

from selectroute.cli.exits import INTERRUPTED
from selectroute.spark.audit.audit import audit
from tests.spark.queue_world import Queues
from tests.unit.cli.interrupted import AtTerminal

pytestmark = [pytest.mark.application, pytest.mark.slow]

RED = {"properties": {"color": "red"}}
MANY = 30_000
ENDINGS = ["type_ctrl_c", pytest.param("terminate", marks=pytest.mark.nightly)]
"""Each starts Java once or twice: in the gate one of both."""


@pytest.fixture
def started(world):
    """A function that starts a job at a terminal."""
    world.publish(1, red="color = 'red'")
    jobs = []

    def start(*arguments):
        folders = "--input", world.input, "--snapshots", world.snapshots, "--output", world.output
        jobs.append(AtTerminal(world.root, "stream", "run", *folders, "--cores", 2, *arguments))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def routed(world, batch):
    """A condition: a batch is routed."""
    return lambda: (world.output / "_commits" / f"{batch}.json").exists()


def begun(world, batch):
    """A condition: Spark has planned a batch."""
    return lambda: (world.output / "_checkpoint" / "offsets" / str(batch)).exists()


def red(world):
    """How often each message was delivered to `red`."""
    return Counter((row["source"], row["offset"]) for row in world.rows("deliveries"))


@pytest.mark.nightly
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("state", ["it loads", "Spark starts"])
def test_while_it_starts(started, world, ending, state):
    world.drop_json("a.jsonl", RED)
    job = started()
    if state == "it loads":
        time.sleep(0.3)
    else:
        job.until("Ctrl-C ends")
    getattr(job, ending)()
    by_signal = -signal.SIGINT, -signal.SIGTERM, INTERRUPTED
    assert job.ended() in ((0,) if state == "Spark starts" else (0, *by_signal)), job.shown
    again = started("--available-now")
    assert again.ended() == 0, again.shown
    assert red(world) == {("a.jsonl", 0): 1}
    assert audit(world.output).findings == []


@pytest.mark.nightly
@pytest.mark.parametrize("ending", ENDINGS)
def test_while_it_is_idle(started, world, ending):
    world.drop_json("a.jsonl", RED)
    job = started()
    job.until("1 message: 1 routed")
    time.sleep(2)
    getattr(job, ending)()
    assert job.ended() == 0, job.shown
    assert job.shown.rstrip().splitlines()[-1].startswith(("ending", "^Cending")), job.shown


@pytest.mark.nightly
def test_while_it_routes_the_batch_is_finished(started, world):
    world.drop_json("a.jsonl", *([RED] * MANY))
    job = started()
    job.until(begun(world, 0))
    job.terminate()
    assert job.ended() == 0, job.shown
    again = started("--available-now")
    assert again.ended() == 0, again.shown
    assert len(red(world)) == MANY and set(red(world).values()) == {1}
    assert audit(world.output).findings == []


def test_while_it_waits_for_a_queue_that_is_full(started, world):
    url = f"sqlite:///{world.root}/queues.db"
    queues = Queues(world, url)
    queues.create("A", max_depth=1)
    queues.publish(2, red=("color = 'red'", {"kind": "queue", "name": "A"}))
    world.drop_json("a.jsonl", RED, RED, RED)
    job = started("--queues", url, "--destination-wait", "inf")
    job.until("is full")
    job.type_ctrl_c()
    assert job.ended() == 0, job.shown


@pytest.mark.nightly
def test_a_second_ctrl_c_ends_it_at_once_and_nothing_is_lost(started, world):
    world.drop_json("a.jsonl", *([RED] * MANY))
    job = started("--trigger-seconds", "0")
    job.until(begun(world, 0))
    job.type_ctrl_c()
    job.until("again ends at once")
    time.sleep(1.1)
    if job.process.poll() is None:
        job.type_ctrl_c()
    # It may have been done just before; while Python takes itself apart a signal ends it as any program.
    assert job.ended() in (0, INTERRUPTED, -signal.SIGINT), job.shown
    again = started("--available-now")
    assert again.ended() == 0, again.shown
    assert len(red(world)) == MANY and set(red(world).values()) == {1}
    assert audit(world.output).findings == []
