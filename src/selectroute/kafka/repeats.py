"""Exact deduplication of at-least-once deliveries, with the memory of one batch.

Spark's Kafka sink has no transactions: a batch that is interrupted while it is sent is sent again, whole, and
in any order. Repeats are recognized by the order of batches. A job sends a batch only after every delivery of
the previous batch has been acknowledged, so in the log of each partition

    the first copy of every delivery of batch n   lies before   the first copy of any delivery of batch n + 1

whatever copies lie between them and after them. A consumer that reads a partition in order and has seen batch
n + 1 can therefore forget batch n: any later delivery of batch n is a repeat. Each delivery of the newest
batch seen is remembered by its number, in one bit. This is exact: only the first copy is accepted.

Requirements: the deliveries of a job in one partition are read in order, from the state that was stored with
the offset (store `Deduplicator.state` and the offset in the transaction that also stores the results of the
records); and a repeat goes to the same partition as the first copy, which the sink ensures for as long as the
topic's number of partitions does not change. Each job is tracked separately, and so are its backfills.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from selectroute.kafka.headers import BATCH, DeliveryError, Place

_FORMAT: Final = 1
_BITS: Final = 10
"""Base-2 logarithm of a block's size: 1,024 numbers, 160 bytes when full and hardly less for one number."""

_FEW: Final = 48

MAX_JOBS: Final = 1_000
"""Default limit of jobs, active or not, whose deliveries one partition may hold."""

AnyRecord = TypeVar("AnyRecord")


class Origin(NamedTuple):
    """Partition that a record was read from, and its header `BATCH`."""

    topic: str
    partition: int
    place: bytes | None


class Numbers:
    """Sparse bitmap of numbers from 0, in blocks; empty blocks are not stored."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: dict[int, int] | None = None) -> None:
        self.blocks = {} if blocks is None else blocks

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new. O(1)."""
        block, bit = number >> _BITS, 1 << (number & ((1 << _BITS) - 1))
        known = self.blocks.get(block, 0)
        self.blocks[block] = known | bit
        return not known & bit

    def to_json(self) -> dict[str, Any]:
        """Return the blocks for ``json.dumps``: few numbers as a list, more as hexadecimal digits of bits.

        The inverse of `from_json`.
        """
        return {str(block): _listed(bits) or f"{bits:x}" for block, bits in self.blocks.items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Numbers:
        """Read what `to_json` wrote. Raises ValueError or TypeError for anything else."""
        return cls({int(block): _bits(bits) for block, bits in data.items()})


class _Lane:
    """Deliveries seen of the newest batch of a job, or of its newest backfill."""

    __slots__ = ("batch", "tasks")

    def __init__(self, batch: int, tasks: dict[int, Numbers] | None = None) -> None:
        self.batch = batch
        self.tasks = {} if tasks is None else tasks

    def first(self, place: Place) -> bool:
        # A job's batches count up, its backfills down.
        ahead = abs(place.batch) - abs(self.batch)
        if ahead < 0:
            return False
        if ahead > 0:
            self.batch, self.tasks = place.batch, {}
        return self.tasks.setdefault(place.task, Numbers()).add(place.number)


_Lanes = dict[tuple[str, bool], _Lane]


class Deduplicator:
    """Set of the deliveries seen, for any number of partitions. Not thread-safe.

    Memory: for each partition and job the newest batch's deliveries, at most some 330 bytes each, and down to
    a quarter of a byte for each delivery of a task whose numbers lie close together.

    >>> seen = Deduplicator()
    >>> seen.is_first("cars", 0, b"job/7/0/0"), seen.is_first("cars", 0, b"job/7/0/0")
    (True, False)
    >>> seen.is_first("cars", 0, b"job/8/0/0"), seen.is_first("cars", 0, b"job/7/0/1")
    (True, False)
    """

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._partitions: dict[tuple[str, int], _Lanes] = {}
        self._max_jobs = max_jobs

    def is_first(self, topic: str, partition: int, place: bytes) -> bool:
        """Return whether this delivery is new in its partition, and remember it. O(1).

        Args:
            topic: the topic that was read.
            partition: its partition, whose records must be passed in order.
            place: the delivery's header `BATCH`.

        Raises:
            DeliveryError: the header is not valid, or too many jobs have written to the partition.
        """
        found = Place.of(place)
        lanes = self._partitions.setdefault((topic, partition), {})
        lane = lanes.get((found.job, found.batch < 0))
        if lane is None:
            if len(lanes) >= self._max_jobs:
                raise DeliveryError(
                    f"partition {partition} of {topic} already has deliveries of {self._max_jobs:,} jobs, "
                    f"and now of {found.job}: call forget_job for jobs that have ended"
                )
            lane = lanes[found.job, found.batch < 0] = _Lane(found.batch)
        return lane.first(found)

    def state(self, topic: str, partition: int) -> str:
        """Return the state of a partition as JSON, to be stored with the next offset."""
        lanes = self._partitions.get((topic, partition), {})
        jobs = [
            {
                "job": job,
                "batch": lane.batch,
                "tasks": {task: numbers.to_json() for task, numbers in lane.tasks.items()},
            }
            for (job, _), lane in lanes.items()
        ]
        return json.dumps({"format": _FORMAT, "jobs": jobs}, separators=(",", ":"))

    def restore(self, topic: str, partition: int, state: str | None) -> None:
        """Restore the stored state of a partition when it is assigned. None: no state was stored.

        Raises:
            DeliveryError: the state is not of this format.
        """
        try:
            self._partitions[topic, partition] = {} if state is None else _lanes(json.loads(state))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DeliveryError(
                f"the state stored for partition {partition} of {topic} is not a valid state of a "
                f"Deduplicator (format {_FORMAT})"
            ) from error

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition when it is revoked: its next consumer has the state then."""
        self._partitions.pop((topic, partition), None)

    def forget_job(self, job: str) -> None:
        """Forget a job that has ended, in all partitions."""
        for lanes in self._partitions.values():
            for backfill in (False, True):
                lanes.pop((job, backfill), None)


def origin(record: Any) -> Origin:
    """Return the origin of a record of confluent-kafka, or of any other with `topic`, `partition` and
    `headers` (pairs of a name and bytes; or None).
    """
    topic, partition, headers = (
        part() if callable(part) else part for part in (record.topic, record.partition, record.headers)
    )
    place = None
    for name, value in headers or ():
        if name == BATCH:
            place = value
    return Origin(topic, partition, place)


def deduplicate(
    records: Iterable[AnyRecord],
    seen: Deduplicator | None = None,
    origin_of: Callable[[AnyRecord], Origin] = origin,
) -> Iterator[AnyRecord]:
    """Yield each record that is not a repeat, in the order given.

    A record without the header `BATCH` was not written by selectroute, and is yielded. When a record is
    yielded, ``seen`` includes it and all earlier ones: the state stored then, or after the record was
    processed, belongs to the next offset. Memory is that of `Deduplicator`.

    Args:
        records: in each partition in the order of their offsets; from a consumer's ``poll``, say.
        seen: the deliveries already seen; empty unless given.
        origin_of: returns the `Origin` of records of a client that `origin` does not support.

    Raises:
        DeliveryError: a header `BATCH` is damaged.
    """
    seen = Deduplicator() if seen is None else seen
    for record in records:
        topic, partition, place = origin_of(record)
        if place is None or seen.is_first(topic, partition, place):
            yield record


def _bits(data: Any) -> int:
    if isinstance(data, list):
        data = f"{sum(1 << bit for bit in set(data) if 0 <= bit < 1 << _BITS):x}"
    if len(data) > (1 << _BITS) // 4:
        raise ValueError(data[:80])
    return int(data, 16)


def _listed(bits: int) -> list[int] | None:
    """Return the positions of the bits; None if their hexadecimal digits are shorter."""
    if bits.bit_count() > _FEW:
        return None
    found: list[int] = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


def _lanes(data: Any) -> _Lanes:
    if data["format"] != _FORMAT:
        raise ValueError(data["format"])
    lanes: _Lanes = {}
    for one in data["jobs"]:
        job, batch = str(one["job"]), int(one["batch"])
        tasks = {int(task): Numbers.from_json(blocks) for task, blocks in one["tasks"].items()}
        lanes[job, batch < 0] = _Lane(batch, tasks)
    return lanes
