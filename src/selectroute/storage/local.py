"""Storage on a mounted file system: files appear by renames and links, and are flushed to the disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.storage.protocol import ChangedError, DeniedError, Entry


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Storage whose keys are absolute paths; see `Storage`."""

    local: ClassVar[bool] = True
    """True: keys are paths."""

    def url(self, key: str) -> str:
        """Return the path."""
        return key

    def read(self, key: str) -> bytes:
        """Return a file."""
        return Path(key).read_bytes()

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        with disk.opened_regular(Path(key)) as file:
            file.seek(start)
            return file.read(length)

    def read_version(self, key: str) -> tuple[bytes, str]:
        """Return a file and the SHA-256 of its content."""
        data = self.read(key)
        return data, _version(data)

    def put(self, key: str, data: bytes) -> None:
        """Write a file under another name, and rename it."""
        disk.replace_bytes(Path(key), data)

    def put_new(self, key: str, data: bytes) -> None:
        """Write a file under another name, and link it."""
        disk.link_new(Path(key), data)

    def replace(self, key: str, data: bytes, version: str) -> str:
        """Replace a file under a lock of its folder that all writers of it take."""
        path = Path(key)
        with FileLock(path.with_name(f".{path.name}.lock")):
            try:
                same = _version(path.read_bytes()) == version
            except FileNotFoundError:
                same = False
            if not same:
                raise ChangedError(f"{key} was changed by another process")
            disk.replace_bytes(path, data)
        return _version(data)

    def entries(self, folder: str, *, deep: bool = False) -> Iterator[Entry]:
        """Yield the files in a folder. With ``deep`` a symbolic link to a folder is not followed, but is a
        file, which can't be read; so is one that leads nowhere. Raises DeniedError.
        """
        waiting = [folder]
        while waiting:
            try:
                members = sorted(os.scandir(waiting.pop()), key=lambda member: member.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError as error:
                raise DeniedError(f"the folder {error.filename} may not be read") from error
            for member in members:
                try:
                    if member.is_dir(follow_symlinks=not deep):
                        waiting += [member.path] * deep
                        continue
                    status = member.stat(
                        follow_symlinks=not member.is_symlink() or os.path.isfile(member.path)
                    )
                except FileNotFoundError:  # it has just been removed
                    continue
                yield Entry(member.path, status.st_size, status.st_mtime)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, empty ones included."""
        try:
            return sorted(member.name for member in os.scandir(folder) if member.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def entry(self, key: str) -> Entry | None:
        """Return the entry of a file."""
        try:
            status = os.stat(key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if stat.S_ISDIR(status.st_mode) else Entry(key, status.st_size, status.st_mtime)

    def delete(self, key: str) -> None:
        """Delete a file."""
        Path(key).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it, as far as it can be deleted."""
        shutil.rmtree(folder, ignore_errors=True)

    def make_folder(self, folder: str) -> None:
        """Make a folder and its parents, durably."""
        disk.make_folder(Path(folder))

    def upload(self, path: Path, key: str) -> None:
        """Copy a file, durably."""
        target = Path(key)
        temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}.tmp")
        shutil.copyfile(path, temporary)
        disk.flush(temporary)
        disk.rename(temporary, target)

    def download(self, key: str, path: Path) -> None:
        """Copy a file; where the file system can, the copy shares its blocks until one of them is changed."""
        try:
            with open(key, "rb") as source, path.open("wb") as copy:
                while os.copy_file_range(source.fileno(), copy.fileno(), 1 << 30):
                    pass
        except OSError:  # another file system, or one that can't
            shutil.copyfile(key, path)


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
