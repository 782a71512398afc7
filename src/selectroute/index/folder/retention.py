"""Retention in a snapshot folder: removal of old revisions, and of files that no revision names.

A revision is kept if it is one of the newest, if a lease shows that a query still needs it, or if it was the
newest recently: a reader without a lease may still pass it to its workers. A file is kept if a kept revision
names it, or if it is new: a publisher may be about to name it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from selectroute.durable import disk
from selectroute.durable.sealed_json import unsealed
from selectroute.index.errors import SnapshotError
from selectroute.index.folder.manifest import locked, manifest_path, read_manifest, revisions

GRACE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Collected:
    """Removed files and revisions."""

    revisions: tuple[int, ...]
    files: int
    bytes: int


def collect(folder: str | Path, *, keep: int = 2, grace_seconds: float = GRACE_SECONDS) -> Collected:
    """Remove unused revisions and files from a snapshot folder, and return a report.

    Args:
        folder: a snapshot folder. Publishers and readers may use it at the same time.
        keep: the number of newest revisions that are always kept, at least one.
        grace_seconds: how long a superseded revision is kept, and a file that no manifest names.

    Raises:
        SnapshotError: a kept manifest or a lease cannot be read; then nothing is removed. Or the folder
            cannot be written.
        ValueError: ``keep`` is less than one, or ``grace_seconds`` is negative.
    """
    if keep < 1 or not grace_seconds >= 0:
        raise ValueError("keep must be at least 1, and grace_seconds at least 0")
    folder = Path(folder)
    if not revisions(folder):
        return Collected((), 0, 0)
    try:
        # Exclusive: a concurrent publish or pin could reference files that are about to be removed.
        with locked(folder, exclusive=True):
            return _collect(folder, keep, time.time() - grace_seconds)
    except OSError as error:
        raise SnapshotError(f"{folder} cannot be cleaned up: {error.strerror or error}") from error


def _collect(folder: Path, keep: int, before: float) -> Collected:
    found = revisions(folder)
    oldest_lease = min(leased(folder), default=None)
    gone = []
    for revision, newer in pairwise(found[: 1 - keep or None]):
        if oldest_lease is not None and revision >= oldest_lease:
            break
        if manifest_path(folder, newer).stat().st_mtime > before:
            break  # it was the newest until recently
        gone.append(revision)
    named = {
        folder / file
        for revision in found[len(gone) :]
        for entry in read_manifest(folder, revision)["segments"]
        for file in (entry["file"], entry["ids"]["file"])
    }
    # Manifests first, durably: a crash leaves files without a revision, never a revision without files.
    for revision in gone:
        manifest_path(folder, revision).unlink()
    disk.sync_folder(folder)
    files, size = 0, 0
    for path in _files(folder):
        status = path.stat()
        if path not in named and status.st_mtime <= before:
            path.unlink()
            files, size = files + 1, size + status.st_size
    return Collected(tuple(gone), files, size)


def leased(folder: Path) -> Iterator[int]:
    """Yield the oldest revision of each lease. Raises `SnapshotError`."""
    for path in sorted((folder / "leases").glob("*.json")):
        try:
            revision = unsealed(path.read_bytes())["revision"]
        except FileNotFoundError:
            continue  # it has just been released
        except (OSError, ValueError, KeyError) as error:
            raise SnapshotError(
                f"the lease {path} cannot be read ({error}): remove it if its query has ended"
            ) from error
        if type(revision) is not int:
            raise SnapshotError(f"the lease {path} has no revision: remove it if its query has ended")
        yield revision


def _files(folder: Path) -> Iterator[Path]:
    for part in ("segments", "ids"):
        yield from sorted((folder / part).glob("*.arrow"))
    yield from sorted(folder.glob(".manifest-*.tmp"))
