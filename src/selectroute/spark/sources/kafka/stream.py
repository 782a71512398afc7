"""Source of Spark's stream that plans batches by offsets, and leaves the reading to the tasks of a batch.

Spark asks it, in a process of its own, up to which offsets the next batch goes, and writes them to its
checkpoint, ``offsets/<batch>``; that plan is all that a batch takes of the stream. An offset is the next one
of each partition: ``{"topic": {"0": 23}}``, the form of Spark's own connector, whose checkpoints so go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from selectroute.kafka.client.errors import KafkaClientError, UnreachableError
from selectroute.kafka.client.reading import LostRecordsError
from selectroute.kafka.client.wire import EARLIEST, LATEST, Partition, Wire
from selectroute.spark.sources.kafka.config import KafkaInput, StartingOffsets
from selectroute.spark.sources.kafka.offsets import Offsets
from selectroute.spark.sources.planner import PATIENCE_SECONDS, Planner, planning_source

NAME: Final = "selectroute-kafka"
_SCHEMA: Final = "offset long"

_PAUSE_SECONDS: Final = 0.2

_SECONDS: Final = 5.0
"""How long a stream waits for the cluster before it looks again, and can be stopped in between."""


def offsets_source(input: KafkaInput, first: Offsets) -> type[DataSource]:
    """Return the source of a job's records, to be registered; it travels to Spark's processes by value.

    Args:
        input: the topics.
        first: the start of the first batch, which Spark asks for in a new checkpoint.
    """
    return planning_source(NAME, _SCHEMA, partial(OffsetReader, input, first))


class OffsetReader(Planner):
    """Planner of a stream of records."""

    def __init__(self, input: KafkaInput, first: Offsets) -> None:
        super().__init__()
        self._input = input
        self._first = first
        self._opened: Wire | None = None
        self._target: Offsets | None = None
        self._ends: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the first batch."""
        return _copy(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        most = self._input.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; its start, if there is nothing new or no broker answers.

        Raises:
            LostRecordsError: a partition that was read is gone.
        """
        if self._target is not None:
            ends = self._target
        else:
            found = self._patient_ends(0.0)
            if found is None:
                return start
            ends = found
        _check_there(start, ends)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return limited(start, ends, most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the present end of each partition as that of the stream."""
        found = self._patient_ends(PATIENCE_SECONDS)
        if found is None:
            raise UnreachableError(f"Kafka at {self._input.cluster.servers} does not answer")
        self._target = found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends by which the newest batch was planned, for the number of waiting records."""
        return None if self._ends is None else _copy(self._ends)

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _patient_ends(self, seconds: float) -> Offsets | None:
        """Return the end of each partition, None after so many seconds."""
        found = self.asked(self._ends_now, (UnreachableError,), seconds, _PAUSE_SECONDS)
        if found is not None:
            self._ends = found
        return found

    def _ends_now(self) -> Offsets:
        if self._opened is None:
            self._opened = self._input.cluster.wire(_SECONDS)
        return ends_of(self._opened, self._input)


def ends_of(wire: Wire, input: KafkaInput) -> dict[str, dict[str, int]]:
    """Return the next offset of each partition of an input's topics. Raises KafkaClientError."""
    return _nested(wire.offsets(partitions_of(wire, input), LATEST, committed=input.cluster.reads_committed))


def partitions_of(wire: Wire, input: KafkaInput) -> list[Partition]:
    """Return the existing partitions of an input's topics. Raises KafkaClientError."""
    topics = input.topics if input.pattern is None else input.matching(wire.topics())
    counts = wire.partitions(topics)
    return [(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]


def first_of(wire: Wire, input: KafkaInput) -> dict[str, dict[str, int]]:
    """Return the start of the first batch of an input. Raises KafkaClientError.

    Raises:
        LostRecordsError: the input starts at an offset that Kafka does not have.
    """
    partitions = partitions_of(wire, input)
    given = input.starting
    if not isinstance(given, Mapping):
        at = EARLIEST if given == "earliest" else LATEST
        return _nested(wire.offsets(partitions, at, committed=input.cluster.reads_committed))
    return _nested(_given_offsets(wire, partitions, given))


def _given_offsets(
    wire: Wire, partitions: Sequence[Partition], given: StartingOffsets
) -> dict[Partition, int]:
    """Return the offsets that a user gave, with -2 and -1 replaced, and checked."""
    wanted = {(topic, int(number)): int(at) for topic, of in given.items() for number, at in of.items()}
    if unknown := sorted(wanted.keys() - set(partitions)):
        raise KafkaClientError(
            f"the starting offsets name {unknown[0][0]}/{unknown[0][1]}, which is not a partition of the "
            "input"
        )
    if left_out := sorted(set(partitions) - wanted.keys()):
        raise KafkaClientError(
            f"the starting offsets do not name {left_out[0][0]}/{left_out[0][1]}: give one for each partition"
        )
    first, after = wire.offsets(wanted, EARLIEST), wire.offsets(wanted, LATEST)
    found = {}
    for partition, offset in wanted.items():
        low, high = first[partition], after[partition]
        found[partition] = low if offset == EARLIEST else high if offset == LATEST else offset
        if not low <= found[partition] <= high:
            raise LostRecordsError(
                f"{partition[0]}/{partition[1]} has offsets {low} to {high - 1}, and the job is to start at "
                f"{offset}"
            )
    return found


def limited(start: Offsets, ends: Offsets, most: int | None) -> dict[str, dict[str, int]]:
    """Return the end of a batch of at most so many offsets; each partition has its share of what is waiting.

    A partition that is not in ``start`` is new, and begins at 0. Where a partition has a share at all it is
    at least one offset, so a batch may have more by the number of partitions.
    """
    found = _copy(ends)
    starts = {
        (topic, number): start.get(topic, {}).get(number, 0) for topic, of in ends.items() for number in of
    }
    waiting = {one: max(0, ends[one[0]][one[1]] - at) for one, at in starts.items()}
    total = sum(waiting.values())
    for (topic, number), count in waiting.items():
        at = starts[topic, number]
        share = count if most is None or total <= most else max(count * most // total, min(count, 1))
        found[topic][number] = at + share
    return found


def _check_there(start: Offsets, ends: Offsets) -> None:
    for topic, of_topic in start.items():
        for number, at in of_topic.items():
            after = ends.get(topic, {}).get(number)
            if after is None:
                raise LostRecordsError(
                    f"{topic}/{number}, which the job has read, is no longer in Kafka: records may have been "
                    "dropped before they were read"
                )
            if after < at:
                raise LostRecordsError(
                    f"{topic}/{number} ends at offset {after}, but the job has read up to {at}: the topic "
                    "was created again, or lost records"
                )


def _nested(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def _copy(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: dict(of_topic) for topic, of_topic in offsets.items()}
