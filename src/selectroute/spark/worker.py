"""What one Spark task does: read its splits, match, write, and report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.match.batch import leaves
from selectroute.match.columns import ColumnTypeError
from selectroute.match.match import Matches
from selectroute.match.missing import MissingColumnError, missing_columns
from selectroute.spark.column_types import ReadTypes
from selectroute.spark.destinations import destinations
from selectroute.spark.kafka_messages import KafkaMessages, Topic
from selectroute.spark.outgoing import Kind, Outgoing
from selectroute.spark.output import portions
from selectroute.spark.plan import Split
from selectroute.spark.queue_messages import QueueMessages
from selectroute.spark.readers import Dead, Messages, Place, read
from selectroute.spark.recall import Recall, recalled, settle
from selectroute.spark.sinks import Sinks
from selectroute.spark.snapshots import SnapshotRef, open_once
from selectroute.spark.unrouted import Unrouted

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a batch have in common.

    ``queues`` are those of the job's database, each with the longest message that it holds, in bytes; None if
    the job has none. ``topics`` are those of the Kafka to which it writes.
    ``recalled`` is the list of what alone is judged, of a replay.
    ``only_folders``: nothing is staged for other destinations, nor held against what these take.
    """

    snapshot: SnapshotRef
    staging: str
    unrouted: Unrouted
    max_message_bytes: int
    queues: Mapping[str, int] | None = None
    topics: Mapping[str, Topic] | None = None
    recalled: str | None = None
    only_folders: bool = False

    def recall(self, snapshot: Snapshot) -> Recall | None:
        """What alone is judged, None for all that is read."""
        return None if self.recalled is None else Recall(Path(self.recalled), snapshot)


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
    for start, found in portions(form, matches.offsets, matches.ordinals, ids=matches.subscriptions):
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
    folder = Path(work.staging)
    outgoing = outgoing_of(snapshot, work, folder)
    sinks = Sinks(folder, snapshot.ids, work.snapshot.revision, work.unrouted, outgoing)
    names = tuple(dict.fromkeys((*snapshot.reads, *work.unrouted.reads)))
    recall = work.recall(snapshot)
    rows: list[int] = []
    types = ReadTypes(snapshot)
    unlike: dict[str, tuple[str, bool]] = {}
    missing: dict[str, str] = {}
    for split in splits:
        came, place, looked_at = 0, Place(split.source), False
        for read_or_dead in read(split, names, work.max_message_bytes, whole=bool(outgoing)):
            came += read_or_dead.count
            if not looked_at and split.kind == "parquet" and not isinstance(read_or_dead, Dead):
                looked_at = True  # all of a file has the same columns
                unlike |= types.unlike(read_or_dead.columns, snapshot.reads)
                _look_for_missing(snapshot, split, read_or_dead.columns, missing)
            for part, limit in recalled(recall, place, read_or_dead):
                for judged in judge(snapshot, part):
                    settle(sinks, place, judged, limit)
        rows.append(came)
    files = sinks.close()
    return {
        "counts": asdict(sinks.counts),
        "rows": rows,
        "files": files,
        "unlike": unlike,
        "missing": missing,
    }


def _look_for_missing(
    snapshot: Snapshot, split: Split, columns: pa.RecordBatch, said: dict[str, str]
) -> None:
    """Add to `said` a sentence on the columns that selectors read and a Parquet file does not have, by the
    names of these: other files may lack the same.
    """
    there = {name for name, _ in leaves(columns.schema)}.union(columns.schema.names)
    missing = missing_columns(snapshot.reads, there)
    key = ", ".join(["missing", *missing])
    if missing and key not in said:
        with suppress(pa.ArrowException, OSError):  # it is gone by now
            present = [name for name, _ in leaves(pq.read_schema(split.path))]
            said[key] = str(MissingColumnError(missing, present, split.source))


def outgoing_of(snapshot: Snapshot, work: Work, folder: Path) -> list[Outgoing]:
    """What is staged for destinations besides the output folder: nothing where no subscription has one, or
    only folders are written.
    """
    found: list[Outgoing] = []
    if work.only_folders:
        return found
    queues, topics = (destinations(snapshot, kind) for kind in (QUEUE, KAFKA))
    if queues is not None:
        kind: Kind = QueueMessages(queues.names, work.queues)
        found.append(Outgoing(kind, folder, queues, snapshot.ids))
    if topics is not None:
        kind = KafkaMessages(topics.names, work.topics)
        found.append(Outgoing(kind, folder, topics, snapshot.ids))
    return found


def judge(snapshot: Snapshot, one: Messages | Dead) -> Iterator[tuple[Messages, Matches] | Dead]:
    """Match messages. They become dead letters where nobody can say what a column of the frame means."""
    if isinstance(one, Dead):
        yield one
        return
    try:
        yield one, snapshot.match(one.columns, missing="ignore")
    except ColumnTypeError as error:
        yield Dead("judge", "column-type", str(error), one.rows)


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
