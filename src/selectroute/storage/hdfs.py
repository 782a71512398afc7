"""HDFS, by hdfs-native: a client in Rust that speaks its protocol, without a JVM or ``libhdfs``.

Addresses of a nameservice, and security, are those of ``core-site.xml`` and ``hdfs-site.xml`` in
``HADOOP_CONF_DIR``; with Kerberos, the ticket is that of the process.

A file is written under another name and then renamed, which the NameNode does as one step: with the condition
that the target does not exist, one of several writers wins. HDFS has no write under the condition of a
version. There a file that is replaced by its version is a series of files, of which each is written once:
``lease.json``, ``.lease.json.1``, ``.lease.json.2``; the newest counts, and older ones are deleted.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

from selectroute.extras import the_extra
from selectroute.storage.protocol import ChangedError, DeniedError, Entry, StorageError, UnreachableError

_CHUNK: Final = 8 << 20

_SETTINGS: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.max.millis": "500",
}
"""Tries before an error: with the client's own default it comes after three minutes, without a word."""


@dataclass(frozen=True, slots=True)
class HdfsStorage:
    """File system of a cluster; see `Storage`. Keys are paths without the first slash.

    ``root`` is its URL, ``hdfs://host:port`` or ``hdfs://nameservice``.
    """

    root: str

    local: ClassVar[bool] = False
    """False: a key is not a path of this machine."""

    def url(self, key: str) -> str:
        """Return the URL of a key."""
        return f"{self.root}/{key}"

    def read(self, key: str) -> bytes:
        """Return a file."""
        with self._reading(key):
            return bytes(self._client.read(f"/{key}").read())

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        with self._reading(key):
            file = self._client.read(f"/{key}")
            length = min(length, len(file) - start)
            return bytes(file.read_range(start, length)) if length > 0 else b""

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return the newest of a series of files, and its number."""
        while True:
            number = max(self._numbers(key), default=0)
            try:
                return self.read(_numbered(key, number)), str(number)
            except FileNotFoundError:
                if not number:
                    raise
                # It was replaced meanwhile, and deleted.

    def put(self, key: str, data: bytes) -> None:
        """Write a file under another name, and rename it."""
        with self._writing(key):
            temporary = self._written(key, data)
        try:
            with self._writing(key):
                self._client.rename(temporary, f"/{key}", overwrite=True)
        except FileNotFoundError:
            # The answer to an earlier try may have been lost, and what is to be renamed is gone.
            if self.read(key) != data:
                raise

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file under another name, and rename it if there is none."""
        with self._writing(key):
            temporary = self._written(key, data)
        try:
            with self._writing(key):
                self._client.rename(temporary, f"/{key}", overwrite=False)
        except (FileExistsError, FileNotFoundError) as error:  # or an answer was lost, as above
            self.delete(temporary[1:])
            if self.read(key) != data:
                raise FileExistsError(17, "file exists", self.url(key)) from error

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Write the next of a series of files, if it does not exist, and there is none after it."""
        number = int(version) + 1
        changed = ChangedError(f"{self.url(key)} was changed by another process")
        try:
            self.put_new(_numbered(key, number), data)
        except (FileExistsError, FileNotFoundError) as error:
            raise changed from error
        numbers = self._numbers(key)
        for old in numbers:
            if old < number - 1:
                self.delete(_numbered(key, old))
        if max(numbers, default=0) > number:
            raise changed  # this process stood still meanwhile, and older files were deleted
        return str(number)

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder."""
        try:
            with self._reading(folder):
                statuses = sorted(
                    self._client.list_status(f"/{folder}", deep), key=lambda status: str(status.path)
                )
        except FileNotFoundError:
            return
        for status in statuses:
            if not status.isdir:
                yield Entry(
                    str(status.path).lstrip("/"), int(status.length), status.modification_time / 1_000
                )

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, empty ones included."""
        try:
            with self._reading(folder):
                statuses = [*self._client.list_status(f"/{folder}", False)]
        except FileNotFoundError:
            return []
        return sorted(str(status.path).rpartition("/")[2] for status in statuses if status.isdir)

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file."""
        try:
            with self._reading(key):
                status = self._client.get_file_info(f"/{key}")
        except FileNotFoundError:
            return None
        return None if status.isdir else Entry(key, int(status.length), status.modification_time / 1_000)

    def delete(self, key: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError), self._writing(key):
            self._client.delete(f"/{key}", False)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it."""
        with suppress(FileNotFoundError), self._writing(folder):
            self._client.delete(f"/{folder}", True)

    def make_folder(self, folder: str) -> None:
        """Make a folder and its parents."""
        with self._writing(folder):
            self._client.mkdirs(f"/{folder}", 0o755, True)

    def upload(self, path: Path, key: str) -> None:
        """Write a file of this machine, some MiB at a time, and rename it."""
        with self._writing(key), path.open("rb") as data:
            temporary = _temporary(key)
            with self._created(temporary) as file:
                while chunk := data.read(_CHUNK):
                    file.write(chunk)
            self._client.rename(temporary, f"/{key}", overwrite=True)

    def download(self, key: str, path: Path) -> None:
        """Write a file to one of this machine, some MiB at a time."""
        with self._reading(key):
            file = self._client.read(f"/{key}")
            with path.open("xb") as new:
                for start in range(0, len(file), _CHUNK):
                    new.write(file.read_range(start, min(_CHUNK, len(file) - start)))

    def _written(self, key: str, data: bytes) -> str:
        temporary = _temporary(key)
        with self._created(temporary) as file:
            file.write(data)
        return temporary

    def _created(self, path: str) -> Any:
        from hdfs_native import WriteOptions

        return self._client.create(path, WriteOptions(overwrite=True, create_parent=True))

    def _numbers(self, key: str) -> list[int]:
        """Return the numbers of the later files of a series."""
        folder, _, name = key.rpartition("/")
        ours = re.compile(re.escape(f".{name}.") + r"([1-9]\d*)")
        names = (entry.key.rpartition("/")[2] for entry in self.entries(folder))
        return [int(ending[1]) for name in names if (ending := ours.fullmatch(name))]

    @property
    def _client(self) -> Any:
        return _opened(self.root, os.getpid())

    def _reading(self, key: str) -> Any:
        return _as_ours("read", self.url(key))

    def _writing(self, key: str) -> Any:
        return _as_ours("written", self.url(key))


def _temporary(key: str) -> str:
    folder, _, name = key.rpartition("/")
    return f"/{folder}/.{name}-{uuid.uuid4().hex[:8]}.tmp".replace("//", "/")


def _numbered(key: str, number: int) -> str:
    folder, _, name = key.rpartition("/")
    return f"{folder}/.{name}.{number}".lstrip("/") if number else key


@lru_cache(maxsize=16)
def _opened(root: str, process: int) -> Any:
    """Return the client of a cluster for this process; its threads do not survive a fork."""
    try:
        from hdfs_native import Client
    except ImportError as error:
        raise StorageError(f"{root} needs {the_extra('storage')}") from error
    try:
        return Client(root, _SETTINGS)
    except Exception as error:
        raise StorageError(f"{root} can't be opened: {_line(error)}") from error


@contextmanager
def _as_ours(what: str, url: str) -> Iterator[None]:
    """Raise the client's errors as ours. ``what`` is what could not be done, such as ``read``."""
    try:
        yield
    except StorageError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(2, "no such file", url) from error
    except FileExistsError as error:
        raise FileExistsError(17, "file exists", url) from error
    except PermissionError as error:
        raise DeniedError(f"{url} can't be {what}: {_line(error)}") from error
    except (OSError, RuntimeError) as error:
        raise _named(error, what, url) from error


def _named(error: Exception, what: str, url: str) -> Exception:
    text = str(error)
    if "AccessControlException" in text or "Permission denied" in text:
        return DeniedError(f"{url} can't be {what}: the user does not have the right")
    if "AlreadyExists" in text:
        return FileExistsError(17, "file exists", url)
    if "FileNotFoundException" in text or "does not exist" in text:
        return FileNotFoundError(2, "no such file", url)
    return UnreachableError(f"{url} can't be {what}: HDFS does not answer ({_line(error)})")


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
