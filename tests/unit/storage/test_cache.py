"""Local copies of remote files."""

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from selectroute.storage import Location, StorageError
from selectroute.storage.cache import cached
from selectroute.storage.local import LocalStorage


class RemoteFolder(LocalStorage):
    """A folder of this machine that counts what is downloaded, as if it were remote."""

    downloads: ClassVar[list[str]] = []

    @property
    def local(self):
        return False

    def download(self, key, path):
        self.downloads.append(key)
        super().download(key, path)


@pytest.fixture
def remote(tmp_path, monkeypatch):
    (tmp_path / "remote").mkdir()
    monkeypatch.setattr(RemoteFolder, "downloads", [])

    def written(name, data):
        (tmp_path / "remote" / name).write_bytes(data)
        return Location(RemoteFolder(), str(tmp_path / "remote" / name)), hashlib.sha256(data).hexdigest()

    return written


def test_a_file_is_downloaded_once(remote, tmp_path):
    file, sha256 = remote("x", b"data")
    one = cached(file, sha256, tmp_path / "cache")
    assert cached(file, sha256, tmp_path / "cache") == one and one.read_bytes() == b"data"
    assert len(RemoteFolder.downloads) == 1


def test_several_at_once_download_a_file_once(remote, tmp_path):
    file, sha256 = remote("x", os.urandom(1 << 20))
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(cached, file, sha256, tmp_path / "cache") for _ in range(6)]
    assert len({one.result() for one in found}) == 1 and len(RemoteFolder.downloads) == 1


def test_a_file_with_another_digest_is_not_kept(remote, tmp_path):
    file, _ = remote("x", b"data")
    with pytest.raises(StorageError, match="x is damaged"):
        cached(file, "0" * 64, tmp_path / "cache")
    assert not [one for one in (tmp_path / "cache").glob("??/*") if one.suffix != ".lock"]


def test_what_was_not_used_for_longest_makes_room(remote, tmp_path, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_CACHE_BYTES", "250")
    files = [remote(f"x{number}", bytes([number]) * 100) for number in range(3)]
    first, second = (cached(*one, tmp_path / "cache") for one in files[:2])
    os.utime(first, (2, 2))
    os.utime(second, (1, 1))
    third = cached(*files[2], tmp_path / "cache")
    assert first.exists() and third.exists() and not second.exists()
    assert cached(*files[1], tmp_path / "cache").read_bytes() == bytes([1]) * 100


def test_what_another_process_downloads_is_not_removed_and_what_it_gave_up_is(remote, tmp_path, monkeypatch):
    monkeypatch.setenv("SELECTROUTE_CACHE_BYTES", "10")
    for number, name in enumerate(("begun.tmp", "given-up.tmp")):
        path = tmp_path / "cache" / "00" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0" * 100)
        os.utime(path, (time.time() - 7200 * number,) * 2)
    cached(*remote("x", b"1" * 100), tmp_path / "cache")
    assert [one.name for one in (tmp_path / "cache" / "00").iterdir()] == ["begun.tmp"]


def test_a_local_file_has_a_private_copy(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"1" * 10_000)
    copy = cached(Location.of(file), hashlib.sha256(b"1" * 10_000).hexdigest(), tmp_path / "cache")
    file.write_bytes(b"2" * 10_000)
    assert copy.read_bytes() == b"1" * 10_000


def test_a_digest_is_no_path(remote, tmp_path):
    file, _ = remote("x", b"data")
    with pytest.raises(StorageError, match="no valid SHA-256"):
        cached(file, "../../etc/passwd", tmp_path / "cache")
