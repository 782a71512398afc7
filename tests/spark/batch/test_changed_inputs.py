"""Files that are replaced under a name that was read: what they have now is never read, and that is said."""

import json
import os
import time
from datetime import datetime

import pytest

from selectroute.spark import start_fanout
from selectroute.spark.audit.audit import audit
from selectroute.spark.batch.changed_inputs import ChangeWatch, changed_files
from selectroute.spark.job_administration import status
from selectroute.spark.sources.files.source import read_files
from selectroute.storage import Location
from tests.spark.replay.test_replay import begin

WRITTEN = 1_700_000_000.25
"""Time of change of the files that were read, in seconds since 1970."""

RED, BLUE = {"properties": {"color": "red"}}, {"properties": {"color": "blue"}}


@pytest.fixture
def read(world):
    """A world of which two files were read."""
    begin(world)
    world.publish(1, red="color = 'red'")
    paths = [world.drop_json("a.jsonl", RED), world.drop_json("b.jsonl", RED)]
    router = world.router()
    for batch, path in enumerate(paths):
        os.utime(path, (WRITTEN, WRITTEN))
        router.route(batch, [path], "q")
    return world


def changes(world):
    return [(one.source, one.batch) for one in changed_files(world.router().commits, world.input)]


def findings(world):
    return [one.sentence for one in audit(world.output).findings if "changed after" in one.sentence]


def test_files_that_stay_or_go_are_no_changes(read):
    assert changes(read) == []
    (read.input / "a.jsonl").unlink()
    assert changes(read) == findings(read) == []
    assert status(read.output).changed == ()


@pytest.mark.parametrize(
    ("messages", "seconds", "what"),
    [
        ([BLUE, BLUE], 0, "it has 68 bytes, and had 33"),
        ([RED], 1, "it was written later"),
        ([RED], -1, "it was replaced by an older file"),
    ],
)
def test_a_file_that_is_replaced_is_named_by_status_audit_and_a_running_job_once(
    read, messages, seconds, what
):
    path = read.drop_json("a.jsonl", *messages)
    os.utime(path, (WRITTEN + seconds, WRITTEN + seconds))
    assert changes(read) == [("a.jsonl", 0)]
    assert status(read.output).changed == ("a.jsonl",)
    (finding,) = findings(read)
    assert (
        finding.startswith(f"a.jsonl was changed after batch 0 had read it ({what})")
        and "under another name" in finding
    )
    said, now = [], [0.0]
    watch = ChangeWatch(read.router().commits, read.input, said.append, lambda: now[0])
    for now[0] in (0.0, 1.0, 20.0, 40.0):
        watch.look()
    assert said == [finding]
    read.drop_json("a.jsonl", BLUE, BLUE, BLUE)
    now[0] = 60.0
    watch.look()
    assert len(said) == 2, "it changed once more"


@pytest.mark.parametrize("time", [WRITTEN, int(WRITTEN)])
def test_a_file_that_is_restored_with_its_time_is_the_same(read, time):
    path = read.drop_json("a.jsonl", RED)
    os.utime(path, (time, time))  # an archive keeps whole seconds
    assert changes(read) == []


@pytest.mark.parametrize(("seconds", "found"), [(-60, 0), (60, 1)])
def test_without_a_time_in_the_commit_a_file_must_not_be_newer_than_it(read, seconds, found):
    path = read.output / "_commits" / "0.json"
    commit = json.loads(path.read_text())
    del commit["inputs"]["modified"]
    committed = datetime.fromisoformat(commit["committed"]).timestamp()
    os.utime(read.input / "a.jsonl", (committed + seconds, committed + seconds))
    (file,) = read_files(commit)
    assert (file.change(Location.of(read.input / "a.jsonl").entry()) is not None) == found


def test_many_changes_are_counted_and_the_newest_files_alone_are_looked_at(world, monkeypatch):
    world.publish(1, red="color = 'red'")
    paths = [world.drop_json(f"{n:02}.jsonl", RED) for n in range(12)]
    world.router().route(0, paths, "q")
    for path in paths:
        path.write_text("")
    said = []
    ChangeWatch(world.router().commits, world.input, said.append).look()
    assert len(said) == 6 and said[-1].startswith("7 more files")
    assert len(list(changed_files(world.router().commits, world.input, 4))) == 4


def test_a_running_job_reads_each_commit_once(read, monkeypatch):
    commits = read.router().commits
    batches, said, now = [], [], [0.0]
    of_commits = commits.read
    monkeypatch.setattr(commits, "read", lambda batch: batches.append(batch) or of_commits(batch))
    watch = ChangeWatch(commits, read.input, said.append, lambda: now[0])
    watch.look()
    assert sorted(batches) == [0, 1, 2], "two that are there, and the next one, which is not"
    path = read.drop_json("c.jsonl", RED)
    read.router().route(2, [path], "q")
    later = time.time() + 60
    os.utime(path, (later, later))
    batches.clear()
    for now[0] in (20.0, 40.0):
        watch.look()
    assert batches == [2, 3, 3]
    assert [one.split(" (")[0] for one in said] == ["c.jsonl was changed after batch 2 had read it"]


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_warns_of_a_file_that_was_replaced_under_its_name(spark, world):
    world.publish(1, red="color = 'red'")
    world.drop_json("a.jsonl", RED)
    said = []
    start_fanout(spark, world.job(), available_now=True, on_warning=said.append).wait()
    assert said == []
    world.drop_json("a.jsonl", RED, RED)
    start_fanout(spark, world.job(), available_now=True, on_warning=said.append).wait()
    assert len(world.deliveries()) == 1
    assert [one.split(" (")[0] for one in said] == ["a.jsonl was changed after batch 0 had read it"]
    assert json.loads((world.output / "_commits" / "0.json").read_text())["inputs"]["sizes"]
