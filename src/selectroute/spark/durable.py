"""Files that are there whole or not at all, also after the power goes: write, flush to the disk, rename,
flush the folder.

Everything that a batch must find again after a crash goes through these functions and no other, so that a
test can fail each of them in turn. JSON files are sealed: with their own SHA-256 they say themselves whether
they are what was written. A bit that turned in a pin or a commit would otherwise be another batch, or another
revision.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

# Under this name here too: it is one of the steps that a test fails in turn.
from selectroute.index.manifest import sync_folder as sync_folder
from selectroute.index.sealed import sealed, unsealed
from selectroute.selector.errors import SelectRouteError


class DamagedFileError(SelectRouteError, ValueError):
    """A file is not what was written; the message names it."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Put ``content`` at ``path`` in one step, sealed: a reader sees the old file or the new one, whole."""
    write_text(path, sealed(content))


def write_text(path: Path, text: str) -> None:
    """Put a text at ``path`` in one step, as `write_json` does."""
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
        """Whether `close` was called."""
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
