"""A new file that is there as a whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from selectroute.index.manifest import sync_folder


def name_durably(new: Path, path: Path) -> None:
    """Give a file that is complete the name `path`; when this returns, both survive a crash. If there is a
    file of that name already, it stays: somebody else was faster, and theirs is as good. Raises OSError.
    """
    with new.open("rb") as file:
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(new, path)
    sync_folder(path.parent)
