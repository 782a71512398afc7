"""Private directories: for files that are executed, such as compiled code, and for those of one process."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

CLOSED = 0o077
"""Permission bits of other users: read, write or enter."""

NOT_WRITABLE = 0o022
"""Permission bits of other users: write."""


def private_folders(forbidden: int) -> Iterator[Path]:
    """Yield directories of this user: caches that outlive the process first, then a temporary one.

    A directory of another user, or with a `forbidden` permission bit, is skipped: its files are executed.
    """
    for root in (os.environ.get("XDG_CACHE_HOME"), os.path.expanduser("~/.cache"), tempfile.gettempdir()):
        if not root:
            continue
        folder = Path(root) / f"selectroute-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & forbidden:
            yield folder


def temporary_folder(noun: str) -> Path:
    """Return a new directory of this user for things of this noun; it is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix=f"selectroute-{noun}-")  # 0700
    atexit.register(_remove, folder, os.getpid())
    return Path(folder)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not a fork of it, which ends sooner
        shutil.rmtree(folder, ignore_errors=True)
