"""Router of batches, from the inputs to the published output.

Five steps; after a crash between any two of them the next start gives the same output (to Kafka, a record may
be sent twice)::

    committed already? ─no→ pin the revision ─→ prepare ─→ match and stage ─→ commit ─→ send, publish
                       └yes→ finish sending and publishing; skip

The last step may run while the next batch is routed: it reads only the commit and the staged files.

A side batch, a backfill (see ``backfill``) or a replay (see ``replay``), takes the same steps from the plan
on, between two batches of the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.selector.explain.sentences import counted
from selectroute.spark.batch.commits import Commits, kind_of
from selectroute.spark.batch.pins import Pin, pin, reference
from selectroute.spark.columns.column_types import unlike_sentence
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once
from selectroute.spark.inputs.source import BatchInput, Source
from selectroute.spark.job.job import CommitError, Job
from selectroute.spark.job.unrouted import FAIL, Unrouted
from selectroute.spark.senders.kafka import KafkaSender, topics_of
from selectroute.spark.senders.missing import MissingDestinations
from selectroute.spark.senders.queues import QueueSender
from selectroute.spark.sinks.counts import Counts
from selectroute.spark.worker.task import TaskSettings


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Report of a batch: its revision, its counts, and the seconds of each step (pin, plan, match, commit,
    publish; the last one includes the wait for the previous batch).

    ``inputs``: number of files, or of Kafka records.
    ``skipped``: the batch was committed before, and not routed again; the counts are those of the commit.
    ``kind``: ``stream``, or ``backfill`` or ``replay``, with numbers below 0.
    ``missing``: of a backfill or replay, a sentence for each input that can't be read again.
    ``topics``: number of messages of each Kafka topic.
    """

    batch: int
    revision: int
    inputs: int
    counts: Counts
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: bool = False
    missing: tuple[str, ...] = ()
    topics: dict[str, int] = field(default_factory=dict)
    kind: str = "stream"


@dataclass(frozen=True, slots=True)
class SideBatch:
    """Settings of a side batch: a backfill or a replay.

    Attributes:
        prepare: prepares the staging folder; returns the snapshot to match with.
        record: the side batch's record in its commit.
        unrouted: the policy for unrouted messages.
        replay_list: file name in the staging folder of the list of letters to judge, of a replay only.
    """

    prepare: Callable[[Path], SnapshotRef]
    record: dict[str, Any]
    unrouted: Unrouted
    replay_list: str | None = None


class Router:
    """Router of one job, one batch after another. Independent of the stream: the caller numbers the batches.

    Args:
        job: the job.
        source: the source of its messages.
        queues, kafka: the senders, if the job has such destinations.
        destinations: the kinds of destinations to stage messages for; with none, nothing is sent, and queues
            and topics are not looked up.
        wait_until_sent: waits until every committed batch is sent and published, if the caller does so in the
            background; see `commit`.
        warn: called with a sentence, once, for each column of the messages whose type no property has.
    """

    def __init__(
        self,
        job: Job,
        source: Source,
        queues: QueueSender | None = None,
        kafka: KafkaSender | None = None,
        *,
        destinations: Sequence[str] = (QUEUE, KAFKA),
        wait_until_sent: Callable[[], object] = lambda: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.job = job
        self.source = source
        self.wait_until_sent = wait_until_sent
        self._warn = warn
        self._warned: set[str] = set()
        self._senders: dict[str, QueueSender | KafkaSender] = {}
        if queues is not None:
            self._senders[QUEUE] = queues
        if kafka is not None:
            self._senders[KAFKA] = kafka
        self.commits = Commits(job.output, self._senders)
        self._queues = queues
        self._kafka = kafka
        self._destinations = tuple(destinations)
        self._missing = MissingDestinations(job.output, warn)

    def look(self) -> None:
        """Warn of destinations of the newest snapshot that do not exist.

        Raises SnapshotError, or StoreError or SourceError if queues or topics can't be looked up.
        """
        snapshot = Snapshot.open(self.job.snapshots)
        queues = None if self._queues is None else self._queues.known()
        topics = None if self._kafka is None else self._kafka.known(topics_of(snapshot))
        self._missing.look(snapshot, queues, topics)

    def route(
        self, batch: int, inputs: Sequence[Any], query: str, frame: DataFrame | None = None
    ) -> BatchReport:
        """Route one batch completely, and return its report. Arguments and errors are those of `commit`."""
        return self.commit(batch, inputs, query, frame)()

    def commit(
        self, batch: int, inputs: Sequence[Any], query: str, frame: DataFrame | None = None
    ) -> Callable[[], BatchReport]:
        """Route one batch up to its commit; skip a batch that was committed before.

        Return a function that sends and publishes the batch and returns its report. Call it once, for one
        batch after the other; otherwise the next start does it.

        Args:
            batch: the number of the batch. The same number must always have the same inputs.
            inputs: the batch's inputs, from `Source.planned`.
            query: id of the query, whose lease in the snapshot folder keeps the revision.
            frame: the batch's frame from Spark's stream.

        Raises:
            PinError, SnapshotError: the revision is not usable.
            CommitError: messages are unaccounted for, or the batch was committed with other inputs.
        """
        clock = Clock()
        batch_input = self.source.batch_input(inputs, frame)
        committed = self.commits.read(batch)
        if committed is not None:
            self._check_same(committed, batch_input.record())
            return partial(self._skip, committed)
        pinned = pin(batch, self.job.output / "pins", self.job.snapshots, query)
        clock.lap("pin")
        return self._commit(pinned, batch_input, clock, query)

    def write(
        self, pinned: Pin, batch_input: BatchInput, clock: Clock, query: str, side_batch: SideBatch
    ) -> BatchReport:
        """Route a pinned side batch completely: from the plan to the accounting.

        Raises:
            SnapshotError, CommitError: as `route`.
            JobError: the job's queues already have messages of this batch.
        """
        self.wait_until_sent()
        return self._commit(pinned, batch_input, clock, query, side_batch)()

    def _warn_of(self, unlike: Mapping[str, tuple[str, bool]], snapshot: SnapshotRef) -> None:
        for name, (sentence, binary) in unlike.items():
            key = sentence.partition(": ")[0]  # the number of values differs from batch to batch
            self._warn_once(key, unlike_sentence(sentence, open_once(snapshot), name, binary))

    def _warn_once(self, key: str, sentence: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            self._warn(sentence)

    def _commit(
        self,
        pinned: Pin,
        batch_input: BatchInput,
        clock: Clock,
        query: str,
        side_batch: SideBatch | None = None,
    ) -> Callable[[], BatchReport]:
        batch = pinned.batch
        inputs = batch_input.record()
        staging = self.commits.stage(batch)
        snapshot = (
            reference(pinned, self.job.snapshots) if side_batch is None else side_batch.prepare(staging)
        )
        clock.lap("plan")
        queues = None if self._queues is None else self._queues.begin(query, batch)
        # A replay often follows a repair, so missing topics are looked up again.
        opened = open_once(snapshot)
        topics = (
            None if self._kafka is None else self._kafka.topics(topics_of(opened), side_batch is not None)
        )
        if self._destinations:
            self._missing.look(opened, queues, topics)
        settings = TaskSettings(
            snapshot,
            str(staging / "attempts"),
            self.job.policy if side_batch is None else side_batch.unrouted,
            self.job.max_message_bytes,
            queues,
            topics,
            None
            if side_batch is None or side_batch.replay_list is None
            else str(staging / side_batch.replay_list),
            self._destinations,
        )
        counts, written, found, of_topics, unlike, warnings = batch_input.route(batch, settings)
        self._warn_of(unlike, snapshot)
        for key, sentence in warnings.items():
            self._warn_once(key, sentence)
        clock.lap("match")
        if unwanted := counts.policies.get(FAIL):
            raise CommitError(
                f"batch {batch} has {counted(unwanted, 'unrouted message')}, and the policy is to fail; "
                "it was not published"
            )
        files, outgoing = self.commits.collect(batch, staging, written)
        commit = {
            "batch": batch,
            "revision": pinned.revision,
            "digest": pinned.digest,
            "staging": staging.name,
            "inputs": inputs | found,
            "counts": asdict(counts),
            "files": files,
            "committed": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if outgoing:
            commit["outgoing"] = {
                kind: self._senders[kind].outgoing(query, counts.sent_to(kind)) | {"files": staged}
                for kind, staged in outgoing.items()
            }
        if side_batch is not None:
            commit[pinned.kind] = side_batch.record
        self.commits.commit(commit)
        clock.lap("commit")
        return partial(self._publish, commit, clock, dict(of_topics))

    def _publish(self, commit: dict[str, Any], clock: Clock, topics: dict[str, int]) -> BatchReport:
        self.commits.publish(commit)
        clock.lap("publish")
        return replace(self._report(commit), seconds=clock.seconds, topics=topics, kind=kind_of(commit))

    def _skip(self, committed: dict[str, Any]) -> BatchReport:
        self.commits.publish(committed)
        return replace(self._report(committed), skipped=True)

    def _report(self, commit: dict[str, Any]) -> BatchReport:
        counts = Counts(**self.commits.counts(commit))
        return BatchReport(commit["batch"], commit["revision"], commit["inputs"]["count"], counts)

    def _check_same(self, committed: dict[str, Any], inputs: dict[str, Any]) -> None:
        if any(committed["inputs"][name] != inputs[name] for name in ("count", "sha256")):
            raise CommitError(
                f"batch {committed['batch']} was committed with other inputs: the checkpoint "
                f"{self.job.checkpoint} is older than the output folder {self.job.output}; restore the "
                "newest one, or choose a new output folder"
            )


class Clock:
    """Stopwatch: seconds of each step, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a step, and begin the next."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 4)
        self._last = now
