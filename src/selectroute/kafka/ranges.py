"""Ranges of offsets of Kafka's partitions, and their records as Arrow columns."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class Range(NamedTuple):
    """Records of one partition: from the offset ``start`` to the one before ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} offsets {self.start} to {self.end - 1}"


class Part(NamedTuple):
    """Records of one partition, in the columns of `selectroute.kafka.batches.decode.COLUMNS`."""

    topic: str
    partition: int
    records: pa.RecordBatch
