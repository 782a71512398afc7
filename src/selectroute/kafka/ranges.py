"""Ranges of offsets of Kafka's partitions, and their records as Arrow columns.

An offset says which record it is only together with the id of its topic, and an epoch that the leader had
when the partition went as far (KIP-516, KIP-320): a topic that was created again under its name, or lost its
newest records, has other records at the same offsets. Its records are of another *history*, counted from 1.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class Range(NamedTuple):
    """Records of one partition: from the offset ``start`` to the one before ``end``.

    ``id`` is the topic's and ``epoch`` the leader's when the range was planned, empty and -1 if they are not
    known. ``skipped`` is the number of offsets before the range that were gone when the partition was first
    met.
    """

    topic: str
    partition: int
    start: int
    end: int
    id: str = ""
    epoch: int = -1
    history: int = 1
    skipped: int = 0

    @property
    def source(self) -> str:
        """Name of the topic in the output, which is another one for each history."""
        return source_of(self.topic, self.history)

    def __str__(self) -> str:
        return f"{self.source}/{self.partition} offsets {self.start} to {self.end - 1}"


def source_of(topic: str, history: int) -> str:
    """Return the name of a topic's history in the output: ``cars``, ``cars@2``. No topic has an @ in it."""
    return topic if history == 1 else f"{topic}@{history}"


class PartitionRecords(NamedTuple):
    """Records of one partition, in the columns of `selectroute.kafka.batches.decode.COLUMNS`."""

    topic: str
    partition: int
    records: pa.RecordBatch
