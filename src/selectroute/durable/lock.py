"""Locks between processes. The locks of a process that dies are released."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """Lock on a file, held from construction until `close`.

    Args:
        path: the file.
        shared: a shared lock instead of an exclusive one.
        wait: wait until the lock is free.
        create: permission bits for a file that does not exist; None does not create it.

    Raises:
        BlockingIOError: another process holds the lock, without `wait`.
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
            raise ValueError("the lock was released")
        return self._file

    def close(self) -> None:
        """Release the lock. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock, by taking a shared lock for an instant."""
    try:
        FileLock(path, shared=True, wait=False, create=None).close()
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
