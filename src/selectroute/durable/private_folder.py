"""Folders whose files are executed: compiled code, scripts."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

CLOSED = 0o077
"""Nobody else may read, write or enter."""

NOT_WRITABLE = 0o022
"""Nobody else may write."""


def private_folders(forbidden: int) -> Iterator[Path]:
    """Yield folders of this user, a cache that outlives the process first, then a temporary one.

    A folder that another user made, or that has a `forbidden` permission bit, is passed over: its files are
    executed.
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
