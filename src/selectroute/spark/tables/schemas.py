"""Columns of the three tables that a job writes, and the counts of their rows.

In plain Parquet folders the number of a batch is not a column of the files: it is in the name of their
folder, ``batch=<n>``, from which readers make the column ``batch`` (and most reject files that have that
column as well). In Delta tables it is a column, since files of many batches are merged (`WITH_BATCH`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from selectroute.index.destination import KAFKA, QUEUE

BUSIEST: Final = 100
"""Subscriptions that are named of a batch."""

OF_TASK: Final = 1_000
"""Subscriptions that a task names. If it delivers to more, the number of one that is not among the busiest of
each task is too small in the sum.
"""


class DeliveryCounts:
    """Numbers of deliveries of a task by subscription. No Python object is made for a delivery.

    Args:
        ids: the snapshot's column of ids.
    """

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._counts = np.zeros(len(ids), dtype=np.int64)

    def add(self, ordinals: npt.NDArray[np.int32]) -> None:
        """Count deliveries, one for each ordinal."""
        np.add.at(self._counts, ordinals, 1)

    def busiest(self, most: int = OF_TASK) -> dict[str, int]:
        """Return the numbers of the subscriptions with most deliveries, by id."""
        used = np.flatnonzero(self._counts)
        if len(used) > most:
            used = used[np.argpartition(self._counts[used], -most)[-most:]]
        return dict(zip(self._ids.take(pa.array(used)).to_pylist(), self._counts[used].tolist(), strict=True))


def busiest_of(tasks: Iterable[Mapping[str, int]], most: int = BUSIEST) -> dict[str, int]:
    """Return the subscriptions with most deliveries in all tasks of a batch, the busiest first."""
    total: Counter[str] = Counter()
    for of_task in tasks:
        total.update(of_task)
    return dict(nsmallest(most, total.items(), key=lambda item: (-item[1], item[0])))


NUMBERS = ("messages", "routed", "unrouted", "dead_lettered", "deliveries", "refused", "queued", "sent")
"""Counts that are numbers, in the order of the accounting."""


@dataclass(slots=True)
class Counts:
    """Counts of the messages and deliveries of a task or a batch. A message may have many deliveries.

    ``messages`` is ``routed + unrouted + dead_lettered``. Of the ``deliveries``, ``queued`` went to queues
    and ``sent`` to Kafka. ``refused`` counts deliveries that could not be judged (see `refusal`), or that
    their destination does not accept; each is a dead letter, but not counted in ``dead_lettered`` or
    ``reasons``, which count messages. A message of which every delivery was refused is unrouted. ``policies``
    counts the unrouted messages by policy: only those of ``keep`` are listed.
    """

    messages: int = 0
    routed: int = 0
    unrouted: int = 0
    dead_lettered: int = 0
    deliveries: int = 0
    refused: int = 0
    queued: int = 0
    sent: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    policies: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add another task's counts."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.count_dead_letters(reason, count)
        for policy, count in other.policies.items():
            self.count_unrouted(policy, count)

    def count_sent(self, kind: str, count: int) -> None:
        """Count deliveries to destinations of a kind."""
        if kind == QUEUE:
            self.queued += count
        elif kind == KAFKA:
            self.sent += count

    def count_dead_letters(self, reason: str, count: int) -> None:
        """Count dead letters under their reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + count

    def count_unrouted(self, policy: str, count: int) -> None:
        """Count unrouted messages under their policy."""
        self.policies[policy] = self.policies.get(policy, 0) + count


DELIVERIES, UNROUTED, DEAD_LETTERS = SINKS = ("deliveries", "unrouted", "dead-letters")
"""Names of the three tables and of their folders."""

TEXT = pa.dictionary(pa.int32(), pa.string())

PLACE = [("source", TEXT), ("partition", pa.int32()), ("offset", pa.int64())]
"""Position of a message: file and row (the partition is 0), or topic, partition and offset."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Headers of a Kafka record."""

RAW = pa.schema([("raw", pa.binary()), ("key", pa.binary()), ("headers", HEADERS)])
"""Original bytes of a dead letter: a line, or value, key and headers of a Kafka record."""

SCHEMAS: dict[str, pa.Schema] = {
    DELIVERIES: pa.schema([("subscription", TEXT), ("revision", pa.int64()), *PLACE, ("message_id", TEXT)]),
    UNROUTED: pa.schema([("revision", pa.int64()), *PLACE, ("message_id", pa.string())]),
    DEAD_LETTERS: pa.schema(
        [
            ("stage", TEXT),
            ("reason", TEXT),
            ("message", TEXT),
            *PLACE,
            ("revision", pa.int64()),
            ("subscription", TEXT),
            *RAW,
        ]
    ),
}
"""Columns of the files of each sink."""

BATCH = pa.field("batch", pa.int64())
"""Number of the batch of a row; negative for backfills and replays."""

WITH_BATCH = {sink: pa.schema([BATCH, *schema]) for sink, schema in SCHEMAS.items()}
"""Columns of the files of each sink in a table."""

REPEATING = {sink: [field.name for field in schema if field.type == TEXT] for sink, schema in SCHEMAS.items()}
"""Columns of each sink whose values repeat."""


def decoded(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain strings in the place of dictionaries."""
    return pa.schema(field.with_type(pa.string()) if field.type == TEXT else field for field in schema)


def as_written(text: str) -> str:
    """Return a file's name as text for the outputs; undecodable bytes become question marks."""
    return text.encode("utf-8", "replace").decode()
