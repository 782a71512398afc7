"""Planner of files: which files a batch has, and when the folder is listed."""

import os

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from selectroute.spark.sources.files import source
from selectroute.spark.sources.files.lister import FileLister
from selectroute.storage import Location
from selectroute.storage.protocol import UnreachableError

LIMIT = ReadAllAvailable()


@pytest.fixture
def listings(monkeypatch):
    """How often a folder was listed; the listings that fail, by their number."""
    entries = Location.entries
    counts = {"made": 0, "fail": set()}

    def counted(self, *, deep=False):
        counts["made"] += 1
        if counts["made"] in counts["fail"]:
            raise UnreachableError("the storage does not answer")
        return entries(self, deep=deep)

    monkeypatch.setattr(Location, "entries", counted)
    return counts


@pytest.fixture
def write(tmp_path):
    def write(*names):
        for name in names:
            (tmp_path / name).write_bytes(b"x")
            os.utime(tmp_path / name, (int(name), int(name)))

    return write


def names(offset):
    return [name for name, _ in offset["files"]]


def test_the_next_files_are_known_when_a_batch_ends(tmp_path, write, listings):
    write("3", "1", "2")
    lister = FileLister(str(tmp_path), 1, ["1"])
    first = lister.latestOffset(lister.initialOffset(), LIMIT)
    assert (first["number"], names(first)) == (1, ["2"])
    lister._ahead.result()
    assert listings["made"] == 2
    second = lister.latestOffset(first, LIMIT)
    assert (second["number"], names(second)) == (2, ["3"])
    lister._ahead.result()
    assert listings["made"] == 3, "it did not list the folder while Spark waited"
    write("4")  # later than the folder was listed
    third = lister.latestOffset(second, LIMIT)
    assert names(third) == ["4"]
    assert lister.latestOffset(third, LIMIT) == third, "nothing is new"


def test_a_folder_is_listed_again_if_the_storage_did_not_answer(tmp_path, write, listings):
    write("1", "2")
    lister = FileLister(str(tmp_path), 1, [])
    listings["fail"] = {2}
    first = lister.latestOffset(lister.initialOffset(), LIMIT)
    second = lister.latestOffset(first, LIMIT)
    assert names(second) == ["2"]
    assert lister.latestOffset(first, LIMIT) == second, "Spark may ask twice for one batch"
    lister._ahead.result()  # it would be counted by the next test


def test_what_comes_later_is_not_part_of_what_is_available_now(tmp_path, write, listings):
    write("1", "2")
    lister = FileLister(str(tmp_path), 1, [])
    lister.prepareForTriggerAvailableNow()
    write("0")
    first = lister.latestOffset(lister.initialOffset(), LIMIT)
    second = lister.latestOffset(first, LIMIT)
    assert (names(first), names(second)) == (["1"], ["2"])
    assert lister.latestOffset(second, LIMIT) == second
    assert listings["made"] == 4, "at the start, for the first batch, and while each was routed"


def test_names_of_many_committed_batches_are_merged_into_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_MERGED_AFTER", 1)
    output = Location.of(tmp_path)
    (output / "_commits").make_folder()
    for batch in range(4):
        (output / "_commits" / f"{batch}.json").put_json({"inputs": {"sizes": {str(batch): 1}}})
        known = source.read_before(output)
        assert known == [str(number) for number in range(batch + 1)]
    assert [file.name for file in (output / "_inputs").files()] == ["3.json"]
