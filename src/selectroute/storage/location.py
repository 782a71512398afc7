"""Locations: files and folders by their URL."""

from __future__ import annotations

import io
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from selectroute.durable import disk
from selectroute.durable.disk import sealed, unsealed
from selectroute.durable.lock import FileLock
from selectroute.storage.hdfs import HdfsStorage
from selectroute.storage.local import LocalStorage
from selectroute.storage.objects import ObjectStorage
from selectroute.storage.protocol import ChangedError, Entry, Storage, StorageError, UnknownSchemeError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

OBJECT_SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss"})
"""Schemes of object stores."""

HDFS: Final = "hdfs"

SCHEMES: Final = "file, s3, gs, az, abfss, hdfs"
"""Schemes as error messages name them."""

_SMALL: Final = 32 << 20
"""Largest file that is read as a whole, in bytes."""

PROBE: Final = ".probe-"
"""Prefix of the folders that `Location.check_writable` makes; a killed process leaves its own."""


Where: TypeAlias = "str | os.PathLike[str] | Location"
"""Ways to name a location: a URL, a path, or the location itself."""


@dataclass(frozen=True, slots=True)
class Location:
    """File or folder in a storage: the storage, and the key in it. Equal locations are the same place.

    >>> str(Location.of("s3://bucket/out") / "_commits" / "7.json")
    's3://bucket/out/_commits/7.json'
    """

    storage: Storage
    key: str

    @classmethod
    def of(cls, where: Where) -> Location:
        """Return the location that a URL or a path names.

        Raises:
            UnknownSchemeError: the URL has an unknown scheme, or lacks its bucket or host.
        """
        if isinstance(where, Location):
            return where
        storage, key = _parsed(os.fspath(where))
        # Not kept with the rest: the working directory may change.
        return cls(storage, os.path.abspath(key) if storage.local else key)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """Name without its last suffix."""
        return Path(self.name).stem

    @property
    def parent(self) -> Location:
        """Folder of this location."""
        return Location(self.storage, self.key.rpartition("/")[0] or ("/" if self.storage.local else ""))

    @property
    def path(self) -> Path:
        """Path on this machine. Raises `StorageError` for remote storage."""
        if not self.storage.local:
            raise StorageError(f"{self} is not on a mounted file system")
        return Path(self.key)

    @property
    def is_local(self) -> bool:
        """True for a path of this machine."""
        return self.storage.local

    def __truediv__(self, name: str) -> Location:
        return Location(self.storage, f"{self.key.rstrip('/')}/{name}" if self.key else name)

    def __str__(self) -> str:
        return self.storage.url(self.key)

    def __fspath__(self) -> str:
        return str(self.path)

    def resolved(self) -> Location:
        """Return the one location of what several paths of this machine may lead to."""
        return Location(self.storage, os.path.realpath(self.key)) if self.is_local else self

    def is_in(self, folder: Location) -> bool:
        """Return whether this location is a folder, or in it."""
        if self.storage != folder.storage:
            return False
        return self.key == folder.key or self.key.startswith(
            f"{folder.key.rstrip('/')}/" if folder.key else ""
        )

    def relative_to(self, folder: Location) -> str:
        """Return the key below a folder that this location is in."""
        return self.key[len(folder.key.rstrip("/")) :].lstrip("/")

    def read(self) -> bytes:
        """Return the file's content. Raises FileNotFoundError, `StorageError`."""
        return self.storage.read(self.key)

    def open(self, size: int | None = None) -> BinaryIO:
        """Open the file for reading in parts, in any order. Raises FileNotFoundError, `StorageError`.

        Args:
            size: its length in bytes, if it is known: then a small file of remote storage is read as a whole,
                by one request.
        """
        if self.is_local:
            return open(self.path, "rb")
        if size is not None and size <= _SMALL:
            return io.BytesIO(self.read())
        if size is None:
            entry = self.entry()
            if entry is None:
                raise FileNotFoundError(2, "no such file", str(self))
            size = entry.size
        return io.BufferedReader(RemoteFile(self.storage, self.key, size), RemoteFile.AT_ONCE)

    def opened_by_arrow(self, size: int | None = None) -> Any:
        """Open the file for Arrow to read; ``size`` as for `open`. Raises OSError."""
        if self.is_local:
            return pa.OSFile(os.fsencode(self.key), "rb")
        return pa.PythonFile(self.open(size), "r")

    def read_json(self) -> dict[str, Any] | None:
        """Return the sealed JSON object in the file; None if there is no file.

        Raises:
            DamagedFileError: the file is not a JSON object, or does not match its seal.
        """
        try:
            data = self.read()
        except FileNotFoundError:
            return None
        try:
            return unsealed(data)
        except ValueError:
            sentence = f"{self} is damaged: its content has changed; restore it from a copy"
            raise disk.DamagedFileError(sentence) from None

    def put(self, data: bytes) -> None:
        """Write the file, or replace it: readers see the old content or the new one."""
        self.storage.put(self.key, data)

    def put_json(self, content: Mapping[str, Any]) -> None:
        """Write the file, or replace it, as sealed JSON."""
        self.put(sealed(content).encode())

    def put_new(self, data: bytes) -> None:
        """Write a file that does not exist. Raises FileExistsError; see `Storage.put_new`."""
        self.storage.put_new(self.key, data)

    def put_new_json(self, content: Mapping[str, Any]) -> None:
        """Write a file that does not exist as sealed JSON. Raises FileExistsError."""
        self.put_new(sealed(content).encode())

    def append_line(self, line: str) -> bool:
        """Append a line durably; return whether that was done: no file of remote storage can grow."""
        if self.is_local:
            disk.append_line(self.path, line)
        return self.is_local

    def draft(self) -> Path:
        """Return the path of this machine at which the file is written before `upload`: on a mounted file
        system its own, otherwise in a folder of this user only.
        """
        return self.path if self.is_local else Path(tempfile.mkdtemp(prefix="selectroute-"), self.name)

    def upload(self, draft: Path) -> None:
        """Write the file from its draft, which goes. On a mounted file system the draft is the file, and is
        flushed by who writes it.
        """
        if not self.is_local:
            try:
                self.storage.upload(draft, self.key)
            finally:
                self.discard(draft)

    def discard(self, draft: Path) -> None:
        """Remove a draft of the file."""
        draft.unlink(missing_ok=True)
        if not self.is_local:
            draft.parent.rmdir()

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[bool]:
        """Hold the lock of this file, which the system releases when the process dies. Yields whether it is
        held: remote storage has no locks. Raises OSError.
        """
        with FileLock(self.path, shared=shared) if self.is_local else nullcontext():
            yield self.is_local

    def exists(self) -> bool:
        """Return whether there is a file."""
        return self.entry() is not None

    def entry(self) -> Entry | None:
        """Return the entry of the file; None if there is none."""
        return self.storage.entry(self.key)

    def entries(self, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in the folder, and with ``deep`` in its sub-folders, too."""
        return self.storage.entries(self.key, deep=deep)

    def files(self) -> Iterator[Location]:
        """Yield the locations of the files in the folder."""
        return (Location(self.storage, entry.key) for entry in self.entries())

    def names(self) -> list[str]:
        """Return the names of the files in the folder, and of folders that storage has of its own. Nothing
        is asked of each file.
        """
        if not self.is_local:
            return [file.name for file in self.files()]
        try:
            return os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sync(self, names: Iterable[str] = ()) -> None:
        """Flush files of the folder that others than these methods wrote, and the names in it, to the disk.
        Remote storage has files durably or not at all.
        """
        if self.is_local:
            for name in names:
                disk.sync(self.path / name)
            disk.sync_folder(self.path)

    def folders(self) -> list[Location]:
        """Return the sub-folders that have files, by name."""
        return [self / name for name in self.storage.folders(self.key)]

    def is_folder(self) -> bool:
        """Return whether there is a folder: one that exists, or in remote storage one with a file."""
        if self.is_local:
            return self.path.is_dir()
        return next(iter(self.entries(deep=True)), None) is not None

    def is_missing(self) -> bool:
        """Return whether there is no such folder. Remote storage has every folder, with or without files."""
        return self.is_local and not self.path.is_dir()

    def check_writable(self) -> None:
        """Check that files can be listed, written and deleted in the folder, and that conditions are heeded.

        Some stores that speak S3 ignore the condition of a write. Two processes would then overwrite each
        other.

        On a mounted file system nothing is checked: it heeds them, and the first write says the rest.

        Raises:
            StorageError: one sentence with the cause.
        """
        if self.is_local:
            return
        next(iter(self.entries()), None)
        folder = self / f"{PROBE}{uuid.uuid4().hex}"
        file = folder / "file"
        try:
            folder.make_folder()
            file.put_new(b"1")
            version = self.storage.read_version(file.key)[1]
            if not _is_refused(lambda: file.put_new(b"2")):
                raise self._overwrites("only if it did not exist (If-None-Match)")
            self.storage.replace(file.key, b"3", version)
            if not _is_refused(lambda: self.storage.replace(file.key, b"4", version)):
                raise self._overwrites("only if it was unchanged (If-Match)")
        finally:
            folder.delete_folder()

    def _overwrites(self, condition: str) -> StorageError:
        return StorageError(
            f"{self} can't be used: its storage overwrites a file that was to be written {condition}"
        )

    def make_folder(self) -> None:
        """Make the folder, where storage has folders of its own."""
        self.storage.make_folder(self.key)

    def make_private_folder(self) -> None:
        """Make the folder, on a mounted file system for this user only; one that exists keeps its mode."""
        if self.is_local:
            disk.make_folder(self.path, disk.PRIVATE)
        else:
            self.make_folder()

    def delete(self) -> None:
        """Delete the file, if there is one."""
        self.storage.delete(self.key)

    def delete_folder(self) -> None:
        """Delete all files in the folder and its sub-folders."""
        self.storage.delete_folder(self.key)


class RemoteFile(io.RawIOBase):
    """File of remote storage, read by requests for parts of it. ``size`` is its length in bytes."""

    AT_ONCE: ClassVar[int] = 4 << 20
    """Bytes that a buffer before it should ask for."""

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        self._storage = storage
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to another position; return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer; return their number, 0 at the end."""
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        data = self._storage.read_range(self._key, self._at, wanted)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


_CREDENTIALS: Final = re.compile(
    r"^[^/]*://[^/@]*:[^/@]*@"  # USER:PASSWORD@HOST
    r"|^(?!abfss?:)[^/]*://[^/@]+@"
    r"|[?&](?:sig|signature|x-(?:amz|goog)-[a-z-]+|awsaccesskeyid|googleaccessid)=",  # signed URLs
    re.IGNORECASE,
)


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> tuple[Storage, str]:
    parts = _URL.match(text)
    scheme = "file" if parts is None else parts[1].lower()
    if scheme == "file":
        if parts is not None:
            text = unquote(re.sub(r"^file:(//)?", "", text, flags=re.IGNORECASE))
        return LocalStorage(), text
    if _CREDENTIALS.search(text):
        raise UnknownSchemeError(
            f"{scheme}://…: a URL must not have credentials, because it is shown and stored; they come from "
            "the environment or from files"
        )
    if scheme not in OBJECT_SCHEMES and scheme != HDFS:
        raise UnknownSchemeError(f"{text}: the scheme {scheme!r} is not known; it is one of {SCHEMES}")
    root, _, key = text.partition("://")[2].partition("/")
    if not root:
        noun = "host" if scheme == HDFS else "bucket"
        raise UnknownSchemeError(f"{text} names no {noun}: {scheme}://{noun.upper()}/FOLDER")
    key = "/".join(part for part in key.split("/") if part not in ("", "."))
    if ".." in key.split("/"):
        raise UnknownSchemeError(f"{text}: a URL must not have '..'")
    if scheme == HDFS:
        return HdfsStorage(f"{HDFS}://{root}"), key
    return ObjectStorage(f"{scheme}://{root}"), key


def _is_refused(write: Callable[[], object]) -> bool:
    """Return whether storage refuses a write whose condition does not hold."""
    try:
        write()
    except (FileExistsError, ChangedError):
        return True
    return False
