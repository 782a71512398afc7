"""Short runs of damaged files and of hostile snapshot folders, and that a fault would be found."""

from __future__ import annotations

import os
import random
import shutil

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

import selectroute as sr
from selectroute.index import snapshot_files as file_format
from tests.crash.programs.files import damage, hostile
from tests.support.components import after_first
from tests.unit.index.published import small

pytestmark = pytest.mark.slow


def test_a_damaged_registry_or_snapshot_is_named_or_answers_as_it_did(tmp_path):
    found = damage.run_registry(tmp_path, 6, random.Random(1))
    assert found["manifest"]["named"] and found["segments"]["named"] and found["ids"]["named"]
    assert found["registry.json"]["named"]


@pytest.mark.parametrize("table_format", after_first(pytest.mark.nightly, "parquet", "delta"))
def test_a_damaged_file_of_the_stream_is_named_or_changes_nothing(tmp_path, table_format):
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from tests.crash.programs.files.damage_stream import run_stream

    found = run_stream(tmp_path / "stream", 8, random.Random(1), table_format)
    assert sum(sum(counts.values()) for counts in found.values()) > 100


def test_a_wrong_answer_is_found_and_the_folder_is_put_back(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("right")

    def use():
        assert (folder / "file").read_text() == "right", "another answer"
        return False

    with pytest.raises(AssertionError, match=r"file, bit . of byte .: AssertionError: another answer"):
        damage.each_damage(folder, folder / "file", 1, random.Random(1), use)
    assert (folder / "file").read_text() == "right"


def test_a_hostile_folder_is_refused_with_a_sentence_or_gives_matches(tmp_path):
    counts = hostile.run(tmp_path, seed=7, copies=250)
    assert counts["refused"] > 100 and counts["matched"] > 10


@pytest.mark.nightly
def test_a_fault_of_the_kernel_would_be_found(tmp_path, monkeypatch):
    monkeypatch.setattr(file_format, "check_safety", lambda segment: None)
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
