"""Cache of files that are mapped, by their SHA-256: private copies that the processes of a machine share.

A file is copied by one process while the others wait, checked, and then mapped by all of them. Files of this
machine are copied, too: somebody who changes or cuts off a mapped file in place ends the process that reads
it. What was not used for longest is removed when the cache is larger than its limit. Mapped files that are
removed stay readable for the processes that have them open.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from selectroute.durable import disk
from selectroute.durable.lock import FileLock
from selectroute.durable.private_folder import NOT_WRITABLE, private_folders
from selectroute.storage.location import Location
from selectroute.storage.protocol import StorageError

LIMIT_BYTES: Final = 32 << 30
"""Default size of the cache, in bytes, but at most a quarter of its disk; the variable
``SELECTROUTE_CACHE_BYTES`` sets another one."""

_DOWNLOAD_SECONDS: Final = 3600.0
"""Time without a write after which a download was given up: its process has ended."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def cached(file: Location, sha256: str, folder: Path | None = None) -> Path:
    """Return the path of a private copy of a file with this SHA-256; copy the file if there is none.

    Args:
        file: the file.
        sha256: the digest of its content, as 64 hexadecimal digits.
        folder: the folder of the cache; one of the user's unless given.

    Raises:
        FileNotFoundError: there is no such file.
        StorageError: the storage can't be read, the file has another digest, or there is no room.
    """
    if not _SHA256.fullmatch(sha256):
        raise StorageError(f"{file} has no valid SHA-256: {sha256[:80]!r}")
    home = _home() if folder is None else folder
    copy = home / sha256[:2] / sha256
    if not _is_used(copy):
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(copy.with_name(f"{sha256}.lock")):
            if not _is_used(copy):
                _download(file, sha256, copy)
                _make_room(home, copy)
    return copy


def forget(sha256: str, folder: Path | None = None) -> None:
    """Remove the copy of a file, which was damaged."""
    copy = (_home() if folder is None else folder) / sha256[:2] / sha256
    copy.unlink(missing_ok=True)


def _download(file: Location, sha256: str, copy: Path) -> None:
    new = copy.with_name(f"{sha256}-{uuid.uuid4().hex}.tmp")
    try:
        file.storage.download(file.key, new)
        digest = disk.sha256(new)
        if digest != sha256:
            raise StorageError(f"{file} is damaged: its SHA-256 is {digest[:12]}…, not {sha256[:12]}…")
        os.replace(new, copy)
    finally:
        new.unlink(missing_ok=True)


def _is_used(copy: Path) -> bool:
    """Return whether there is a copy, and note its use."""
    try:
        os.utime(copy)
    except FileNotFoundError:
        return False
    return True


def _make_room(home: Path, keep: Path) -> None:
    """Remove the copies that were not used for longest until the cache is within its limit."""
    default = min(LIMIT_BYTES, shutil.disk_usage(home).total // 4)
    limit = int(os.environ.get("SELECTROUTE_CACHE_BYTES", default))
    copies = sorted(_copies(home))
    size = sum(copy[1] for copy in copies)
    for _, bytes_, path in copies:
        if size <= limit:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            size -= bytes_


def _copies(home: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield when each copy was used last, its size and its path; also of downloads that were given up."""
    begun = time.time() - _DOWNLOAD_SECONDS
    for path in home.glob("??/*"):
        if path.suffix == ".lock":
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # another process removed it
            continue
        if path.suffix == ".tmp" and status.st_mtime > begun:  # another process writes it
            continue
        yield status.st_mtime, status.st_size, path


def _home() -> Path:
    for folder in private_folders(NOT_WRITABLE):
        return folder / "files"
    raise StorageError("there is no folder of this user's own for a cache: set XDG_CACHE_HOME to one")
