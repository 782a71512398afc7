"""A folder that only one process writes: it is known without asking."""

import pytest

from selectroute.storage import Location
from selectroute.storage.local import LocalStorage
from selectroute.storage.owned import begin, owned


class CountingStorage(LocalStorage):
    """A folder of this machine that counts its requests, as if it were remote."""

    asked = 0

    @property
    def local(self):
        return False


for verb in ("read", "put", "put_new", "entries", "folders", "entry", "delete", "delete_folder"):

    def counted(self, *arguments, _verb=verb, **options):
        CountingStorage.asked += 1
        return getattr(LocalStorage, _verb)(self, *arguments, **options)

    setattr(CountingStorage, verb, counted)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "out" / "pins" / "deep").mkdir(parents=True)
    (tmp_path / "out" / "pins" / "3.json").write_bytes(b"three")
    monkeypatch.setattr(CountingStorage, "asked", 0)
    folder = owned(Location(CountingStorage(), str(tmp_path / "out")), "pins")
    begin(folder)
    return folder


def requests():
    before, CountingStorage.asked = CountingStorage.asked, 0
    return before


def test_what_is_there_was_asked_once(folder):
    assert requests() == 1
    pins = folder / "pins"
    assert not (pins / "4.json").exists() and (pins / "3.json").exists()
    assert (pins / "4.json").read_json() is None
    assert [one.name for one in pins.files()] == ["3.json"] and pins.folders() == []
    (pins / "4.json").delete()
    (pins / "4.schemas").delete_folder()
    assert requests() == 0


def test_content_is_read_once_and_known_when_written(folder):
    requests()
    pins = folder / "pins"
    assert (pins / "3.json").read() == (pins / "3.json").read() == b"three"
    assert requests() == 1
    (pins / "4.json").put_new(b"four")
    (pins / "deep" / "5.json").put(b"five")
    assert (pins / "4.json").read() == b"four" and (pins / "4.json").entry().size == 4
    assert [one.name for one in pins.files()] == ["3.json", "4.json"]
    assert [one.name for one in pins.folders()] == ["deep"]
    assert requests() == 2
    (pins / "4.json").delete()
    assert not (pins / "4.json").exists()
    pins.delete_folder()
    assert [*pins.entries(deep=True)] == [] and requests() == 2


def test_other_folders_are_asked_for_each_time(folder):
    requests()
    (folder / "other").put(b"1")
    assert (folder / "other").read() == b"1" and (folder / "other").exists()
    assert requests() == 3


def test_a_file_that_exists_is_not_written_again(folder):
    with pytest.raises(FileExistsError):
        (folder / "pins" / "3.json").put_new(b"other")
    assert (folder / "pins" / "3.json").read() == b"three"


def test_a_local_folder_is_left_as_it_is(tmp_path):
    folder = Location.of(tmp_path)
    assert owned(folder, "pins") is folder
