"""Snapshots in workers: sent as a small reference, opened once in each worker process.

A task carries folder, revision and digest. The worker maps the files itself (one physical copy per machine),
checks them against the digest, and keeps the snapshot for later batches.
"""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark import SparkFiles, TaskContext
from pyspark.sql import SparkSession

from selectroute.durable.private_folder import temporary_folder
from selectroute.index.errors import SnapshotError
from selectroute.index.retention import floor
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import published
from selectroute.selector.arguments import check_argument
from selectroute.storage import Location


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """Reference to a snapshot: its folder, its revision, and the SHA-256 of its manifest."""

    folder: str
    revision: int
    digest: str


_SPARK_FILES = "spark-files:"
"""Prefix of the name of an archive that `distribute` sent, instead of a folder."""

_KEPT = 2
"""Open snapshots: the newest revision and the one before, which a batch may still use."""

_Ref = TypeVar("_Ref")
_Opened = TypeVar("_Opened")

_opened: dict[SnapshotRef, Snapshot] = {}
_is_frozen = False
_published: weakref.WeakKeyDictionary[Snapshot, SnapshotRef] = weakref.WeakKeyDictionary()


def open_once(ref: SnapshotRef) -> Snapshot:
    """Return the snapshot, opened at most once in this process while it is one of the last `_KEPT`.

    Raises:
        SnapshotError: as `open_snapshot`.
    """
    return keep_opened(_opened, ref, open_snapshot)


def keep_opened(kept: dict[_Ref, _Opened], ref: _Ref, open_ref: Callable[[_Ref], _Opened]) -> _Opened:
    """Return what a reference stands for: from ``kept``, or opened and kept there with the one before."""
    opened = kept.get(ref)
    if opened is not None:
        _freeze_loaded_objects()
        return opened
    opened = open_ref(ref)
    while len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[ref] = opened
    return opened


def open_snapshot(ref: SnapshotRef) -> Snapshot:
    """Open the snapshot of a reference; the caller keeps it.

    Raises:
        SnapshotError: the snapshot is gone or damaged, or does not have the digest of the reference.
    """
    folder = ref.folder
    if folder.startswith(_SPARK_FILES):  # a different folder in each process
        folder = SparkFiles.get(folder.removeprefix(_SPARK_FILES))
    snapshot = Snapshot.open(folder, ref.revision)
    if snapshot.digest != ref.digest:
        raise SnapshotError(
            f"revision {ref.revision} in {ref.folder} was replaced after it was pinned: its digest is "
            f"{snapshot.digest[:12]}…, expected {ref.digest[:12]}…; never replace a published revision"
        )
    return snapshot


def _freeze_loaded_objects() -> None:
    """Exclude all objects loaded by now from later garbage collections, in a worker.

    Spark's worker collects after each task. A walk through the objects of numba takes a tenth of a second,
    more than a task of few messages.
    """
    global _is_frozen
    if not _is_frozen and TaskContext.get() is not None:
        gc.freeze()
        _is_frozen = True


def refer(snapshot: Snapshot) -> SnapshotRef:
    """Return the reference to a snapshot. An unpublished one is published to a temporary folder first.

    That folder is on this machine and is removed when the process ends: a cluster needs a published snapshot.
    """
    ref = _published.get(snapshot)
    if ref is not None:
        return ref
    if snapshot.folder is not None and snapshot.revision is not None and snapshot.digest:
        return SnapshotRef(str(snapshot.folder.resolved()), snapshot.revision, snapshot.digest)
    state = published(snapshot, temporary_folder("snapshot"))
    assert state.revision is not None
    ref = _published[snapshot] = SnapshotRef(str(state.folder), state.revision, state.digest)
    return ref


def distribute(spark: SparkSession, snapshot: Snapshot) -> None:
    """Send a snapshot to all executors with Spark's files, for clusters without a shared folder.

    Then, with `route`, `deliveries` and `match_files` of this snapshot object in this session, each executor
    fetches an archive from the driver once, and maps its own copy. Spark keeps the copies until the session
    ends: for frequent revisions use a shared folder.
    """
    check_argument(spark, SparkSession, "spark", "the SparkSession")
    check_argument(snapshot, Snapshot, "snapshot", "a Snapshot: sr.Snapshot.open(folder)")
    folder = temporary_folder("snapshot")
    state = published(snapshot, folder)
    assert state.revision is not None
    # Spark unpacks an archive on each executor into a folder of the archive's name.
    name = f"snapshot-{state.revision}-{state.digest[:16]}"
    archive = shutil.make_archive(str(temporary_folder("snapshot") / name), "zip", folder)
    spark.sparkContext.addArchive(archive)
    _published[snapshot] = SnapshotRef(f"{_SPARK_FILES}{name}.zip", state.revision, state.digest)


def lease(snapshots: Location, query: str, revision: int) -> None:
    """Write a lease: this query needs this revision and later ones.

    Raises:
        SnapshotError: it can't be written, or the revision is just being removed.
    """
    path = snapshots / "leases" / f"{query}.json"
    try:
        current = path.read_json()
        if current is None or current.get("revision") != revision:
            path.parent.make_folder()
            path.put_json({"query": query, "revision": revision})
            if floor(snapshots) > revision:
                raise SnapshotError(f"revision {revision} in {snapshots} is being removed")
    except OSError as error:
        raise SnapshotError(
            f"the lease {path} can't be written ({error.strerror or error}): let the job write there, so "
            "that no revision is removed while a batch needs it"
        ) from error
