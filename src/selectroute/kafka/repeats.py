"""Drop the repeats of at-least-once deliveries, with the memory of one batch.

Spark's Kafka sink has no transactions: a batch that is interrupted while it is sent is sent again, whole, and
in any order. What makes a repeat known all the same is the order of batches. A job sends a batch only after
every delivery of the batch before has been acknowledged, so in the log of each partition

    the first copy of every delivery of batch n   lies before   the first copy of any delivery of batch n + 1

whatever copies lie between them and after them. So who reads a partition in order, and has met batch n + 1,
needs nothing of batch n any more: whatever comes of it is a repeat. Of the newest batch met each delivery is
remembered by its number, one bit. That is exact: each delivery is taken at its first copy, and at no other.

What it takes: deliveries of a job in one partition are read in order, from the state that belongs to the
offset (`Deduplicator.state` is to be stored with the offset, in one transaction with what was done with the
records); and a delivery goes to the same partition each time it is sent, which the sink sees to as long as
the topic's number of partitions stays. Each job, and its backfills, are followed on their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from selectroute.kafka.headers import BATCH, DeliveryError, Place

_FORMAT: Final = 1
_BITS: Final = 10
"""A block of 1,024 numbers: 160 bytes when it is full, and hardly less for one number."""

_FEW: Final = 48

MAX_JOBS: Final = 1_000
"""Jobs, with those that are no more, whose deliveries one partition may hold."""

AnyRecord = TypeVar("AnyRecord")


class Origin(NamedTuple):
    """Part of a record that is needed: the partition that it was read from, and its header `BATCH`."""

    topic: str
    partition: int
    place: bytes | None


class Numbers:
    """A set of numbers from 0 on: a bit a number, in blocks, of which there are those that hold any."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: dict[int, int] | None = None) -> None:
        self.blocks = {} if blocks is None else blocks

    def add(self, number: int) -> bool:
        """Put a number in; return whether it is new. O(1)."""
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
    """Deliveries met of the newest batch of a job, or of its newest backfill."""

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
    """Memory of the deliveries that came before, for any number of partitions. Not for several threads at
    once.

    Memory: for each partition and job the newest batch's deliveries in it, at most some 330 bytes each and,
    where they lie close, down to a quarter of a byte a delivery of the task.

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
        """Return whether this delivery has not come before in its partition, and remember it. O(1).

        Args:
            topic: the topic that was read.
            partition: its partition, whose records must be handed in in order.
            place: the delivery's header `BATCH`.

        Raises:
            DeliveryError: it is no place, or more jobs have written to the partition than are followed.
        """
        found = Place.of(place)
        lanes = self._partitions.setdefault((topic, partition), {})
        lane = lanes.get((found.job, found.batch < 0))
        if lane is None:
            if len(lanes) >= self._max_jobs:
                raise DeliveryError(
                    f"deliveries of {self._max_jobs:,} jobs are in partition {partition} of {topic}, and now "
                    f"of {found.job}: forget those that are no more"
                )
            lane = lanes[found.job, found.batch < 0] = _Lane(found.batch)
        return lane.first(found)

    def state(self, topic: str, partition: int) -> str:
        """Return what is known of a partition, as JSON: to be stored with the offset that comes next."""
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
        """Begin where a state was stored: when a partition is assigned. None: where nothing was.

        Raises:
            DeliveryError: it is no state of this format.
        """
        try:
            self._partitions[topic, partition] = {} if state is None else _lanes(json.loads(state))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DeliveryError(
                f"what was stored for partition {partition} of {topic} is no state of format {_FORMAT} of a "
                "Deduplicator"
            ) from error

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition: when it is taken away, and its state is another's."""
        self._partitions.pop((topic, partition), None)

    def forget_job(self, job: str) -> None:
        """Forget a job that sends no more, everywhere."""
        for lanes in self._partitions.values():
            for backfill in (False, True):
                lanes.pop((job, backfill), None)


def origin(record: Any) -> Origin:
    """Return what is needed of a record of confluent-kafka, or of any with `topic`, `partition` and `headers`
    (pairs of a name and bytes; or None).
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
    """Yield the records that come for the first time, as they come.

    What carries no header `BATCH` is no delivery of ours, and is yielded. When a record is yielded, ``seen``
    knows it, and all before it: stored then, or after it was worked on, state and next offset belong
    together. Memory is that of `Deduplicator`.

    Args:
        records: in each partition in the order of their offsets; from a consumer's ``poll``, say.
        seen: what was met before; nothing unless given.
        origin_of: reads records of a client that `origin` does not know.

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
    """Return the positions of the bits; None for more than are shorter than their digits."""
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
