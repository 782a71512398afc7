"""The copy of Spark's checkpoint on the driver's disk, whose files are kept in remote storage."""

from pathlib import Path

import pytest

from selectroute.spark.job import JobError
from selectroute.spark.working_copy import keep, restore, working_copy
from selectroute.storage import Location
from selectroute.storage.local import LocalStorage

FILES = {"metadata": '{"id": "x"}', "sources/0/0": "v1\n{}", "offsets/0": "v1\n{}\n0"}


class Killed(BaseException):
    """The end of the process."""


class Remote(LocalStorage):
    """A folder of this machine as if it were remote."""

    @property
    def local(self):
        return False

    def put(self, key, data):
        Path(key).parent.mkdir(parents=True, exist_ok=True)
        super().put(key, data)

    def put_new(self, key, data):
        Path(key).parent.mkdir(parents=True, exist_ok=True)
        super().put_new(key, data)


def write(copy, files):
    for name, text in files.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)


def names(checkpoint):
    return {path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if not path.is_dir()}


@pytest.fixture
def checkpoint(tmp_path):
    return Location(Remote(), str(tmp_path / "checkpoint"))


def test_a_copy_is_kept_and_made_again(checkpoint, tmp_path):
    write(working_copy(checkpoint), FILES)
    keep(checkpoint)
    assert names(tmp_path / "checkpoint") == set(FILES)
    write(working_copy(checkpoint), {"offsets/7": "not kept"})
    restore(checkpoint, lambda batch: True)
    # Our commit tells Spark that it is done with the batch.
    assert names(working_copy(checkpoint)) == {*FILES, "commits/0"}


@pytest.mark.parametrize("last", [*FILES])
def test_a_plan_is_kept_only_with_what_it_refers_to(checkpoint, tmp_path, monkeypatch, last):
    put = Location.put_new

    def killed(self, data):
        if str(self).endswith(last):
            raise Killed
        put(self, data)

    monkeypatch.setattr(Location, "put_new", killed)
    write(working_copy(checkpoint), FILES)
    with pytest.raises(Killed):
        keep(checkpoint)
    assert "offsets/0" not in names(tmp_path / "checkpoint")


def test_the_plan_of_a_process_that_has_taken_over_is_not_replaced(checkpoint, tmp_path):
    copy = working_copy(checkpoint)
    write(copy, FILES)
    keep(checkpoint)
    write(tmp_path / "checkpoint", {"offsets/1": "the other's", "commits/0": "v1\n{}"})
    write(copy, {"offsets/1": "ours", "commits/0": "v1\n{} "})
    with pytest.raises(FileExistsError):
        keep(checkpoint)
    assert (tmp_path / "checkpoint" / "offsets" / "1").read_text() == "the other's"


def test_what_spark_removed_is_removed_without_being_waited_for(checkpoint, tmp_path):
    copy, removals = working_copy(checkpoint), []
    write(copy, FILES)
    keep(checkpoint, removals.append)
    assert removals == []
    (copy / "offsets/0").unlink()
    write(copy, {"offsets/1": "v1\n{}\n1"})
    keep(checkpoint, removals.append)
    assert names(tmp_path / "checkpoint") == {*FILES, "offsets/1"}
    (removal,) = removals
    removal()
    keep(checkpoint, removals.append)
    assert names(tmp_path / "checkpoint") == {"metadata", "sources/0/0", "offsets/1"}
    assert removals == [removal]


def test_a_query_that_keeps_state_is_refused(checkpoint):
    write(working_copy(checkpoint), {"state/0/0": ""})
    with pytest.raises(JobError, match="keeps state"):
        keep(checkpoint)
