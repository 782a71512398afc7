"""All partitions of a registry mapped in one process, which matches messages without an exchange.

Files are mapped, so the processes of a machine share them in memory. A message is matched with the partitions
that its values name, as in ``steps``, and with the rest; ``merge`` joins what they find.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from selectroute.arrays import tables as t
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.batch import Batch
from selectroute.match.encoding.lanes import AttributeLanes
from selectroute.match.extended import judge_extended
from selectroute.match.match import match_lanes
from selectroute.spark.columns.snapshot_ref import keep_opened, open_snapshot
from selectroute.spark.partitions.merge import Lists, merge
from selectroute.spark.partitions.snapshot import (
    PartitionedSnapshot,
    PartitionsRef,
    open_partitions,
    whole_ordinals,
)

_NEARLY_ALL = 0.75
"""Share of a batch from which all of it is matched with a partition: the choice of rows takes up to a quarter
of the time of matching them (measured on workload M, 58 columns).
"""


class MappedPartitions:
    """Partitions of a snapshot for matching in this process, mapped at the first match.

    All stay mapped as long as the object. Beside the mapped files it takes four bytes for each subscription
    and partition of it.
    """

    def __init__(self, snapshot: PartitionedSnapshot) -> None:
        self._snapshot = snapshot

    @property
    def ids(self) -> pa.Array:
        """Ids by ordinal of the whole registry, strings."""
        return self._snapshot.ids

    def match(self, messages: pa.RecordBatch) -> tuple[t.Array, t.Array]:
        """Return the subscriptions of each message: offsets int64[rows + 1], and ordinals of the whole
        registry, int32[total], distinct and in any order.

        Raises:
            SnapshotError: a partition is gone or damaged.
            ColumnTypeError: as `Snapshot.match`.
        """
        batch = Batch(messages)
        lanes, everyone = AttributeLanes(batch), np.arange(batch.rows)
        addressed, partitions = self._snapshot.addresses(lanes)
        firsts = np.searchsorted(partitions, np.arange(self._snapshot.partitions + 1))
        found: list[Lists] = []
        for partition, (part, whole) in self._parts.items():
            if partition == self._snapshot.partitions:
                offsets, ordinals, _ = match_lanes(part, lanes)
                offsets, ordinals, _ = judge_extended(part, batch, offsets, ordinals)
                found.append(Lists(everyone, offsets, ordinals, whole))
                continue
            numbers = addressed[firsts[partition] : firsts[partition + 1]]
            if len(numbers) >= _NEARLY_ALL * batch.rows:
                numbers = everyone
            if len(numbers):
                some = lanes if numbers is everyone else lanes.some(numbers)
                found.append(Lists(numbers, *match_lanes(part, some)[:2], whole))
        return merge(batch.rows, found, self._marked)

    @cached_property
    def _marked(self) -> bool:
        return any(bool(np.any(whole < 0)) for _, whole in self._parts.values())

    @cached_property
    def _parts(self) -> dict[int, tuple[Snapshot, t.Array]]:
        """Partitions with subscriptions by their numbers, and then the rest; each with the ordinals in the
        whole registry, marked as in ``merge``.
        """
        opened = {
            number: open_snapshot(ref)
            for number, (ref, rows) in enumerate(zip(self._snapshot.refs, self._snapshot.rows, strict=True))
            if rows
        }
        ordinals = {number: whole_ordinals(part) for number, part in opened.items()}
        _mark(list(ordinals.values()))
        return {number: (part, ordinals[number]) for number, part in opened.items()}


def _mark(parts: list[t.Array]) -> None:
    """Mark the ordinals that are in several parts."""
    seen = np.zeros(max((int(part.max()) for part in parts), default=-1) + 1, np.bool_)
    several = np.zeros_like(seen)
    for part in parts:
        several[part[seen[part]]] = True
        seen[part] = True
    for part in parts:
        np.invert(part, out=part, where=several[part])


_mapped: dict[PartitionsRef, MappedPartitions] = {}


def map_once(ref: PartitionsRef) -> MappedPartitions:
    """Return the partitions, mapped at most once in this process while they are the newest or those before,
    which a batch may still use.

    Raises:
        SnapshotError: as `open_partitions`.
    """
    return keep_opened(_mapped, ref, lambda ref: MappedPartitions(open_partitions(ref)))
