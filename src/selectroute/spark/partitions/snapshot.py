"""Registry in partitions: snapshots by access key, for registries that are too large for one machine.

Every clause has an access path: at most two attributes that it compares for equality. The hash of those
attributes and constants (``keys``) determines the partition of its subscription; one with several clauses or
an IN list may be in several partitions. The same hash of a message's values determines the partitions that
can match the message: at most one for each combination of attributes in use. A bitmap has the keys in use, so
that most values of a message need no partition.

Subscriptions without a key (no equality, EXTENDED, no selector) would have to be in every partition. They are
in the *rest* instead, a snapshot of its own that is matched where messages are read: once for each message,
before any shuffle.

::

    folder/partitions-<revision>.json     manifest of the revision; appears atomically
    folder/<revision>-<x>/<p>/, …/rest/   snapshot folders: partition p, and the rest
    folder/<revision>-<x>/keys.arrow      the bitmap
    folder/<revision>-<x>/ids.arrow       ordinal → id of the whole registry

In a partition, a subscription's id is its ordinal in the whole registry.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.durable import disk
from selectroute.durable.disk import sealed
from selectroute.index.errors import RevisionExistsError, SnapshotError, SnapshotNotFoundError
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import read_table
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.selector.arguments import check_path
from selectroute.selector.sentences import counted
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_snapshot
from selectroute.spark.partitions.keys import FORMAT, MessageKeys
from selectroute.storage import Location
from selectroute.storage.location import Where

MAX_PARTITIONS = 4_096

OPEN_PARTITIONS = 16
"""Partitions that a worker keeps open for the exchange, beside the rest: Spark gives it any of them in the
next batch. Their files are mapped; what the system can't take back is four bytes for each subscription.
"""
_MANIFEST = re.compile(r"partitions-(0|[1-9][0-9]{0,18})\.json")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionsRef:
    """Reference to partitions: their folder, their revision, and the SHA-256 of their manifest."""

    folder: str
    revision: int
    digest: str


@dataclass(frozen=True, eq=False)
class PartitionedSnapshot:
    """Subscriptions of one revision in `partitions` snapshots and a rest, not loaded when opened.

    Attributes:
        ref: the reference for the workers.
        partitions: number of partitions, without the rest.
        tuples: the combinations of attributes whose values determine partitions.
        reads: the columns that selectors and topic filters read, sorted.
        no_bytes: the identifiers of `reads` that can't be columns of bytes.
        extended: number of EXTENDED subscriptions.
        rows, bytes: subscriptions, and bytes that matching reads, of each partition, then of the rest.
        subscriptions: number of distinct subscriptions.
    """

    ref: PartitionsRef
    partitions: int
    tuples: tuple[tuple[str, ...], ...]
    reads: tuple[str, ...]
    no_bytes: frozenset[str]
    extended: int
    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    subscriptions: int
    refs: tuple[SnapshotRef, ...]
    files: dict[str, dict[str, str]]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], revision: int | None = None) -> PartitionedSnapshot:
        """Open a revision that `publish_partitions` wrote, the newest unless given.

        Raises:
            SnapshotError: there is no such revision, or its manifest is damaged.
        """
        check_path(folder, "folder", "the path of a folder that publish_partitions wrote")
        path = Path(folder).resolve()
        if revision is None:
            revisions = partitioned_revisions(path)
            if not revisions:
                raise SnapshotNotFoundError(f"no partitions are published in {path}")
            revision = revisions[-1]
        return _opened(path, revision)

    def __len__(self) -> int:
        return self.subscriptions

    def __repr__(self) -> str:
        return (
            f"PartitionedSnapshot(revision={self.ref.revision}, {counted(len(self), 'subscription')} in "
            f"{counted(self.partitions, 'partition')} of at most {max(self.bytes):,} bytes)"
        )

    @cached_property
    def ids(self) -> pa.Array:
        """Ids by ordinal of the whole registry, strings."""
        return self._values("ids")

    @cached_property
    def _keys(self) -> npt.NDArray[np.uint8]:
        return self._values("keys").to_numpy()  # type: ignore[no-any-return]

    def _values(self, name: str) -> pa.Array:
        file = self.files[name]
        table = read_table(Location.of(self.ref.folder), file["file"], file["sha256"])
        return table["values"].combine_chunks()

    def addresses(self, messages: AttributeLanes) -> tuple[Ints, Ints]:
        """Return the partitions that can match each message: ``rows`` and ``partitions``, int64[n], by
        partitions, then by rows.

        A message that no partition can match is not among the rows. O(rows x tuples).
        """
        keys = MessageKeys(messages)
        named = np.zeros((self.partitions, keys.rows), np.bool_)
        for attributes in self.tuples:
            hashes, has = keys.of(attributes)
            rows = np.flatnonzero(has & in_use(self._keys, hashes))
            named[partition_of(hashes[rows], self.partitions), rows] = True
        partitions, rows = map(np.ascontiguousarray, np.nonzero(named))
        return rows, partitions

    def rest(self) -> Snapshot | None:
        """Return the snapshot of subscriptions without a key; None if there are none."""
        return _open_part(self.refs[-1]) if self.rows[-1] else None

    def part(self, partition: int) -> Snapshot:
        """Return the snapshot of a partition."""
        return _open_part(self.refs[partition])


def partition_of(hashes: npt.NDArray[np.uint64], partitions: int) -> Ints:
    """Return the partition of each key, from the upper half of its hash; the bitmap uses the lower half."""
    upper = hashes >> np.uint64(32)
    return (upper * np.uint64(partitions) >> np.uint64(32)).astype(np.int64)


def in_use(bitmap: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return whether each key may be in use; for at most 1 of 16 unused keys the answer is wrong."""
    place = hashes & np.uint64(8 * len(bitmap) - 1)
    bits = bitmap[(place >> np.uint64(3)).astype(np.int64)] >> (place & np.uint64(7)).astype(np.uint8)
    return (bits & 1).astype(np.bool_)


def whole_ordinals(part: Snapshot) -> npt.NDArray[np.int32]:
    """Return the ordinal in the whole registry of each ordinal in a partition, int32[rows], as a copy."""
    return part.subscriptions["id"].cast(pa.int32()).to_numpy().copy()  # type: ignore[no-any-return]


@lru_cache(maxsize=OPEN_PARTITIONS + 1)
def ordinals_of(ref: SnapshotRef) -> npt.NDArray[np.int32]:
    """Return the `whole_ordinals` of a partition that is open for the exchange."""
    return whole_ordinals(_open_part(ref))


_open_part = lru_cache(maxsize=OPEN_PARTITIONS + 1)(open_snapshot)


@lru_cache(maxsize=2)
def open_partitions(ref: PartitionsRef) -> PartitionedSnapshot:
    """Open the partitions in a worker; the manifest is read once in each process.

    Raises:
        SnapshotError: the partitions are gone or damaged, or do not have the digest of the reference.
    """
    opened = _opened(Path(ref.folder), ref.revision)
    if opened.ref != ref:
        raise SnapshotError(
            f"the partitions of revision {ref.revision} in {ref.folder} were replaced after the driver had "
            "read them; never replace a published revision"
        )
    return opened


def partitioned_revisions(folder: Where) -> list[int]:
    """Return the revisions published in partitions in a folder, ascending."""
    names = Location.of(folder).names()
    return sorted(int(manifest[1]) for name in names if (manifest := _MANIFEST.fullmatch(name)))


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest of a revision of partitions, atomically. Raises `RevisionExistsError`."""
    revision = content["revision"]
    whole = {**content, "format": FORMAT}
    text = sealed({**whole, "sha256": _digest(whole)})
    try:
        disk.link_new(folder / f"partitions-{revision}.json", text.encode())
    except FileExistsError:
        raise RevisionExistsError(
            f"revision {revision} is already published in partitions in {folder}; publish this one under a "
            "higher revision"
        ) from None


def _opened(folder: Path, revision: int) -> PartitionedSnapshot:
    path = folder / f"partitions-{revision}.json"
    try:
        manifest = Location.of(path).read_json()
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{path} can't be read: {error}") from error
    if manifest is None:
        raise SnapshotNotFoundError(f"revision {revision} is not published in partitions in {folder}")
    digest = manifest.pop("sha256", None)
    if digest != _digest(manifest):
        raise SnapshotError(f"{path} is damaged; publish the partitions again, under a higher revision")
    if manifest["format"] != FORMAT:
        raise SnapshotError(
            f"{path} has format {manifest['format']}, this release reads format {FORMAT}: publish it again"
        )
    parts = manifest["parts"]
    return PartitionedSnapshot(
        ref=PartitionsRef(str(folder), revision, digest),
        partitions=len(parts) - 1,
        tuples=tuple(map(tuple, manifest["tuples"])),
        reads=tuple(manifest["reads"]),
        no_bytes=frozenset(manifest["no_bytes"]),
        extended=manifest["extended"],
        rows=tuple(part["rows"] for part in parts),
        bytes=tuple(part["bytes"] for part in parts),
        subscriptions=manifest["subscriptions"],
        refs=tuple(SnapshotRef(str(folder / p["folder"]), p["revision"], p["digest"]) for p in parts),
        files=manifest["files"],
    )


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
