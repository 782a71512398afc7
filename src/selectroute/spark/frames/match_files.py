"""Matches of message files with the fan-out's readers, without a stream or an output folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from selectroute.index.snapshot import Snapshot
from selectroute.match.match import Matches
from selectroute.selector.arguments import check_argument, check_iterable, check_path
from selectroute.spark.columns.matches import TYPES, Output, form_of, portions
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once, refer
from selectroute.spark.frames.route import SNAPSHOT, SUBSCRIPTIONS, warn_of_extended
from selectroute.spark.job import MAX_MESSAGE_BYTES
from selectroute.spark.messages import DeadLetterBatch, MessageBatch
from selectroute.spark.session import Batches, run_tasks, task_numbers
from selectroute.spark.sources.files.reader import read
from selectroute.spark.sources.files.splits import Split, plan
from selectroute.spark.task.task import judge
from selectroute.storage import Location


def _as_rows(
    source: str, messages: MessageBatch, matches: Matches, place: bool, form: str
) -> Iterator[pa.RecordBatch]:
    for start, column in portions(form, matches.offsets, matches.ordinals, ids=matches.subscriptions):
        columns: list[Any] = [column]
        if place:
            rows = messages.rows[start : start + len(column)]
            columns = [pa.repeat(pa.scalar(source), len(rows)), pa.array(rows), column]
        yield pa.RecordBatch.from_arrays(
            columns, names=["source", "offset", "subscriptions"][-len(columns) :]
        )


def matches_in(
    tasks: list[list[Split]], ref: SnapshotRef, max_message_bytes: int, place: bool, form: str
) -> Batches:
    """Return the function for ``mapInArrow`` over task numbers that yields matches in a form of `Output`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        snapshot = open_once(ref)
        for batch in batches:
            for number in task_numbers(batch):
                for split in tasks[number]:
                    for read_or_dead in read(split, snapshot.reads, max_message_bytes):
                        for judged in judge(snapshot, read_or_dead):
                            if not isinstance(judged, DeadLetterBatch):
                                yield from _as_rows(split.source, *judged, place, form)

    return run


_PLACE = (StructField("source", StringType()), StructField("offset", LongType()))


def match_files(
    spark: SparkSession,
    paths: Sequence[str | Path],
    snapshot: Snapshot | str | os.PathLike[str],
    *,
    file_format: str = "auto",
    place: bool = True,
    output: Output = "array",
) -> DataFrame:
    """Return the matches of message files, one row per message: ``subscriptions array<int>``.

    The workers read only the columns that selectors need; only the result crosses to the JVM, about a
    megabyte at a time regardless of the number of matches. Messages that can't be read or judged are omitted.

    Args:
        spark: the session.
        paths: message files in the formats of the fan-out; the rows are in any order.
        snapshot: the snapshot, or a folder whose newest revision to use; see `route` for how the workers get
            it.
        file_format: ``parquet``, ``json``, or by each file's name (``auto``).
        place: also return ``source string, offset bigint``: the file's path, and the row in it from 0.
        output: ``array``, ``packed``, ``auto`` or ``ids``, as in `route`.

    Raises:
        OutputError: the output is not one of these.
        SourceError: a path is not on a mounted file system.
    """
    check_argument(spark, SparkSession, "spark", "the SparkSession")
    check_iterable(paths, "paths", "a list of message files")
    check_argument(paths, Sequence, "paths", "a list of message files")
    for path in paths:
        check_path(path, "one of paths", "the path of a message file")
    if not isinstance(snapshot, Snapshot):
        check_argument(snapshot, (str, os.PathLike), "snapshot", SNAPSHOT)
        snapshot = Snapshot.open(snapshot)
    form = form_of(output, snapshot)
    warn_of_extended(snapshot)
    tasks = plan(
        [Location.of(path).path for path in paths], None, file_format, spark.sparkContext.defaultParallelism
    )
    schema = StructType([StructField(SUBSCRIPTIONS, TYPES[form])])
    if place:
        schema = StructType([*_PLACE, *schema])
    return run_tasks(spark, tasks, matches_in(tasks, refer(snapshot), MAX_MESSAGE_BYTES, place, form), schema)
