"""Files that are there whole or not at all, also after a loss of power.

Everything that must be found again after a crash is written by these functions and no others, so that a test
can fail each of them in turn. They call each other, and are called, by their names in this module.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from selectroute.durable.sealed_json import sealed, unsealed
from selectroute.selector.errors import SelectRouteError


class DamagedFileError(SelectRouteError, ValueError):
    """A file is not what was written; the message names it."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put ``content`` at ``path`` in one step, sealed: a reader sees the old file or the new one, whole."""
    replace_text(path, sealed(content))


def replace_text(path: Path, text: str) -> None:
    """Put a text at ``path`` in one step: readers see the old file or the new one, whole. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in this file, or None where there is no file.

    A file of an earlier release, or of Spark, has no seal and is taken as it is.

    Raises:
        DamagedFileError: the file is there, and is no JSON object or another one than its seal says.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    damaged = DamagedFileError(f"{path} is damaged: it is not what was written; put it back from a copy")
    try:
        return unsealed(data)
    except ValueError:
        raise damaged from None


def append_line(path: Path, line: str) -> None:
    """Add one line to a file and flush it. A crash may leave part of the line."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def move(source: Path, target: Path) -> None:
    """Move a file or folder within one file system in one step; flush the target's folder when all are
    there."""
    os.rename(source, target)


def rename(source: Path, target: Path) -> None:
    """Move a file or folder within one file system in one step; the target's folder is flushed."""
    move(source, target)
    sync_folder(target.parent)


def make_folder(path: Path) -> None:
    """Make a folder and its parents; each new one survives a crash."""
    missing = [path, *path.parents]
    missing = missing[: next(i for i, folder in enumerate(missing) if folder.is_dir())]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a new file; what is in it survives a crash. Raises OSError."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def link_new(path: Path, data: bytes) -> None:
    """Write a file that appears whole, under a name that nobody has. Raises FileExistsError, OSError.

    Unlike a rename, a link fails where the name exists: what is there is never written over.
    """
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}.tmp")
    write_new(temporary, data)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable: a rename or a new file is one only when its folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_if_absent(new: Path, path: Path) -> None:
    """Give a file that is complete the name `path`; when this returns, both survive a crash. If there is a
    file of that name already, it stays: somebody else was faster, and theirs is as good. Raises OSError.
    """
    with new.open("rb") as file:
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(new, path)
    sync_folder(path.parent)


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor. Raises OSError.

    Opened without waiting: a FIFO in the file's place would let a reader hang for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> str:
    """Write a new file by a function that is given it open, and return its SHA-256. Raises OSError."""
    with path.open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class DigestingFile(io.RawIOBase):
    """A file being written that knows its size and SHA-256 without being read again.

    Has what pyarrow asks of a Python file that it writes to. `close` flushes it to the disk.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115  it outlives this method
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        """Write bytes, or anything that has a buffer of them."""
        view = memoryview(data)
        self._digest.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size

    @property
    def closed(self) -> bool:
        """True if `close` was called."""
        return self._file.closed

    def close(self) -> None:
        """Flush to the disk and close."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def hexdigest(self) -> str:
        """Return the SHA-256 of everything written."""
        return self._digest.hexdigest()

    def readable(self) -> bool:
        """Say that it can't be read."""
        return False

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def seekable(self) -> bool:
        """Say that it only goes forward."""
        return False
