"""Locks between processes. A process that dies gives its locks back."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FileLock:
    """A lock on a file, held from when this is made until `close`.

    Args:
        path: the file.
        shared: others may hold it too if they share it.
        wait: wait until it can be had.
        create: make the file if there is none, with these permission bits.

    Raises:
        BlockingIOError: another process holds it, and this one does not wait.
        OSError: the file cannot be opened or locked.
    """

    def __init__(
        self, path: Path, *, shared: bool = False, wait: bool = True, create: int | None = 0o666
    ) -> None:
        if shared and create is None:
            flags = os.O_RDONLY
        else:
            flags = os.O_RDWR | (0 if create is None else os.O_CREAT)
        self._file: int | None = os.open(path, flags | os.O_CLOEXEC, create or 0)
        operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._file, operation if wait else operation | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor of the open file."""
        if self._file is None:
            raise ValueError("the lock was given back")
        return self._file

    def close(self) -> None:
        """Give the lock back. Does nothing the second time."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock; in whose way this is for an instant only."""
    try:
        FileLock(path, shared=True, wait=False, create=None).close()
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
