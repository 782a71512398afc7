"""Private directories for files that are executed: compiled code, scripts."""

from __future__ import annotations

import os
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
