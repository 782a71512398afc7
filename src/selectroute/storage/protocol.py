"""Protocol of storage: its verbs, its errors, and a base of wrappers.

A missing file is a FileNotFoundError, one that exists already a FileExistsError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from selectroute.selector.errors import SelectRouteError


class StorageError(SelectRouteError, OSError):
    """Storage that can't be used, as one sentence that names the URL."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownSchemeError(StorageError):
    """URL with a scheme that is not known, or without what its scheme needs, such as a bucket."""


class NoBucketError(StorageError):
    """Bucket or container that does not exist."""


class ChangedError(StorageError):
    """File that was changed, or removed, since the version that was to be replaced."""


class DeniedError(StorageError):
    """Credentials that are missing, have expired, or do not allow the action."""


class UnreachableError(StorageError):
    """Storage that does not answer, or answers with an error of its own. Later it may answer."""


Result = TypeVar("Result")


class Entry(NamedTuple):
    """File in a listing: its key, its size in bytes, and when it was last changed, in seconds since 1970."""

    key: str
    size: int
    modified: float


class Storage(Protocol):
    """Storage of files by key, such as ``out/_commits/7.json``.

    A file appears whole or not at all, and survives a crash of any machine once the verb has returned. All
    verbs raise `StorageError`; what they raise besides is with each.
    """

    @property
    def local(self) -> bool:
        """True if keys are paths of this machine."""

    def url(self, key: str) -> str:
        """Return the URL of a key, as users write it."""

    def read(self, key: str) -> bytes:
        """Return a file. Raises FileNotFoundError."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file. Raises FileNotFoundError."""

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return a file and its version, for `replace`. Raises FileNotFoundError.

        A file that is replaced by its version is made by `put_new`, and read by this only.
        """

    def put(self, key: str, data: bytes) -> None:
        """Write a file; one that exists is replaced."""

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file that does not exist. Raises FileExistsError.

        If the answer of the storage is lost, the file is read again: with exactly this content it is taken
        for the caller's own. Content by which two writers are to be told apart therefore names its writer.
        """

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a file that still has this version; return the new one. Raises `ChangedError`."""

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder, and with ``deep`` in its sub-folders, too; none if it is missing."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders of a folder that have files, sorted."""

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file; None if there is none."""

    def delete(self, key: str) -> None:
        """Delete a file, if there is one."""

    def delete_folder(self, folder: str) -> None:
        """Delete all files in a folder and its sub-folders."""

    def make_folder(self, folder: str) -> None:
        """Make a folder, where storage has folders of its own."""

    def upload(self, path: Path, key: str) -> None:
        """Write the file of this machine at ``path``, of any size."""

    def download(self, key: str, path: Path) -> None:
        """Write a file to a new one of this machine. Raises FileNotFoundError."""


@dataclass(frozen=True, slots=True)
class WrappedStorage:
    """Storage that passes each verb on to another one by `ask`. A subclass overrides what it changes.

    Attributes:
        storage: the other storage.
    """

    storage: Storage

    def ask(self, call: Callable[[], Result]) -> Result:
        """Return what a call of the other storage returns."""
        return call()

    @property
    def local(self) -> bool:
        """True if keys are paths of this machine."""
        return self.storage.local

    def url(self, key: str) -> str:
        """Return the URL of a key."""
        return self.storage.url(key)

    def read(self, key: str) -> bytes:
        """Return a file."""
        return self.ask(lambda: self.storage.read(key))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        return self.ask(lambda: self.storage.read_range(key, start, length))

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return a file and its version."""
        return self.ask(lambda: self.storage.read_version(key))

    def put(self, key: str, data: bytes) -> None:
        """Write a file."""
        self.ask(lambda: self.storage.put(key, data))

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file that does not exist."""
        self.ask(lambda: self.storage.put_new(key, data))

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a version of a file."""
        return self.ask(lambda: self.storage.replace(key, data, version))

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder; the whole listing is one call."""
        return iter(self.ask(lambda: [*self.storage.entries(folder, deep=deep)]))

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders."""
        return self.ask(lambda: self.storage.folders(folder))

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file."""
        return self.ask(lambda: self.storage.entry(key))

    def delete(self, key: str) -> None:
        """Delete a file."""
        self.ask(lambda: self.storage.delete(key))

    def delete_folder(self, folder: str) -> None:
        """Delete a folder."""
        self.ask(lambda: self.storage.delete_folder(folder))

    def make_folder(self, folder: str) -> None:
        """Make a folder."""
        self.ask(lambda: self.storage.make_folder(folder))

    def upload(self, path: Path, key: str) -> None:
        """Write a file of this machine."""
        self.ask(lambda: self.storage.upload(path, key))

    def download(self, key: str, path: Path) -> None:
        """Write a file to a new one of this machine; what a call that failed has left of it goes first."""

        def once() -> None:
            path.unlink(missing_ok=True)
            self.storage.download(key, path)

        self.ask(once)
