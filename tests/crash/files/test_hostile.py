"""A short run of hostile snapshot folders, and that a crash of the kernel would be found."""

from __future__ import annotations

import os
import shutil

import pytest

import selectroute as sr
from selectroute.index.folder import format as file_format
from tests.crash.programs.files import hostile
from tests.unit.index.published import small

pytestmark = pytest.mark.slow


def test_a_hostile_folder_is_refused_with_a_sentence_or_gives_matches(tmp_path):
    counts = hostile.run(tmp_path, seed=7, copies=250)
    assert counts["refused"] > 100 and counts["matched"] > 10


@pytest.mark.nightly
def test_a_fault_of_the_kernel_would_be_found(tmp_path, monkeypatch):
    monkeypatch.setattr(file_format, "check_memory_safety", lambda segment: None)
    with pytest.raises(AssertionError, match="ended by signal"):
        hostile.run(tmp_path, seed=7, copies=100)


def test_a_fifo_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    sr.publish(small(), tmp_path / "sound")
    for pattern in ("manifest-*.json", "segments/*", "ids/*"):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "sound", copy)
        [path] = copy.glob(pattern)
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(sr.SnapshotError, match="not a regular file"):
            sr.Snapshot.open(copy)
        shutil.rmtree(copy)
