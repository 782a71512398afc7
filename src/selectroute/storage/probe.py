"""Check of a folder before anything depends on it."""

from __future__ import annotations

import uuid

from selectroute.storage.errors import StorageError
from selectroute.storage.location import Location


def check_writable(folder: Location) -> None:
    """Check that files can be listed, written and deleted in a folder, and that a file is not written twice.

    Some stores that speak S3 ignore the condition of a write. Two processes would then overwrite each other.

    Raises:
        StorageError: one sentence with the cause.
    """
    next(iter(folder.entries()), None)
    file = folder / f".probe-{uuid.uuid4().hex}"
    file.put_new(b"1")
    try:
        file.put_new(b"2")
    except FileExistsError:
        return
    finally:
        file.delete()
    raise StorageError(
        f"{folder} can't be used: its storage overwrites a file that was to be written only if it did not "
        "exist (If-None-Match)"
    )
