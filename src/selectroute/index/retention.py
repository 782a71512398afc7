"""Retention in a snapshot folder: removal of old revisions, and of files that no revision names.

A revision is kept if it is one of the newest, if a lease shows that a query still needs it, or if it was the
newest recently: a reader without a lease may still pass it to its workers. A file is kept if a kept revision
names it, or if it is new: a publisher may be about to name it.

The oldest revision that is kept is written to ``_floor.json`` before the leases are read, and who
takes a lease reads it after writing: of a lease and a removal at the same time, one sees the other at least.
On a file system, a lock keeps publishers away meanwhile, too.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from selectroute.durable.disk import DamagedFileError
from selectroute.index.errors import SnapshotError
from selectroute.index.snapshot_files import locked, manifest_of, read_manifest, revisions
from selectroute.storage import Entry, Location
from selectroute.storage.location import Where

GRACE_SECONDS = 3600.0

REMOTE_GRACE_SECONDS = 300.0
"""Shortest grace in remote storage, for publishers that are slow, and clocks that differ."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Removed files and revisions."""

    revisions: tuple[int, ...]
    files: int
    bytes: int


def collect(folder: Where, *, keep: int = 2, grace_seconds: float = GRACE_SECONDS) -> Collected:
    """Remove unused revisions and files from a snapshot folder, and return a report.

    Args:
        folder: a snapshot folder. Publishers and readers may use it at the same time.
        keep: the number of newest revisions that are always kept, at least one.
        grace_seconds: how long a superseded revision is kept, and a file that no manifest names; in remote
            storage at least `REMOTE_GRACE_SECONDS`.

    Raises:
        SnapshotError: a kept manifest or a lease cannot be read; then nothing is removed. Or the folder
            cannot be written.
        ValueError: ``keep`` is less than one, or ``grace_seconds`` is negative.
    """
    if keep < 1 or not grace_seconds >= 0:
        raise ValueError("keep must be at least 1, and grace_seconds at least 0")
    where = Location.of(folder)
    if not revisions(where):
        return Collected((), 0, 0)
    try:
        # Exclusive: a concurrent publish or pin could reference files that are about to be removed.
        with locked(where, exclusive=True) as is_locked:
            if not is_locked:
                grace_seconds = max(grace_seconds, REMOTE_GRACE_SECONDS)
            return _collect(where, keep, time.time() - grace_seconds)
    except OSError as error:
        raise SnapshotError(f"{where} cannot be cleaned up: {error.strerror or error}") from error


def _collect(folder: Location, keep: int, before: float) -> Collected:
    published = revisions(folder)
    changed = {entry.key: entry.modified for entry in folder.entries()}
    gone = _unused(folder, published, changed, keep, before)
    if gone:
        _floor(folder).put_json({"revision": published[len(gone)]})
        gone = _unused(folder, published, changed, keep, before)  # with the leases that were taken meanwhile
    named: set[str] = set()
    for revision in published[len(gone) :]:
        named.update(_named(folder, revision, changed.get(manifest_of(folder, revision).key)))
    # Manifests first, durably: a crash leaves files without a revision, never a revision without files.
    for revision in gone:
        manifest_of(folder, revision).delete()
    folder.sync()
    files, size = 0, 0
    for entry in _files(folder):
        if entry.key not in named and entry.modified <= before:
            folder.storage.delete(entry.key)
            files, size = files + 1, size + entry.size
    return Collected(tuple(gone), files, size)


@lru_cache(maxsize=65_536)  # after an hour of changes there are as many, and a minute later most are the same
def _named(folder: Location, revision: int, modified: float | None) -> tuple[str, ...]:
    """Return the keys of the files that a manifest names; ``modified`` tells it from that of an earlier
    folder of this name. Raises `SnapshotError`.
    """
    return tuple(
        sys.intern((folder / file).key)
        for entry in read_manifest(folder, revision)["segments"]
        for file in (entry["file"], entry["ids"]["file"])
    )


def _unused(
    folder: Location, published: list[int], changed: Mapping[str, float], keep: int, before: float
) -> list[int]:
    """Return the oldest revisions that are not needed any more; ``changed`` is when each file was."""
    oldest_lease = min(leased(folder), default=None)
    gone = []
    for revision, newer in pairwise(published[: 1 - keep or None]):
        if oldest_lease is not None and revision >= oldest_lease:
            break
        if changed.get(manifest_of(folder, newer).key, math.inf) > before:
            break  # it was the newest until recently
        gone.append(revision)
    return gone


def floor(folder: Location) -> int:
    """Return the oldest revision that is not being removed; 0 if nothing was."""
    return int((_floor(folder).read_json() or {"revision": 0})["revision"])


def _floor(folder: Location) -> Location:
    return folder / "_floor.json"


def leased(folder: Location) -> Iterator[int]:
    """Yield the oldest revision of each lease. Raises `SnapshotError`."""
    for path in (folder / "leases").files():
        if not path.name.endswith(".json") or path.name.startswith(("_", ".")):
            continue
        try:
            lease = path.read_json()
            if lease is None:
                continue  # it has just been released
            revision = lease["revision"]
        except (OSError, DamagedFileError, KeyError) as error:
            raise SnapshotError(
                f"the lease {path} cannot be read ({error}): remove it if its query has ended"
            ) from error
        if type(revision) is not int:
            raise SnapshotError(f"the lease {path} has no revision: remove it if its query has ended")
        yield revision


def _files(folder: Location) -> Iterator[Entry]:
    for part in ("segments", "ids"):
        yield from (entry for entry in (folder / part).entries() if entry.key.endswith(".arrow"))
    for entry in folder.entries():
        name = entry.key.rpartition("/")[2]
        if name.startswith(".manifest-") and name.endswith(".tmp"):
            yield entry
