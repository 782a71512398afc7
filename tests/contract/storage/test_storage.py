"""What every storage does: on this machine, and in a store that speaks S3."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from selectroute.storage import ChangedError, Location


def test_what_was_put_is_read_and_replaced(folder):
    file = folder / "x.json"
    with pytest.raises(FileNotFoundError):
        file.read()
    assert not file.exists() and file.read_json() is None
    file.put(b"1")
    file.put(b"two")
    assert file.read() == b"two"
    assert file.entry().size == 3
    file.put_json({"n": 1})
    assert file.read_json() == {"n": 1}


def test_a_file_that_exists_is_not_written_again(folder):
    file = folder / "x"
    file.put_new(b"1")
    with pytest.raises(FileExistsError):
        file.put_new(b"2")
    assert file.read() == b"1"


def test_a_version_that_was_changed_is_not_replaced(folder):
    file = folder / "x"
    file.put_new(b"1")
    storage, key = file.storage, file.key
    data, version = storage.read_version(key)
    assert data == b"1"
    newer = storage.replace(key, b"2", version)
    with pytest.raises(ChangedError):
        storage.replace(key, b"3", version)
    assert storage.read_version(key) == (b"2", newer)
    storage.replace(key, b"4", newer)
    with pytest.raises(ChangedError):
        storage.replace(key, b"5", newer)


def test_of_many_writers_of_one_new_file_one_wins(folder):
    file = folder / "x"

    def write(number):
        with suppress(FileExistsError):
            file.put_new(b"%d" % number)
            return number

    with ThreadPoolExecutor(8) as pool:
        [won] = [number for number in pool.map(write, range(8)) if number is not None]
    assert file.read() == b"%d" % won


def test_a_listing_has_the_files_of_the_folder(folder):
    assert [*folder.entries()] == [] and folder.folders() == []
    for name in ("b", "a", "sub/c", "sub/deep/d"):
        one = folder / name
        one.parent.make_folder()
        one.put(name.encode())
    assert [one.name for one in folder.files()] == ["a", "b"]
    deep = sorted(Location(folder.storage, one.key).relative_to(folder) for one in folder.entries(deep=True))
    assert deep == ["a", "b", "sub/c", "sub/deep/d"]
    assert [one.name for one in folder.folders()] == ["sub"]
    assert folder.is_folder() and not (folder / "none").is_folder()
    (folder / "sub").delete_folder()
    assert [one.name for one in folder.files()] == ["a", "b"] and folder.folders() == []
    (folder / "a").delete()
    (folder / "a").delete()
    assert [one.name for one in folder.files()] == ["b"]


def test_large_files_are_uploaded_and_downloaded(folder, tmp_path):
    data = bytes(range(256)) * (12 << 12)
    (tmp_path / "here").write_bytes(data)
    file = folder / "large"
    file.storage.upload(tmp_path / "here", file.key)
    assert file.entry().size == len(data)
    file.storage.download(file.key, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == data
    with pytest.raises(FileNotFoundError):
        file.storage.download(file.key + "-none", tmp_path / "nothing")


def test_a_file_is_read_in_parts(folder):
    data = bytes(range(256)) * 100
    (folder / "x").put(data)
    with (folder / "x").open() as file:
        file.seek(1000)
        assert file.read(10) == data[1000:1010] and file.tell() == 1010
        file.seek(-3, 2)
        assert file.read() == data[-3:] and file.read(1) == b""
        file.seek(0)
        assert file.read() == data
    assert folder.storage.read_range((folder / "x").key, 5, 3) == data[5:8]
    (folder / "empty").put(b"")
    with (folder / "empty").open() as file:
        assert file.read() == b""
    with pytest.raises(FileNotFoundError):
        (folder / "none").open()


def test_names_are_kept_as_they_are(folder):
    for name in ("with space", "100%", "ünï", "a+b", "#hash", "batch=1"):
        (folder / name).put(name.encode())
        assert (folder / name).read() == name.encode()
    assert len([*folder.entries()]) == 6


def test_a_folder_that_can_be_written_is_left_as_it_was(folder):
    (folder / "x").put(b"1")
    folder.check_writable()
    assert [entry.key for entry in folder.entries(deep=True)] == [(folder / "x").key]
