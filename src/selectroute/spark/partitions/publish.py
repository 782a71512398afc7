"""Publication of a registry in partitions: plan, assign subscriptions, then build one partition at a time."""

from __future__ import annotations

import os
import uuid
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.arrays.rows import distinct_values
from selectroute.clauses.access import Key, equalities
from selectroute.durable import disk
from selectroute.durable.private_folder import temporary_folder
from selectroute.index.compile.build import rebuilt
from selectroute.index.compile.cost_plan import CostPlan, Preference, preference_of
from selectroute.index.compile.keys import Attributes, KeyStatistics
from selectroute.index.errors import SnapshotError
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import published
from selectroute.index.specification import IndexedSubscription, prepare
from selectroute.selector.arguments import check_argument, check_path
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.sentences import counted
from selectroute.spark.partitions.keys import hash_keys, joined
from selectroute.spark.partitions.snapshot import (
    MAX_PARTITIONS,
    PartitionedSnapshot,
    partition_of,
    partitioned_revisions,
    write_manifest,
)

_SAMPLE = 10_000
"""Size of the sample to plan the access paths with; any plan is correct."""

_ADDRESS_NS = 10.0
"""Cost of hashing and looking up a message's key of a tuple, which here is paid for every tuple."""

_SLICE = 20_000
_BITS_A_KEY = 16
_MOST_BITS = 1 << 31

Ordinals = npt.NDArray[np.int64]
Row = dict[str, Any]


def publish_partitions(
    snapshot: Snapshot, folder: str | os.PathLike[str], partitions: int
) -> PartitionedSnapshot:
    """Write a snapshot's subscriptions as ``partitions`` snapshots and a rest, durably; return them opened.

    They have the snapshot's revision, or else the next one of the folder, and its ordinals. Parses every
    selector once to find its partitions and once for each of them; holds one partition's index in memory at a
    time, and 8 bytes for each subscription and partition of it.

    Args:
        snapshot: the registry; its ``subscriptions`` are read, which may be memory-mapped.
        folder: the folder; on a cluster one that driver and executors share. It may have other revisions.
        partitions: the number of partitions, 1 to `MAX_PARTITIONS`.

    Raises:
        SnapshotError: the number is out of range, the revision exists, or the folder can't be written.
    """
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise SnapshotError(f"the number of partitions must be 1 to {MAX_PARTITIONS:,}, not {partitions}")
    check_argument(snapshot, Snapshot, "snapshot", "a Snapshot: sr.Snapshot.open(folder)")
    check_path(folder, "folder", "the path of a folder for the partitions")
    check_argument(partitions, int, "partitions", "the number of partitions")
    base = Path(folder).resolve()
    revision = snapshot.revision
    if revision is None:
        revision = (partitioned_revisions(base) or [0])[-1] + 1
    try:
        own = base / f"{revision}-{uuid.uuid4().hex[:8]}"
        disk.make_folder(base, disk.PRIVATE)
        disk.make_folder(own)
        table = snapshot.subscriptions
        # The subscription of an ordinal may have been removed.
        living = np.arange(len(table)) if snapshot.dead is None else np.flatnonzero(~snapshot.dead)
        addresses = _Addresses(_plan(table, living))
        for rows in _slices(table, living):
            addresses.add(rows)
        keys = addresses.keys()
        members = [*addresses.members(keys, partitions), np.array(addresses.rest, np.int64)]
        names = [*map(str, range(partitions)), "rest"]
        parts = [
            _publish_part(table, ordinals, own / name, revision)
            for name, ordinals in zip(names, members, strict=True)
        ]
        files = {
            "keys": _written(own / "keys.arrow", pa.array(_bitmap(keys))),
            "ids": _written(own / "ids.arrow", table["id"]),
        }
        write_manifest(
            base,
            {
                "revision": revision,
                "subscriptions": len(snapshot),
                "tuples": [list(attributes) for attributes in addresses.tuples],
                "reads": list(snapshot.reads),
                "no_bytes": sorted(snapshot.no_bytes),
                "extended": 0 if snapshot.extended is None else int(snapshot.extended.sum()),
                "parts": parts,
                "files": files,
            },
        )
    except OSError as error:
        raise SnapshotError(
            f"the partitions can't be written to {base}: {error.strerror or error}"
        ) from error
    return PartitionedSnapshot.open(base, revision)


_published: weakref.WeakKeyDictionary[Snapshot, dict[int, PartitionedSnapshot]] = weakref.WeakKeyDictionary()


def partitioned(snapshot: Snapshot | PartitionedSnapshot, partitions: int) -> PartitionedSnapshot:
    """Return a snapshot in partitions, written once to a temporary folder on this machine.

    Raises:
        SnapshotError: the snapshot already has another number of partitions, or the number is out of range.
    """
    if isinstance(snapshot, PartitionedSnapshot):
        if snapshot.partitions != partitions:
            raise SnapshotError(
                f"the snapshot already has {counted(snapshot.partitions, 'partition')}: pass partitions="
                f"{snapshot.partitions} or None, not {partitions}"
            )
        return snapshot
    published = _published.setdefault(snapshot, {})
    if partitions not in published:
        published[partitions] = publish_partitions(snapshot, temporary_folder("snapshot"), partitions)
    return published[partitions]


def _slices(table: pa.Table, ordinals: Ordinals) -> Iterator[list[tuple[int, Row]]]:
    """Yield these rows with their ordinals, some thousands at a time."""
    columns = table.select(["topic", "selector", "dialect", "seltype"])
    for start in range(0, len(ordinals), _SLICE):
        part = ordinals[start : start + _SLICE]
        yield list(zip(part.tolist(), columns.take(pa.array(part)).to_pylist(), strict=True))


def _subscription(ordinal: int, row: Row) -> IndexedSubscription:
    """Return a subscription with its clauses, without limits: it was accepted before."""
    extended = row["seltype"] == EXTENDED
    return prepare(str(ordinal), row["selector"], row["topic"], row["dialect"], extended, UNLIMITED)


def _plan(table: pa.Table, living: Ordinals) -> CostPlan:
    statistics = KeyStatistics()
    preferences: Counter[Preference] = Counter()
    for rows in _slices(table, living[:: max(1, len(living) // _SAMPLE)]):
        for ordinal, row in rows:
            clauses = _subscription(ordinal, row).clauses
            for equal in map(equalities, clauses):
                if equal.satisfiable:
                    statistics.add(equal)
                    preferences[preference_of(equal, len(clauses))] += 1
    return CostPlan(statistics, preferences, skip_ns=_ADDRESS_NS)


@dataclass(slots=True)
class _Addresses:
    """Hashes of the subscriptions' keys, and the subscriptions without a key."""

    plan: CostPlan
    tuples: dict[Attributes, None] = field(default_factory=dict)
    rest: list[int] = field(default_factory=list)
    hashes: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    owners: list[Ordinals] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[int, Row]]) -> None:
        """Assign subscriptions: by all keys of all their clauses, or to the rest."""
        filed: dict[Attributes, list[tuple[int, tuple[Key, ...]]]] = {}
        for ordinal, row in rows:
            if row["seltype"] == EXTENDED:
                self.rest.append(ordinal)
                continue
            paths = self._paths(_subscription(ordinal, row))
            if any(not attributes for attributes, _ in paths):
                self.rest.append(ordinal)
                continue
            for attributes, combinations in paths:
                filed.setdefault(attributes, []).extend((ordinal, keys) for keys in combinations)
        for attributes, entries in filed.items():
            self.tuples[attributes] = None
            columns = zip(*(keys for _, keys in entries), strict=True)
            self.hashes.append(joined(attributes, [hash_keys(column) for column in columns]))
            self.owners.append(np.array([ordinal for ordinal, _ in entries], np.int64))

    def _paths(self, subscription: IndexedSubscription) -> list[tuple[Attributes, list[tuple[Key, ...]]]]:
        paths = []
        for clause in subscription.clauses:
            equal = equalities(clause)
            if not equal.satisfiable:
                continue
            attributes = self.plan.path(equal, len(subscription.clauses))
            paths.append((attributes, list(product(*(equal.keys[name] for name in attributes)))))
        return paths

    def keys(self) -> npt.NDArray[np.uint64]:
        """Return the hashes of all keys, in the order of `owners`."""
        return np.concatenate([np.zeros(0, np.uint64), *self.hashes])

    def members(self, keys: npt.NDArray[np.uint64], partitions: int) -> list[Ordinals]:
        """Return the subscriptions of each partition, ascending."""
        owners = np.concatenate([np.zeros(0, np.int64), *self.owners])
        places = partition_of(keys, partitions)
        return [distinct_values(owners[places == partition]) for partition in range(partitions)]


def _publish_part(table: pa.Table, ordinals: Ordinals, folder: Path, revision: int) -> dict[str, Any]:
    rows = table.take(pa.array(ordinals))
    rows = rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(ordinals).cast(pa.string()))
    part = published(rebuilt(rows, revision), folder)
    place = f"{folder.parent.name}/{folder.name}"
    sizes = {"rows": len(part), "bytes": part.nbytes}
    return {"revision": revision, "digest": part.digest, **sizes, "folder": place}


def _bitmap(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the bitmap of `in_use`: at least 16 bits for each distinct key, a power of two."""
    different = distinct_values(keys)
    bits = 64
    while bits < min(_MOST_BITS, _BITS_A_KEY * len(different)):
        bits *= 2
    bitmap = np.zeros(bits // 8, np.uint8)
    place = different & np.uint64(bits - 1)
    values = np.uint8(1) << (place & np.uint64(7)).astype(np.uint8)
    np.bitwise_or.at(bitmap, (place >> np.uint64(3)).astype(np.int64), values)
    return bitmap


def _written(path: Path, values: pa.Array | pa.ChunkedArray) -> dict[str, str]:
    """Write a file of one column."""
    table = pa.table({"values": values}).combine_chunks()

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    return {"file": f"{path.parent.name}/{path.name}", "sha256": disk.write_file(path, write)}
