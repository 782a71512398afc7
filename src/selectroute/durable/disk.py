"""Atomic writes of files, which survive a crash and a loss of power.

Everything that must survive a crash is written by these functions and no others, so that a test can fail each
of them in turn. Call them as attributes of this module, as they call each other.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from selectroute.selector.errors import SelectRouteError

_SEAL = "seal"


def sealed(content: Mapping[str, Any]) -> str:
    """Return the text of an object, with its seal first."""
    digest = hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
    return json.dumps({_SEAL: digest, **content}, indent=1) + "\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the object of a sealed text.

    Raises ValueError for text that is not a JSON object, or does not match its seal.
    """
    try:
        content = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    content.pop(_SEAL, None)
    if data != sealed(content).encode():
        raise ValueError("the seal does not match the content")
    return content


class DamagedFileError(SelectRouteError, ValueError):
    """Damaged file: its content has changed since it was written. The message names the file."""


def replace_bytes(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` atomically: readers see the old bytes or the new ones. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Add one line to a file and flush it. A crash may leave part of the line."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def move(source: Path, target: Path) -> None:
    """Move a file or directory atomically within one file system; call `sync_folder` after the last move."""
    os.rename(source, target)


def rename(source: Path, target: Path) -> None:
    """Move a file or directory atomically within one file system, and flush the target's directory."""
    move(source, target)
    sync_folder(target.parent)


PRIVATE = 0o700
"""Permissions of a directory for its user only."""


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a directory with these permissions, and its parents; each new one survives a crash."""
    missing = [path, *path.parents]
    missing = missing[: next(i for i, folder in enumerate(missing) if folder.is_dir())]
    path.mkdir(mode, parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a new file; its content survives a crash. Raises OSError."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def link_new(path: Path, data: bytes) -> None:
    """Write a new file that appears atomically. Raises FileExistsError, OSError.

    Unlike a rename, a link fails if the name exists: an existing file is never overwritten.
    """
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}.tmp")
    write_new(temporary, data)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def flush(path: Path) -> None:
    """Flush a file that another program wrote to the disk, and its name. Raises OSError."""
    sync(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a directory: only then does a rename or a new file in it survive a crash."""
    sync(folder)


def sync(path: Path) -> None:
    """Flush a file or a directory to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_if_absent(new: Path, path: Path) -> None:
    """Link a complete file to `path`; file and name then survive a crash. An existing file at `path` is kept:
    another process wrote an equivalent one first. Raises OSError.
    """
    with new.open("rb") as file:
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(new, path)
    sync_folder(path.parent)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file as hexadecimal digits. Raises OSError."""
    with opened_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def opened_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Raises OSError.

    Non-blocking: opening a FIFO would hang for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> str:
    """Create a file, pass it to `write`, and return its SHA-256. Raises OSError."""
    with path.open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return sha256(path)


class DigestingFile(io.RawIOBase):
    """File for writing that computes its size and SHA-256 on the way.

    Has the methods that pyarrow needs of a Python file. `close` flushes to the disk.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = open(path, "xb")  # noqa: SIM115  it outlives this method
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        """Write bytes, or any object with a buffer."""
        view = memoryview(data)
        self._digest.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        """Flush Python's buffer to the operating system."""
        self._file.flush()

    def tell(self) -> int:
        """Return the number of bytes written."""
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

    def writable(self) -> bool:
        """Return True: the file can be written."""
        return True
