"""Where a secret can be found after a job in remote storage."""

from __future__ import annotations

import tempfile
from pathlib import Path

from selectroute.storage import Location


def places_of(secret: bytes, root: Location) -> list[str]:
    """Where a secret is: in files of the job, in copies of its checkpoint, in arguments of processes."""
    files = [*root.entries(deep=True)]
    assert len(files) > 10
    found = [one.key for one in files if secret in Location(root.storage, one.key).read()]
    for copy in Path(tempfile.gettempdir()).glob("selectroute-checkpoint-*/**/*"):
        if copy.is_file() and secret in copy.read_bytes():
            found.append(str(copy))
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if secret in process.read_bytes():
                found.append(str(process))
        except OSError:  # it has ended
            continue
    return found
