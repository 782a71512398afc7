"""Empty files at the end of the logs of Spark's checkpoint, as a full disk or a loss of power leaves them."""

import os
import shutil
from collections import Counter

import pytest

from selectroute.spark import start_fanout
from selectroute.spark.folder import OutputFolder, repair
from selectroute.spark.sources.checkpoint import SourceError

pytestmark = pytest.mark.spark

RED = {"properties": {"color": "red"}}


def run(spark, world):
    """Route everything that is there; returns what was done, and the sentences of warning."""
    reports, warnings = [], []
    job = world.job(max_files=1)
    start_fanout(spark, job, available_now=True, on_batch=reports.append, on_warning=warnings.append).wait()
    return reports, warnings


def delivered(world):
    """The files whose messages were delivered, each once."""
    found = world.deliveries()
    assert found == Counter((f"{name[0]}.jsonl", 0, "red", 1) for name, *_ in found)
    return {name[0] for name, *_ in found}


@pytest.fixture
def routed(spark, world):
    """A job that has done two batches."""
    world.publish(1, red="color = 'red'")
    for name in ("a.jsonl", "b.jsonl"):
        world.drop_json(name, RED)
    reports, _ = run(spark, world)
    assert len(reports) == 2
    return world


def empty(world, *names):
    for name in names:
        (world.job().checkpoint.path / name).write_bytes(b"")


def forget(world, batch):
    """As if a batch were pinned and not committed."""
    (world.output / "_commits" / f"{batch}.json").unlink()
    commits = world.job().checkpoint.path / "commits"
    (commits / str(batch)).unlink()
    for folder in world.output.glob(f"*/batch={batch}"):
        shutil.rmtree(folder)


@pytest.mark.slow
def test_several_ends_are_empty_after_a_loss_of_power(spark, routed):
    empty(routed, "commits/0", "commits/1")
    routed.drop_json("c.jsonl", RED)
    reports, warnings = run(spark, routed)
    assert len(warnings) == 2 and "\n" not in "".join(warnings)
    assert all(any(f"commits/{batch}" in one for one in warnings) for batch in range(2))
    assert [one.batch for one in reports if not one.skipped] == [2]
    assert delivered(routed) == set("abc")
    assert run(spark, routed) == ([], [])
    # The plan of a committed batch is not made anew.
    empty(routed, "offsets/2", "commits/2")
    with pytest.raises(SourceError, match=r"offsets/2 is empty, and its batch is committed") as error:
        run(spark, routed)
    assert "\n" not in str(error.value) and delivered(routed) == set("abc")


@pytest.mark.slow
def test_a_plan_that_is_empty_is_made_anew_if_its_batch_is_not_committed(spark, routed):
    routed.drop_json("c.jsonl", RED)
    run(spark, routed)
    # As after a loss of power while the third batch is matched: its pin was flushed, and its plan was not.
    forget(routed, 2)
    empty(routed, "offsets/2")
    reports, warnings = run(spark, routed)
    assert [(one.batch, one.counts.routed) for one in reports] == [(2, 1)]
    assert len(warnings) == 1
    assert delivered(routed) == set("abc")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["metadata", "offsets/0"])
def test_a_job_whose_first_plan_is_empty_starts(spark, world, file):
    world.publish(1, red="color = 'red'")
    folder = OutputFolder(world.job(max_files=1))
    folder.claim()
    folder.release()
    (world.job().checkpoint.path / file).parent.mkdir(parents=True, exist_ok=True)
    empty(world, file)
    world.drop_json("a.jsonl", RED)
    reports, _ = run(spark, world)
    assert [one.counts.routed for one in reports] == [1]
    assert delivered(world) == {"a"}


def test_only_the_ends_of_logs_are_removed(tmp_path):
    texts = {"commits/4": "v1\n{}", "offsets/4": 'v1\n{}\n{"logOffset":9}', "sources/0/.10.crc": "crc"}
    texts |= dict.fromkeys(["commits/3", "offsets/3", "sources/0/8", "sources/0/9.compact"], "")
    for name, text in (texts | {"sources/0/10": ""}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert repair(tmp_path, lambda _: False) == [tmp_path / "sources/0/10"]
    assert sorted(path.name for path in (tmp_path / "sources/0").iterdir()) == ["8", "9.compact"]


def test_a_plan_is_on_the_disk_before_its_batch_is_committed(spark, world, monkeypatch):
    flushed, flush = [], os.fsync

    def noted(fd):
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        flush(fd)

    monkeypatch.setattr(os, "fsync", noted)
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", RED)
    run(spark, world)
    checkpoint = world.job().checkpoint.path
    committed = next(place for place, name in enumerate(flushed) if "/_commits/" in name)
    plan = {str(checkpoint / name) for name in ("metadata", "offsets/0")}
    assert plan <= set(flushed[:committed])
