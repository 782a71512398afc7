"""Deltas in a folder: written once, opened once, and no crash leaves half a revision."""

import functools
import json
import os
from dataclasses import replace

import pytest

import selectroute as sr
from selectroute.index import snapshot_files as file_format
from selectroute.index.changes import Add, Remove, Replace
from selectroute.index.invariants import verify_snapshot
from selectroute.index.snapshot_files import published
from tests.unit.index.published import pairs, small


@pytest.fixture
def folder(tmp_path):
    """A folder with one revision, whose objects nobody holds any more."""
    sr.publish(small(), tmp_path)
    return tmp_path


def changed_three_times(folder):
    """Revisions 2 to 4 of the folder, each a delta beside the base."""
    snapshot = sr.Snapshot.open(folder)
    for change in (Add("new", "weight = 10"), Remove("heavy"), Replace("new", "weight = 3000")):
        snapshot = published(snapshot.changed([change]), folder)
    return snapshot


def test_a_segment_is_written_once_and_named_by_every_revision_that_has_it(folder):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.arrow")}
    changed_three_times(folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [len(list((folder / part).iterdir())) for part in ("segments", "ids")] == [4, 4]
    for revision, segments in ((1, 1), (2, 2), (3, 3), (4, 4)):
        entries = json.loads((folder / f"manifest-{revision}.json").read_bytes())["segments"]
        assert [entry["kind"] for entry in entries] == ["base", "delta", "delta", "delta"][:segments]
    assert [entry["removed"] for entry in entries] == [0, 0, 1, 1]
    assert pairs(sr.Snapshot.open(folder)) == [[2, 5], [1, 2], []]


def test_a_published_snapshot_of_deltas_is_the_one_that_was_made(folder):
    made = changed_three_times(folder)
    opened = sr.Snapshot.open(folder)
    verify_snapshot(opened)
    assert pairs(opened) == pairs(made)
    assert (opened.deaths, len(opened), opened.digest) == (made.deaths, len(made), made.digest)
    assert opened.subscriptions.equals(made.subscriptions)


def test_what_was_opened_once_is_neither_read_nor_mapped_again(folder, monkeypatch):
    held = sr.Snapshot.open(folder)
    changed_three_times(folder)
    read = []
    real = file_format.read_table
    monkeypatch.setattr(file_format, "read_table", lambda *a: (read.append(a[1]), real(*a))[1])
    newest = sr.Snapshot.open(folder)
    assert newest.segments[0] is held.segments[0]
    assert len(read) == 6, "three deltas with their ids"
    assert sr.Snapshot.open(folder, 3).segments == newest.segments[:3]
    assert len(read) == 6
    del held, newest
    sr.Snapshot.open(folder)
    assert len(read) == 14, "nobody has them any more"


def test_a_file_that_was_written_over_is_read_again_though_it_was_opened(folder):
    held = sr.Snapshot.open(folder)
    [path] = (folder / "segments").iterdir()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()
    path.write_bytes(damaged)
    with pytest.raises(sr.SnapshotError, match="damaged"):
        sr.Snapshot.open(folder)
    assert pairs(held) == pairs(small())


def test_another_folder_gets_files_of_its_own(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    assert published(changed_three_times(folder), other).revision == 4
    assert sr.publish(sr.Snapshot.open(other).changed([Remove("light")], 9), folder) == 9
    for path in (folder, other):
        verify_snapshot(sr.Snapshot.open(path))
    assert len(sr.Snapshot.open(folder)) == 3


def test_a_refused_revision_leaves_no_file_behind(folder):
    snapshot = sr.Snapshot.open(folder).changed([Add("new")], 1)
    before = sorted(folder.rglob("*"))
    with pytest.raises(sr.SnapshotError, match="already published"):
        sr.publish(snapshot, folder)
    assert sorted(folder.rglob("*")) == before
    assert published(replace(snapshot, revision=2), folder).revision == 2
    assert len(sr.Snapshot.open(folder)) == 5


def test_a_crash_at_any_step_leaves_the_revision_complete_or_absent(folder, monkeypatch):
    """A fault at each step that makes something durable, n = 1, 2, 3 … until publishing succeeds."""
    durable = ("fsync", "link", "replace", "rename", "mkdir")
    snapshot = sr.Snapshot.open(folder).changed([Remove("heavy"), Add("new")])
    for step in range(100):
        left = [step]

        def failing(*arguments, real, left=left, **named):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(*arguments, **named)

        with monkeypatch.context() as context:
            for name in durable:
                context.setattr(os, name, functools.partial(failing, real=getattr(os, name)))
            try:
                revision = sr.publish(snapshot, folder)
            except KeyboardInterrupt:
                revision = None
        newest = sr.Snapshot.open(folder)
        assert len(newest.ids) in ((4,) if newest.revision == 1 else (5,))
        if revision is not None:
            break
        # What a crash left behind is in nobody's way, not even in that of the same publisher.
    assert revision is not None and step > 5
    assert sr.Snapshot.open(folder, revision).deaths == (1, 0)
