"""What one Spark task does: read its splits, match, write, and report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import Batch
from selectroute.match.columns import ColumnTypeError
from selectroute.match.match import Matches
from selectroute.spark.column_types import ReadTypes
from selectroute.spark.output import portions
from selectroute.spark.plan import Split
from selectroute.spark.readers import Dead, Messages, read
from selectroute.spark.sinks import Sinks
from selectroute.spark.snapshots import SnapshotRef, open_once

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a batch have in common."""

    snapshot: SnapshotRef
    staging: str
    keep_unrouted: bool
    max_message_bytes: int


def fan_out(tasks: list[list[Split]], work: Work) -> Batches:
    """Return the function for ``mapInArrow`` over task numbers; it yields one report a task, as JSON."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in _numbers(batch):
                report = {"task": number, **route_splits(tasks[number], work)}
                yield pa.RecordBatch.from_pylist([{"report": json.dumps(report)}])

    return run


def _as_rows(
    source: str, messages: Messages, matches: Matches, place: bool, form: str
) -> Iterator[pa.RecordBatch]:
    for start, found in portions(form, matches.offsets, matches.ordinals):
        columns: list[Any] = [found]
        if place:
            rows = messages.rows[start : start + len(found)]
            columns = [pa.repeat(pa.scalar(source), len(rows)), pa.array(rows), found]
        yield pa.RecordBatch.from_arrays(
            columns, names=["source", "offset", "subscriptions"][-len(columns) :]
        )


def route_splits(splits: list[Split], work: Work) -> dict[str, Any]:
    """Route everything in these splits into files under ``work.staging``; return the counts, rows and
    files."""
    snapshot = open_once(work.snapshot)
    sinks = Sinks(Path(work.staging), snapshot.ids, work.snapshot.revision, work.keep_unrouted)
    rows: list[int] = []
    for split in splits:
        before = sinks.counts.messages
        for read_or_dead in read(split, snapshot.reads, work.max_message_bytes):
            for judged in judge(snapshot, read_or_dead):
                if isinstance(judged, Dead):
                    sinks.bury(split.source, judged)
                else:
                    sinks.deliver(split.source, *judged)
        rows.append(sinks.counts.messages - before)
    files = sinks.close()
    return {"counts": asdict(sinks.counts), "rows": rows, "files": files}


def judge(snapshot: Snapshot, one: Messages | Dead) -> Iterator[tuple[Messages, Matches] | Dead]:
    """Match messages. Those that hold what no property can hold become dead letters, and only those."""
    if isinstance(one, Dead):
        yield one
        return
    try:
        yield one, snapshot.match(one.columns)
        return
    except ColumnTypeError as error:
        rows = len(one.rows)
        # A type concerns every row. Otherwise it is some row's value, such as an id that is not 24 bytes:
        # halve.
        if rows == 1 or not _types_will_do(snapshot, one.columns):
            yield Dead("judge", "column-type", str(error), one.rows)
            return
    middle = rows // 2
    for start, length in ((0, middle), (middle, rows - middle)):
        ids = None if one.ids is None else one.ids.slice(start, length)
        part = Messages(one.columns.slice(start, length), one.rows[start : start + length], ids)
        yield from judge(snapshot, part)


def _types_will_do(snapshot: Snapshot, columns: pa.RecordBatch) -> bool:
    types, batch = ReadTypes(snapshot), Batch(columns)
    try:
        for name in snapshot.reads:
            column = batch.column(name)
            if column is not None:
                types.check(name, column.type)
    except ColumnTypeError:
        return False
    return True


def found_in(
    tasks: list[list[Split]], ref: SnapshotRef, max_message_bytes: int, place: bool, form: str
) -> Batches:
    """Return the function for ``mapInArrow`` over task numbers that yields the matches themselves, in a form
    of `output`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_once(ref)
        for batch in batches:
            for number in _numbers(batch):
                for split in tasks[number]:
                    for read_or_dead in read(split, snapshot.reads, max_message_bytes):
                        for judged in judge(snapshot, read_or_dead):
                            if not isinstance(judged, Dead):
                                yield from _as_rows(split.source, *judged, place, form)

    return run


def run_tasks(
    spark: SparkSession, tasks: Sequence[object], function: Batches, schema: StructType | str
) -> DataFrame:
    """Return what ``function`` yields, one partition a task; the plan travels in the function."""
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(function, schema)


def _numbers(batch: pa.RecordBatch) -> list[int]:
    return [int(number) for number in batch.column(0).to_numpy(zero_copy_only=False)]
