"""Workers that have started, and have loaded what a batch needs, before it comes."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from selectroute.spark import FrameInput, Job, start_fanout
from selectroute.spark.columns import snapshot_ref
from selectroute.spark.columns.snapshot_ref import SnapshotRef
from selectroute.spark.job import JobError
from selectroute.spark.session import arrow_runner_of, runner_of
from selectroute.spark.stream import upkeep
from selectroute.spark.stream.upkeep import ReadyWorkers

CORES = 2
PATIENCE = 120
LOOK_SECONDS = 0.05


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch):
    monkeypatch.setattr(upkeep, "_LOOK_SECONDS", LOOK_SECONDS)


class Context:
    """Spark's context, as far as it is asked here."""

    def __init__(self, **conf: str) -> None:
        self._conf = conf

    def setJobDescription(self, text):
        """Forget it."""

    def getConf(self):
        return {name.replace("_", "."): value for name, value in self._conf.items()}


class Source:
    """A source that counts its tasks."""

    tasks = CORES

    def __init__(self, error=None):
        self.given = threading.Semaphore(0)
        self.numbers = []
        self.error = error

    def run(self, work, numbers):
        self.numbers.append(list(numbers))
        self.given.release()
        if self.error is not None:
            raise self.error


def started(source, **conf):
    router = SimpleNamespace(source=source, newest_snapshot=lambda: SnapshotRef("nowhere", 1, "0"))
    workers = ReadyWorkers(SimpleNamespace(sparkContext=Context(**conf)), router)
    workers.start()
    assert source.given.acquire(timeout=PATIENCE)
    return workers


def ends(workers):
    """Whether its thread ends."""
    workers._thread.join(PATIENCE)
    return not workers._thread.is_alive()


def test_as_many_tasks_as_run_at_once_are_given_at_the_start_and_again_while_no_batch_comes(monkeypatch):
    monkeypatch.setattr(upkeep, "_IDLE_SECONDS", 0.0)
    source = Source()
    workers = started(source)
    assert source.given.acquire(timeout=PATIENCE)
    assert source.given.acquire(timeout=PATIENCE)
    workers.finish()
    workers.finish()
    assert ends(workers)
    assert all(numbers == [0, 1] for numbers in source.numbers)


def test_a_stream_that_has_batches_gives_no_task_besides():
    source = Source()
    workers = started(source)
    workers.note()
    assert not source.given.acquire(timeout=10 * LOOK_SECONDS)
    workers.finish()
    assert ends(workers)


def test_executors_that_spark_takes_away_when_they_are_idle_are_not_kept(monkeypatch):
    monkeypatch.setattr(upkeep, "_IDLE_SECONDS", 0.0)
    source = Source()
    workers = started(source, spark_dynamicAllocation_enabled="true")
    assert not source.given.acquire(timeout=10 * LOOK_SECONDS)
    workers.finish()
    assert ends(workers)
    assert source.numbers == [[0, 1]]


@pytest.mark.parametrize("error", [JobError("no"), OSError("gone"), AttributeError("no context")])
def test_what_fails_is_left_to_a_batch_and_tried_again(monkeypatch, error):
    monkeypatch.setattr(upkeep, "_IDLE_SECONDS", 0.0)
    source = Source(error)
    workers = started(source)
    assert source.given.acquire(timeout=PATIENCE)
    workers.finish()
    assert ends(workers)


def seen_in_workers(run):
    """What each worker process has: the revisions that it keeps open, and whether the kernel is loaded."""

    def look(number):
        time.sleep(0.5)  # so that no worker takes two tasks
        loaded = upkeep._load_kernel.cache_info().currsize
        opened = [ref.revision for ref in snapshot_ref._opened]
        return {"process": os.getpid(), "kernel": loaded, "revisions": opened}

    return run(look, range(CORES))


def are_ready(seen):
    """Whether these are as many processes as run at once, with all that a batch needs."""
    has_all = all(one["kernel"] and one["revisions"][-1:] == [7] for one in seen)
    return has_all and len({one["process"] for one in seen}) == CORES


@pytest.mark.parametrize("kind", ["files", "frame"])
def test_a_stream_without_input_has_its_workers_ready(spark, world, kind):
    world.publish(7, red="color = 'red'")
    job, run = world.job(), runner_of(spark)
    if kind == "frame":
        frame = spark.readStream.schema("color string").json(str(world.input))
        job, run = Job.of(FrameInput(frame), world.snapshots, world.output), arrow_runner_of(spark)
    fan = start_fanout(spark, job)
    try:
        deadline = time.monotonic() + PATIENCE
        while not are_ready(seen := seen_in_workers(run)):
            assert time.monotonic() < deadline, seen
    finally:
        fan.stop()
        fan.wait()
