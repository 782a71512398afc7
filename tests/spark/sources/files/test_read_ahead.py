"""Files of a small batch in remote storage, which the driver reads while the batch's plan is written."""

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from selectroute.spark import Job
from selectroute.spark.messages import MessageBatch
from selectroute.spark.sources.files.lister import PlannedFile
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.source import FileSource
from selectroute.storage import Location
from tests.support.world import run_here

LINE = b'{"properties": {"a": 1}}\n'


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(Location, "is_local", property(lambda _: False))  # by the verbs of a storage
    (tmp_path / "in").mkdir()
    job = replace(
        Job.of(tmp_path / "in", tmp_path / "snapshots", tmp_path / "out"), input=Location.of(tmp_path / "in")
    )
    return FileSource(job, run_here, 2)


def put(source, *lengths):
    """Write a file of so many lines each; the files as they are planned."""
    planned = []
    for number, lines in enumerate(lengths):
        file = source.folder / f"{number}.jsonl"
        file.put(LINE * lines)
        planned.append(PlannedFile(file.name, len(LINE) * lines))
    return planned


def ahead(source, files):
    """The splits of the tasks after the plan is followed."""
    planned = source.batch_input(files)
    plan = planned.plan(2)
    followed = planned.by(plan)
    assert followed.follows(plan) and followed.record() == planned.record()
    return [split for task in followed._splits() for split in task]


def test_a_task_reads_what_was_read_ahead_and_asks_the_storage_for_nothing(source):
    files = put(source, 3, 5)
    splits = ahead(source, files)
    assert {split.content for split in splits} == {LINE * 3, LINE * 5}
    assert all(repr(split) == repr(replace(split, content=None)) for split in splits), "no part of the plan"
    for one in files:
        (source.folder / one.name).delete()
    parts = {split.source: [*read(split, ("a",), 1 << 20)] for split in splits}
    counts = {name: [part.count for part in found] for name, found in parts.items()}
    assert counts == {"0.jsonl": [3], "1.jsonl": [5]}
    assert all(isinstance(part, MessageBatch) for found in parts.values() for part in found)


def test_a_large_batch_and_one_of_many_files_are_left_to_the_tasks(source, monkeypatch):
    files = put(source, *[1] * 17)
    assert {split.content for split in ahead(source, files)} == {None}
    assert {split.content for split in ahead(source, files[:16])} == {LINE}
    monkeypatch.setattr("selectroute.spark.sources.files.source._AHEAD_BYTES", 16 * len(LINE) - 1)
    assert {split.content for split in ahead(source, files[:16])} == {None}


def test_a_file_that_can_not_be_read_is_left_to_its_task(source):
    files = put(source, 2, 4)
    (source.folder / "0.jsonl").delete()
    contents = source.read_ahead(files)
    assert contents == {str(source.folder / "1.jsonl"): LINE * 4}
