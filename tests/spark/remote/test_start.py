"""A start in an object store that fails: nothing of it goes on, and the next one need not wait."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed (the extra `delta`)")

from selectroute.spark import JobError
from selectroute.spark.inputs.remote_files import RemoteFileSource
from selectroute.spark.job.output_folder import LEASE, OutputFolder
from selectroute.spark.stream.fan_out import FanOut
from tests.spark.queue_world import A, Queues, numbered

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def failing(*_, **__):
    raise JobError("it fails here")


@pytest.mark.parametrize("owner, name", [(RemoteFileSource, "stream"), (OutputFolder, "query")])
def test_a_start_that_fails_leaves_nothing_behind_and_the_next_one_waits_for_nobody(
    spark, world, tmp_path, monkeypatch, owner, name
):
    queues = Queues(world, f"sqlite:///{tmp_path}/queues.db")
    queues.create("A")
    queues.publish(1, a=("", A))
    world.drop_json("0.jsonl", *numbered(2))
    job, warnings, reports = world.job(queues=queues.url), [], []
    real = getattr(owner, name)
    # A query is there already when its id is asked for the last time.
    fan = FanOut(spark, job, on_warning=warnings.append)
    monkeypatch.setattr(
        owner, name, lambda *given: failing() if name == "stream" or fan.query is not None else real(*given)
    )
    before = {*threading.enumerate()}
    with pytest.raises(JobError, match="it fails here"):
        fan.start()
    monkeypatch.setattr(owner, name, real)
    assert fan.query is None or not fan.query.isActive
    left = [one.name for one in {*threading.enumerate()} - before if one.name.startswith("selectroute-")]
    assert not {"selectroute-lease", "selectroute-upkeep", "selectroute-registry"} & {*left}, left
    assert (world.output / LEASE).read_json()["released"]
    again = FanOut(spark, job, reports.append, on_warning=warnings.append)
    again.start(available_now=True)
    again.wait()
    assert sum(one.counts.queued for one in reports) in (0, 2)  # what was routed before it failed is kept
    assert sum(queues.ids("A").values()) == 2 and warnings == []


def test_the_folder_is_released_even_if_something_else_can_not_be_closed(spark, world, tmp_path, monkeypatch):
    queues = Queues(world, f"sqlite:///{tmp_path}/queues.db")
    queues.create("A")
    queues.publish(1, a=("", A))
    fan = FanOut(spark, world.job(queues=queues.url))
    monkeypatch.setattr(fan._queues, "close", failing)
    fan.start(available_now=True)
    with pytest.raises(JobError, match="it fails here"):
        fan.wait()
    assert (world.output / LEASE).read_json()["released"]
