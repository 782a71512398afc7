"""Reading of records in a worker: the ranges of a task, fetched, converted and routed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.index.snapshot import Snapshot
from selectroute.kafka.binding import KafkaBinding
from selectroute.kafka.record import Range
from selectroute.kafka.schemas.bodies import Decisions
from selectroute.kafka.schemas.registry import SchemaRegistry, open_schemas
from selectroute.spark.cluster import READ_RECREATED
from selectroute.spark.messages import RAW_BYTES, DeadLetterBatch, SourcePartition
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.sources.kafka.convert import FullRecords, RecordConverter, Records, rows_of
from selectroute.spark.tables.schemas import RAW
from selectroute.spark.task.connections import connected
from selectroute.spark.task.task import InputPart, TaskSettings, run
from selectroute.storage import Location


def route_ranges(
    tasks: Sequence[Sequence[Range]], input: KafkaInput, may_lack: bool, settings: TaskSettings, task: int
) -> dict[str, Any]:
    """Route the records of the ranges of the task of this number; return the report of `run` and
    `RecordReader`. With ``may_lack``, records that Kafka no longer has are left out.
    """
    return run(partial(_record_reader, tasks[task], input, may_lack, task), settings, task)


def _record_reader(
    ranges: Sequence[Range],
    input: KafkaInput,
    may_lack: bool,
    task: int,
    snapshot: Snapshot,
    settings: TaskSettings,
    full: bool,
) -> RecordReader:
    from selectroute.kafka.reading import read  # needs the extra `kafka`

    # Partitions are read side by side, in no certain order; the progress of puts needs one.
    groups = [[range_] for range_ in sorted(ranges)] if settings.queues is not None else [ranges]
    wire, committed = connected(input.cluster), input.cluster.reads_committed
    options = {"may_lack": may_lack, "may_change": may_lack or input.cluster.recreated == READ_RECREATED}
    parts = (part for group in groups for part in read(wire, group, committed=committed, **options))
    batches, registry = map(rows_of, parts), input.schemas
    decisions = None
    if registry is not None and registry.on_missing != "wait" and settings.schema_decisions is not None:
        decisions = Decisions(Location.of(settings.schema_decisions), task)
    return RecordReader(batches, input.binding, registry, snapshot, settings, full, ranges, decisions)


class RecordReader:
    """Reader of Kafka records. Reports columns that are ``unlike``, and under ``came`` the number of records,
    the first and the last offset of each partition.

    Raises `SchemaUnavailableError` for a schema that is not available, if the policy of its registry is to
    wait.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        binding: KafkaBinding,
        registry: SchemaRegistry | None,
        snapshot: Snapshot,
        settings: TaskSettings,
        full: bool,
        ranges: Sequence[Range] = (),
        decisions: Decisions | None = None,
    ) -> None:
        self._batches = batches
        partitions = sorted({SourcePartition(range_.topic, range_.partition) for range_ in ranges})
        self._numbers = {partition: number for number, partition in enumerate(partitions)}
        self._sources = {range_.topic: range_.source for range_ in ranges}
        self._schemas = None if registry is None else open_schemas(registry)
        self._binding = binding
        self._full = full
        self._reader = RecordConverter(
            settings.names(snapshot), binding, settings.max_message_bytes, self._schemas, decisions
        )
        self._came: dict[SourcePartition, tuple[int, int, int]] = {}

    def parts(self) -> Iterator[InputPart]:
        """Yield the records of the batches."""
        for batch in self._batches:
            for records in self._reader.read(batch):
                place = SourcePartition(records.topic, records.partition)
                self._came[place] = _added(self._came.get(place), records)
                for part in records.parts:
                    if self._full and not isinstance(part, DeadLetterBatch):
                        full = FullRecords(records.of(part.rows), self._binding, self._schemas)
                        part = replace(part, full=full)
                    shown = place._replace(source=self._sources.get(records.topic, records.topic))
                    yield InputPart(self._numbers.get(place, 0), shown, part, partial(originals, records))

    def report(self) -> dict[str, Any]:
        """Return the warnings about columns, and the ranges of the records read."""
        came = [[*place, *rows] for place, rows in self._came.items()]
        return {"unlike": self._reader.unlike, "came": came}


def originals(records: Records, dead: DeadLetterBatch) -> pa.RecordBatch:
    """Return the original records of dead letters, in the columns of `RAW`: without headers, and with the
    beginning of value and key, if they are too large.
    """
    assert dead.rows is not None
    rows = records.of(dead.rows)
    value, key, headers = (rows.column(name) for name in ("value", "key", "headers"))
    if dead.reason == "too-large":
        value, key = (pc.binary_slice(column, 0, RAW_BYTES) for column in (value, key))
        headers = pa.nulls(len(rows), RAW.field("headers").type)
    return pa.RecordBatch.from_arrays([value, key, headers], names=["value", "key", "headers"])


def _added(before: tuple[int, int, int] | None, records: Records) -> tuple[int, int, int]:
    offsets = records.rows.column("offset").to_numpy(zero_copy_only=False)
    rows, first, last = len(offsets), int(np.min(offsets)), int(np.max(offsets))
    if before is None:
        return rows, first, last
    return before[0] + rows, min(before[1], first), max(before[2], last)
