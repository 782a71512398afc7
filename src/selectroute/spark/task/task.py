"""Work of one Spark task: read a share of a batch, match it, write it, report.

`run` is the task. Files, Kafka records and rows of a DataFrame differ in their `Reader`, which is with their
source. Rows can be read only once in a task: their source calls `run_once`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.kafka.errors import BrokerUnreachableError, FencedError
from selectroute.kafka.schemas.registry import SchemaUnavailableError
from selectroute.match.columns.columns import ColumnTypeError
from selectroute.match.match import Matches
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
from selectroute.spark.messages import DeadLetterBatch, InputBatch, MessageBatch, SourcePartition
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.task.connections import connected, disconnect, opened
from selectroute.spark.task.replay_filter import DeliveryFilter, LetterFilter, ReplayFilter, within
from selectroute.spark.task.writer import Sinks
from selectroute.storage import Location
from selectroute.storage.patient import WAITED_FOR
from selectroute.store.errors import OvertakenError, StoreError, UnavailableError

if TYPE_CHECKING:  # needs the extras `kafka` and `service`
    pass


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
    read: InputBatch
    original: Callable[[DeadLetterBatch], pa.RecordBatch] | None = None


class Reader(Protocol):
    """Reader of the input of one task."""

    def parts(self) -> Iterator[InputPart]:
        """Yield the whole input, in order."""

    def report(self) -> dict[str, Any]:
        """Return the report, after the last part."""


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
    except (BrokerUnreachableError, FencedError, SchemaUnavailableError, StoreError, *WAITED_FOR) as error:
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
    replayed, revision = settings.replay_list, settings.snapshot.revision
    letters = None if replayed is None else ReplayFilter(Location.of(replayed), snapshot)
    sinks = Sinks(
        settings.files, snapshot.ids, revision, settings.unrouted, outgoing, settings.counts_busiest
    )
    try:
        # Letters of messages and of deliveries are read one after the other, each by ascending offsets.
        for nth in (0,) if letters is None else letters.passes:
            reader = reader_of(snapshot, settings, bool(outgoing))
            for part in reader.parts():
                for kind in outgoing:
                    kind.part = (nth << _PART_BITS) + part.number
                inputs = [(part.read, None)] if letters is None else letters.of(nth, part.place, part.read)
                for unjudged, limit in inputs:
                    for judged in judge(snapshot, unjudged):
                        write(sinks, part, judged, limit)
        files = sinks.close()
    except BaseException:
        # Where files stay in place, each attempt would leave some in the table's folder.
        sinks.discard()
        raise
    return {
        "counts": asdict(sinks.counts),
        "files": files,
        "busiest": sinks.busiest(),
        "outgoing": {kind.kind: kind.report() for kind in outgoing},
        **reader.report(),
    }


def outgoing_of(
    snapshot: Snapshot, settings: TaskSettings, task: int, held: Collection[str] = ()
) -> list[Outgoing]:
    """Return the outgoing deliveries of a task, for each kind of destination in use."""
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
        # Before queues: records are committed before the progress says that only full queues are left.
        outgoing.insert(0, Outgoing(records, to, writer))
    return outgoing


def held_up(outgoing: Sequence[Outgoing]) -> dict[str, Any] | None:
    """Return the report of a task of which only deliveries to full queues are left; None for any other."""
    for of_kind in outgoing:
        if isinstance(of_kind.writer, QueueWriter) and of_kind.writer.is_held_up():
            return {"outgoing": {of_kind.kind: of_kind.report()}}
    return None


def judge(snapshot: Snapshot, part: InputBatch) -> Iterator[tuple[MessageBatch, Matches] | DeadLetterBatch]:
    """Match messages. They become dead letters if a column of the frame has an invalid type."""
    if isinstance(part, DeadLetterBatch):
        yield part
        return
    try:
        yield part, snapshot.match(part.columns, missing="ignore", unlike="ignore")
    except ColumnTypeError as error:
        yield DeadLetterBatch("judge", "column-type", str(error), part.rows)


def write(
    sinks: Sinks,
    part: InputPart,
    judged: tuple[MessageBatch, Matches] | DeadLetterBatch,
    limit: LetterFilter | None,
) -> None:
    """Write judged messages or dead letters of a part to the sinks, within the filter of a replay."""
    if not isinstance(judged, DeadLetterBatch):
        messages, matches = judged
        if limit is not None:
            matches = within(limit, messages, matches)
        sinks.deliver(part.place, messages, matches, listed=not isinstance(limit, DeliveryFilter))
    elif isinstance(limit, DeliveryFilter):
        assert judged.rows is not None
        rows, ordinals = limit.of(judged.rows)
        sinks.deny(part.place, judged, replace(judged, rows=rows), ordinals)
    else:
        sinks.bury(part.place, judged, None if part.original is None else part.original(judged))
