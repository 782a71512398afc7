"""Work of one Spark task: read a share of a batch, match it, write it, report.

`run` is the task. It is the same for files and Kafka records, which differ in their reader: `SplitReader` and
`RecordReader`. `route_splits` and `route_ranges` call it for either. The rows of a DataFrame can be read only
once in a task, with `run_once` and the reader in ``rows``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.binding import KafkaBinding
from selectroute.kafka.errors import FencedError, UnreachableError
from selectroute.kafka.ranges import Range
from selectroute.kafka.schemas.bodies import Decisions
from selectroute.kafka.schemas.cache import SchemaUnavailableError, open_schemas
from selectroute.kafka.schemas.registry import SchemaRegistry
from selectroute.match.columns.batch import leaves
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.columns.missing import MissingColumnError, missing_columns, unlike_constants
from selectroute.match.match import Matches
from selectroute.spark.columns.column_types import ReadTypes
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once
from selectroute.spark.destinations.destination import Outgoing, OutgoingWriter, destinations
from selectroute.spark.destinations.kafka.writer import (
    HeldTopicError,
    KafkaMessages,
    KafkaTarget,
    KafkaWriter,
)
from selectroute.spark.destinations.queues.writer import QueueMessages, QueueTarget, QueueWriter
from selectroute.spark.job import Unrouted
from selectroute.spark.sources.files.reader import (
    RAW_BYTES,
    Bound,
    DeadLetterBatch,
    MessageBatch,
    SourcePartition,
    not_cast,
    read,
)
from selectroute.spark.sources.files.splits import Split, opened_by_arrow
from selectroute.spark.sources.kafka.config import READ_RECREATED, KafkaCluster, KafkaInput
from selectroute.spark.sources.kafka.reader import FullRecords, KafkaReader, Records, rows_of
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.tables.schemas import RAW
from selectroute.spark.task.replay_filter import ReplayFilter, select_inputs, write_judged
from selectroute.spark.task.writer import Sinks
from selectroute.storage import Location
from selectroute.storage.patient import WAITED_FOR
from selectroute.store.errors import OvertakenError, StoreError, UnavailableError

if TYPE_CHECKING:  # needs the extras `kafka` and `service`
    from selectroute.kafka.cluster import Wire
    from selectroute.queues.sql.deliveries import QueueDeliveries

_open: dict[tuple[int, bool, str, tuple[tuple[str, str], ...]], Wire] = {}
"""Connections by process, since they do not survive a fork, by use, and by cluster."""

_databases: dict[tuple[int, str], QueueDeliveries] = {}
"""Databases of queues by process and URL."""


def connected(cluster: KafkaCluster, *, to_write: bool = False) -> Wire:
    """Return this process's connections to a cluster. A broker takes the requests of a connection one after
    the other, so those that write are not behind those that read.
    """
    key = os.getpid(), to_write, cluster.servers, tuple(sorted(cluster.options.items()))
    if key not in _open:
        _open[key] = cluster.wire()
    return _open[key]


def opened(url: str) -> QueueDeliveries:
    """Return this process's open database of queues."""
    from selectroute.queues.sql.deliveries import QueueDeliveries  # needs the extra `service`

    key = os.getpid(), url
    if key not in _databases:
        _databases[key] = QueueDeliveries(url)
    return _databases[key]


def disconnect() -> None:
    """Close this process's connections, after an error: the next task makes new ones."""
    own = os.getpid()
    for key in [key for key in _open if key[0] == own]:
        _open.pop(key).close()
    for database in [key for key in _databases if key[0] == own]:
        _databases.pop(database).close()


_PART_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings that all tasks of a batch have in common.

    Attributes:
        snapshot: the snapshot to match with.
        files: folders for the files.
        unrouted: the policy for unrouted messages.
        max_message_bytes: a longer message is a dead letter.
        queues: the queues to put to; None if the job has no database of queues.
        kafka: the Kafka topics to write to, and how; None if the job has no cluster.
        replay_list: path of the list of letters to judge, of a replay only.
        destinations: the kinds of destinations to deliver to.
        schema_decisions: folder of the batch's `Decisions`; None if nothing is put or sent.
        row_digests: folder of the batch's `RowDigests`; None if nothing is put or sent.
        counts_busiest: whether tasks report the subscriptions with most deliveries.
    """

    snapshot: SnapshotRef
    files: OutputFiles
    unrouted: Unrouted
    max_message_bytes: int
    queues: QueueTarget | None = None
    kafka: KafkaTarget | None = None
    replay_list: str | None = None
    destinations: tuple[str, ...] = (QUEUE, KAFKA)
    schema_decisions: str | None = None
    row_digests: str | None = None
    counts_busiest: bool = False

    def names(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the identifiers to read."""
        return tuple(dict.fromkeys((*snapshot.reads, *self.unrouted.reads)))


class InputPart(NamedTuple):
    """Messages of a task, or inputs that can't be read.

    Attributes:
        number: the number of the part of the input that they are from. It never decreases, nor does the
            offset within it.
        place: the origin.
        read: the messages, or the dead letters.
        original: returns the original Kafka records of dead letters; None for files.
    """

    number: int
    place: SourcePartition
    read: MessageBatch | DeadLetterBatch
    original: Callable[[DeadLetterBatch], pa.RecordBatch] | None = None


class Reader(Protocol):
    """Reader of the input of one task."""

    def parts(self) -> Iterator[InputPart]:
        """Yield the whole input, in order."""

    def report(self) -> dict[str, Any]:
        """Return the report, after the last part."""


def route_splits(
    tasks: Sequence[Sequence[Split]], bound: Bound, settings: TaskSettings, task: int
) -> dict[str, Any]:
    """Route the splits of files of the task of this number; return the report of `run` and `SplitReader`."""
    return run(partial(SplitReader, tasks[task], bound), settings, task)


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


def run(
    reader_of: Callable[[Snapshot, TaskSettings, bool], Reader], settings: TaskSettings, task: int
) -> dict[str, Any]:
    """Read, match and write the input of one task: into files of ``settings.files``, queues and Kafka.

    Return the counts, the files and the ``busiest`` subscriptions, with the reader's report, and under
    ``outgoing`` what the writer of each kind of destination reports. A task that is not done reports why, and
    must be run again: ``waits``, a sentence, if Kafka, a database of queues or a schema registry does not
    answer, or another attempt began (``fenced``); or, of a kind, ``held``, the destinations that refuse, each
    with the reason.

    Args:
        reader_of: creates the reader for a snapshot; the last argument is whether full messages are needed.
        settings: the settings of the batch.
        task: the number of the task in the batch.
    """
    held: dict[str, str] = {}
    while True:
        report = run_once(reader_of, settings, task, held)
        if "refuses" not in report:
            return report
        held |= report["refuses"]


def run_once(
    reader_of: Callable[[Snapshot, TaskSettings, bool], Reader],
    settings: TaskSettings,
    task: int,
    held: Mapping[str, str],
) -> dict[str, Any]:
    """Read the input of one task once, as `run`. Without the topics ``held``; the report has ``refuses``, a
    topic and its reason, if another one refuses: then the task is to be run again at once, with it held, too.
    """
    try:
        report = {"task": task, **_attempt(reader_of, settings, task, held)}
        if held:
            report["outgoing"][KAFKA]["held"] = dict(held)
        return report
    except HeldTopicError as error:
        return {"task": task, "refuses": {error.topic: error.why}}
    except (UnreachableError, FencedError, SchemaUnavailableError, StoreError, *WAITED_FOR) as error:
        disconnect()
        fenced = isinstance(error, FencedError | OvertakenError)
        if isinstance(error, StoreError) and not isinstance(error, OvertakenError | UnavailableError):
            raise
        is_outage = isinstance(error, WAITED_FOR)
        return {"task": task, "waits": str(error), "fenced": fenced, "outage": is_outage}


def _attempt(
    reader_of: Callable[[Snapshot, TaskSettings, bool], Reader],
    settings: TaskSettings,
    task: int,
    held: Collection[str],
) -> dict[str, Any]:
    snapshot = open_once(settings.snapshot)
    outgoing = outgoing_of(snapshot, settings, task, held)
    if (full := held_up(outgoing)) is not None:
        return full
    sinks = Sinks(
        settings.files,
        snapshot.ids,
        settings.snapshot.revision,
        settings.unrouted,
        outgoing,
        settings.counts_busiest,
    )
    replayed = settings.replay_list
    try:
        replay_filter = None if replayed is None else ReplayFilter(Location.of(replayed), snapshot)
        # Letters of messages and of deliveries are read one after the other, each by ascending offsets.
        for nth in (0,) if replay_filter is None else replay_filter.passes:
            reader = reader_of(snapshot, settings, bool(outgoing))
            for number, place, read_or_dead, original in reader.parts():
                for of_kind in outgoing:
                    of_kind.part = (nth << _PART_BITS) + number
                for part, limit in select_inputs(replay_filter, nth, place, read_or_dead):
                    for judged in judge(snapshot, part):
                        records = None
                        if original is not None and isinstance(judged, DeadLetterBatch):
                            records = original(judged)
                        write_judged(sinks, place, judged, limit, records)
        files = sinks.close()
    except BaseException:
        # Where files stay in place, each attempt would leave some in the table's folder.
        sinks.discard()
        raise
    of_kinds = {of_kind.kind: of_kind.report() for of_kind in outgoing}
    outcome = {"counts": asdict(sinks.counts), "files": files, "busiest": sinks.busiest()}
    return {**outcome, "outgoing": of_kinds, **reader.report()}


def outgoing_of(
    snapshot: Snapshot, settings: TaskSettings, task: int, held: Collection[str] = ()
) -> list[Outgoing]:
    """Return what takes a task's deliveries outside the output folder: one for each kind in use."""
    outgoing: list[Outgoing] = []
    ids, revision = snapshot.ids, settings.snapshot.revision
    writer: OutgoingWriter | None
    if QUEUE in settings.destinations and (to := destinations(snapshot, QUEUE)) is not None:
        of_queues = settings.queues
        queues = QueueMessages(to.names, None if of_queues is None else of_queues.lengths)
        writer = None
        if of_queues is not None:
            database = opened(of_queues.url)
            writer = QueueWriter(of_queues, database, task, to.names, ids, revision, bool(held))
            if writer.is_rest_done and (topics := destinations(snapshot, KAFKA)) is not None:
                held = topics.names
        outgoing.append(Outgoing(queues, to, writer))
    if KAFKA in settings.destinations and (to := destinations(snapshot, KAFKA)) is not None:
        target = settings.kafka
        records = KafkaMessages(to.names, None if target is None else target.topics)
        writer = None
        if target is not None:
            wire = connected(target.cluster, to_write=True)
            writer = KafkaWriter(target, wire, task, to, ids, revision, held)
        # Before queues: what is sent is committed before the progress says that only full queues are left.
        outgoing.insert(0, Outgoing(records, to, writer))
    return outgoing


def held_up(outgoing: Sequence[Outgoing]) -> dict[str, Any] | None:
    """Return the report of a task of which only deliveries to full queues are left; None for any other."""
    for of_kind in outgoing:
        if isinstance(of_kind.writer, QueueWriter) and of_kind.writer.is_held_up():
            return {"outgoing": {of_kind.kind: of_kind.report()}}
    return None


def judge(
    snapshot: Snapshot, part: MessageBatch | DeadLetterBatch
) -> Iterator[tuple[MessageBatch, Matches] | DeadLetterBatch]:
    """Match messages. They become dead letters if a column of the frame has an invalid type."""
    if isinstance(part, DeadLetterBatch):
        yield part
        return
    try:
        yield part, snapshot.match(part.columns, missing="ignore", unlike="ignore")
    except ColumnTypeError as error:
        yield DeadLetterBatch("judge", "column-type", str(error), part.rows)


class SplitReader:
    """Reader of splits of files. Reports the ``rows`` of each split, the findings of `ReadTypes.unlike`, and
    ``warnings`` of columns that are missing or compared with constants of another type. ``bound`` has the
    columns of identifiers in Parquet.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        bound: Bound,
        snapshot: Snapshot,
        settings: TaskSettings,
        full: bool,
    ) -> None:
        self._splits = splits
        self._bound = bound
        self._snapshot = snapshot
        self._names = settings.names(snapshot)
        self._max_message_bytes = settings.max_message_bytes
        self._full = full
        self._types = ReadTypes(snapshot)
        self._rows: list[int] = []
        self._unlike: dict[str, tuple[str, bool]] = {}
        self._warnings: dict[str, str] = {}

    def parts(self) -> Iterator[InputPart]:
        """Yield the rows of the splits."""
        for number, split in enumerate(self._splits):
            rows, place, checked = 0, SourcePartition(split.source), False
            for part in read(split, self._names, self._max_message_bytes, self._full, self._bound):
                rows += part.count
                if not checked and split.kind == "parquet" and not isinstance(part, DeadLetterBatch):
                    checked = True  # the columns are the same in the whole file
                    origins = {name: source.column for name, source in self._bound.items()}
                    self._unlike |= self._types.unlike(part.columns, self._snapshot.reads, origins)
                    self._look_for_casts(split)
                    self._look_for_missing(split, part.columns)
                    types = dict(zip(part.columns.schema.names, part.columns.schema.types, strict=True))
                    unlike = unlike_constants(self._snapshot.segments, types)
                    self._warnings |= {sentence: sentence for sentence in unlike}
                yield InputPart(number, place, part)
            self._rows.append(rows)

    def report(self) -> dict[str, Any]:
        """Return the rows of each split, and the warnings about columns."""
        return {"rows": self._rows, "unlike": self._unlike, "warnings": self._warnings}

    def _look_for_casts(self, split: Split) -> None:
        """Record the columns whose casts a Parquet file does not allow."""
        if any(source.cast is not None for source in self._bound.values()):
            with suppress(pa.ArrowException, OSError):  # the file is gone by now
                sentences = not_cast(_schema_of(split), self._bound)
                reads = self._snapshot.reads
                self._unlike |= {name: (text, False) for name, text in sentences.items() if name in reads}

    def _look_for_missing(self, split: Split, columns: pa.RecordBatch) -> None:
        """Record the columns that selectors read and a Parquet file lacks, one warning per set of columns."""
        existing = {name for name, _ in leaves(columns.schema)}.union(columns.schema.names)
        missing = missing_columns(self._snapshot.reads, existing)
        key = ", ".join(["missing", *missing])
        if missing and key not in self._warnings:
            with suppress(pa.ArrowException, OSError):  # the file is gone by now
                present = [name for name, _ in leaves(_schema_of(split))]
                self._warnings[key] = str(MissingColumnError(missing, present, split.source))


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
        self._reader = KafkaReader(
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
                    yield InputPart(
                        self._numbers.get(place, 0), shown, part, partial(original_record, records)
                    )

    def report(self) -> dict[str, Any]:
        """Return the warnings about columns, and the ranges of the records read."""
        came = [[*place, *rows] for place, rows in self._came.items()]
        return {"unlike": self._reader.unlike, "came": came}


def _schema_of(split: Split) -> pa.Schema:
    with opened_by_arrow(split) as file:
        return pq.read_schema(file)


def original_record(records: Records, dead: DeadLetterBatch) -> pa.RecordBatch:
    """Return the original records of dead letters, in the columns of `RAW`: of one that is too large the
    beginning of value and key, and no headers.
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
