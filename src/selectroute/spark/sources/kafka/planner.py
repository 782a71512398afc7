"""Planner of a stream of Kafka records: the offsets of each batch. The tasks of a batch read the records.

Spark asks it, in a process of its own, up to which offsets the next batch goes, and writes them to its
checkpoint, ``offsets/<batch>``, in the form of ``offsets.py``.

Before each plan it checks that each topic is still the topic that was read: by its id, and where a partition
has a new leader, by the end of the epoch that was read last. `KafkaCluster.recreated` says what happens
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from selectroute.kafka.cluster import EARLIEST, LATEST, Partition, Wire
from selectroute.kafka.errors import (
    GO_ON,
    BrokerUnreachableError,
    KafkaClientError,
    LostRecordsError,
    TopicChangedError,
)
from selectroute.kafka.record import Range
from selectroute.spark.cluster import READ_RECREATED
from selectroute.spark.sources.kafka.config import KafkaInput, StartingOffsets
from selectroute.spark.sources.kafka.offsets import (
    Identity,
    Offsets,
    Positions,
    changed,
    identity_of,
    offsets_with,
    positions_of,
)
from selectroute.spark.sources.planner import PATIENCE_SECONDS, Planner

NAME: Final = "selectroute-kafka"

_PAUSE_SECONDS: Final = 0.2
_WAITED_FOR: Final = (BrokerUnreachableError,)

_SECONDS: Final = 5.0
"""How long a stream waits for the cluster before it looks again, and can be stopped in between."""


class KafkaPlanner(Planner):
    """Planner of a stream of records."""

    def __init__(self, input: KafkaInput, first: Offsets) -> None:
        super().__init__()
        self._input = input
        self._first = first
        self._opened: Wire | None = None
        self._target: Positions | None = None
        self._ends: Positions | None = None
        self._checked: set[Range] = set()

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the first batch."""
        return dict(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        most = self._input.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch; its start, if there is nothing new or no broker answers. A stream
        that takes what is available waits for them.

        Raises:
            BrokerUnreachableError: it has waited for long enough.
            LostRecordsError: a partition that was read is gone.
            TopicChangedError: a topic was created again, or lost records that were read.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        seconds = 0.0 if self._target is None else PATIENCE_SECONDS
        end = self.asked(lambda: self._next(start, most), _WAITED_FOR, seconds, _PAUSE_SECONDS)
        if end is None and self._target is not None:
            raise BrokerUnreachableError(str(self.outage))
        return start if end is None else end

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the present end of each partition as the end of the stream."""
        self._target = self.asked(self._ends_now, _WAITED_FOR, PATIENCE_SECONDS, _PAUSE_SECONDS)
        if self._target is None:
            raise BrokerUnreachableError(f"Kafka at {self._input.cluster.servers} does not answer")

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends by which the newest batch was planned, for the number of waiting records."""
        return None if self._ends is None else dict(self._ends)

    def stop(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _wire(self) -> Wire:
        if self._opened is None:
            self._opened = self._input.cluster.wire(_SECONDS)
        return self._opened

    def _ends_now(self) -> Positions:
        wire, is_committed = self._wire(), self._input.cluster.reads_committed
        self._ends = _nested(wire.offsets(partitions_of(wire, self._input), LATEST, committed=is_committed))
        return self._ends

    def _next(self, start: Offsets, most: int | None) -> dict[str, Any]:
        wire = self._wire()
        for topic in positions_of(start):
            was = identity_of(start, topic)
            epochs = {int(number): epoch for number, epoch in was.epochs.items()}
            wire.identify(topic, was.id, epochs, must_stay=False)
        if self._target is None:
            ends = self._ends_now()
        else:
            ends = self._target
            wire.partitions(ends)  # refreshes the metadata since the stream began
        return next_offsets(wire, self._input, start, ends, most, self._checked)


def partitions_of(wire: Wire, input: KafkaInput) -> list[Partition]:
    """Return the existing partitions of an input's topics. Raises KafkaClientError."""
    topics = input.topics if input.pattern is None else input.matching(wire.topics())
    counts = wire.partitions(topics)
    return [(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]


def first_of(wire: Wire, input: KafkaInput) -> dict[str, Any]:
    """Return the start of the first batch of an input, an offset. Raises KafkaClientError.

    Raises:
        LostRecordsError: the input starts at an offset that Kafka does not have.
    """
    partitions = partitions_of(wire, input)
    starting = input.starting
    if isinstance(starting, Mapping):
        first = _nested(_given_offsets(wire, partitions, starting))
    else:
        at = EARLIEST if starting == "earliest" else LATEST
        first = _nested(wire.offsets(partitions, at, committed=input.cluster.reads_committed))
    return offsets_with(first, {topic: _identity(wire, topic, of) for topic, of in first.items()})


def _given_offsets(
    wire: Wire, partitions: Sequence[Partition], starting: StartingOffsets
) -> dict[Partition, int]:
    """Return the offsets that a user gave, with -2 and -1 replaced, and checked."""
    wanted = {(topic, int(number)): int(at) for topic, of in starting.items() for number, at in of.items()}
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
    offsets = {}
    for partition, offset in wanted.items():
        low, high = first[partition], after[partition]
        offsets[partition] = low if offset == EARLIEST else high if offset == LATEST else offset
        if not low <= offsets[partition] <= high:
            raise LostRecordsError(
                f"{partition[0]}/{partition[1]} has offsets {low} to {high - 1}, and the job is to start at "
                f"{offset}"
            )
    return offsets


def next_offsets(
    wire: Wire,
    input: KafkaInput,
    start: Offsets,
    ends: Positions,
    most: int | None = None,
    checked: set[Range] | None = None,
) -> dict[str, Any]:
    """Return the end of the batch that begins at an offset; the offset itself, if there is nothing new.

    Args:
        wire: connections, which know what the topics of the start are; its metadata must be new.
        input: the topics.
        start: the offset.
        ends: the next offset of each partition now.
        most: number of records of the batch, see `limited`.
        checked: positions of which is known that their partitions have not lost them; new ones are added.

    Raises: as `KafkaPlanner.latestOffset`; KafkaClientError.
    """
    before = positions_of(start)
    if gone := sorted(before.keys() - ends.keys()):
        raise LostRecordsError(_GONE.format(gone[0]))
    starts: dict[str, dict[str, int]] = {}
    identities: dict[str, Identity] = {}
    for topic, of_topic in ends.items():
        was, known = identity_of(start, topic), dict(before.get(topic, {}))
        now, history, begin = _identity(wire, topic, of_topic), was.history, dict[str, int]()
        new: Collection[str] = of_topic.keys() - known.keys()
        if lost := changed(wire, topic, known, was, of_topic, set() if checked is None else checked):
            if input.cluster.recreated != READ_RECREATED:
                raise TopicChangedError(f"{lost.sentence}; {GO_ON}", topic)
            history += 1
            begin = dict(lost.begin)
            if not lost.begin:
                new, known = of_topic.keys(), {}
        if gone := sorted(known.keys() - of_topic.keys()):
            raise LostRecordsError(_GONE.format(f"{topic}/{gone[0]}"))
        for number, at in known.items():
            if of_topic[number] < at and number not in begin and was.epochs.get(number, -1) < 0:
                raise LostRecordsError(
                    f"{topic}/{number} ends at offset {of_topic[number]}, but the job has read up to {at}: "
                    "the topic was created again, or lost records"
                )
        firsts = wire.offsets([(topic, int(number)) for number in new], EARLIEST) if new else {}
        skipped = {str(number): first for (_, number), first in firsts.items() if first}
        begin |= {
            str(number): first for (_, number), first in firsts.items() if first or history > was.history
        }
        starts[topic] = {number: begin.get(number, known.get(number, 0)) for number in of_topic}
        identities[topic] = replace(now, history=history, begin=begin, skipped=skipped)
    end = limited(starts, ends, most)
    is_new = any(
        identity.history != identity_of(start, topic).history for topic, identity in identities.items()
    )
    return offsets_with(end, identities) if is_new or end != before else dict(start)


_GONE: Final = (
    "{}, which the job has read, is no longer in Kafka: records may have been dropped before they were read"
)


def limited(start: Positions, ends: Positions, most: int | None) -> dict[str, dict[str, int]]:
    """Return the end of a batch of at most this number of offsets; each partition has its share.

    Where a partition has a share at all it is at least one offset, so a batch may have more by the number of
    partitions.
    """
    waiting = {
        (topic, number): max(0, end - start[topic][number])
        for topic, of_topic in ends.items()
        for number, end in of_topic.items()
    }
    total = sum(waiting.values())
    limits: dict[str, dict[str, int]] = {topic: {} for topic in ends}
    for (topic, number), count in waiting.items():
        share = count if most is None or total <= most else max(count * most // total, min(count, 1))
        limits[topic][number] = start[topic][number] + share
    return limits


def _identity(wire: Wire, topic: str, partitions: Iterable[str]) -> Identity:
    epochs = {number: wire.epochs.get((topic, int(number)), -1) for number in partitions}
    return Identity(wire.ids.get(topic, ""), epochs=epochs)


def _nested(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested
