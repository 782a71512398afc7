"""Router: takes one batch of the fan-out from its inputs to published output.

Five steps; a crash between any two of them changes nothing in the outcome::

    committed already? ─no→ pin the revision ─→ plan what is read ─→ match and write, staged ─→ commit ─→
    hand on, publish
                       └yes→ hand on and publish what is not yet; skip

What follows the commit may be done while the next batch is routed: it reads nothing but the commit and what
is staged.

A side batch comes beside the stream: a backfill (see ``backfill``) or a replay (see ``replay``). It takes the
same steps from the plan on.
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
    publish; the last one with what it waited for the batch before).

    ``inputs`` are files, or records of Kafka.
    ``skipped``: it had been committed before, and nothing was done; the counts are those of the commit.
    ``kind``: ``stream``, or ``backfill`` or ``replay``, whose numbers are below 0.
    ``missing``: of these: what can't be read again, a sentence each.
    ``topics``: how many messages came of each topic of Kafka.
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
    """Settings of a batch beside the stream: a backfill or a replay.

    Attributes:
        kind: what it is.
        prepare: makes what it needs in its staging folder; returns the snapshot that judges.
        record: what its commit says of it.
        unrouted: what becomes of messages that nobody wants.
        recalled: name of the list in its staging folder of what alone is judged, if there is one.
    """

    kind: str
    prepare: Callable[[Path], SnapshotRef]
    record: dict[str, Any]
    unrouted: Unrouted
    replay_list: str | None = None


class Router:
    """Router of one job, a batch after another. Knows of no stream: the caller numbers the batches.

    Args:
        job: the job.
        source: where its messages come from.
        queues, kafka: the senders, where the job has such destinations.
        destinations: the kinds for which messages are staged beside the output folder; with none of them,
            nothing is sent, nor asked what queues and topics would take.
        wait_until_sent: waits until every committed batch is sent and published, where the caller does that
            in the background; see `commit`.
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
        """Warn of destinations of the newest snapshot that are not there.

        Raises what opening it raises; StoreError, SourceError: queues or topics are out of reach.
        """
        snapshot = Snapshot.open(self.job.snapshots)
        queues = None if self._queues is None else self._queues.known()
        topics = None if self._kafka is None else self._kafka.known(topics_of(snapshot))
        self._missing.look(snapshot, queues, topics)

    def route(
        self, batch: int, inputs: Sequence[Any], query: str, frame: DataFrame | None = None
    ) -> BatchReport:
        """Route one batch, whole, and return what it did. As `commit`."""
        return self.commit(batch, inputs, query, frame)()

    def commit(
        self, batch: int, inputs: Sequence[Any], query: str, frame: DataFrame | None = None
    ) -> Callable[[], BatchReport]:
        """Route one batch as far as its commit; a batch that was committed before is skipped.

        Returns what hands it on, publishes it and says what it did. That is to be called once, and for one
        batch after the other; until then it is the next start that would do it.

        Args:
            batch: its number. The same number must always come with the same inputs.
            inputs: what it takes in, as `Source.planned` has it.
            query: whose lease in the snapshot folder holds the revision.
            frame: the batch as Spark's stream has it.

        Raises:
            PinError, SnapshotError: the revision can't be had.
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
        """Route a pinned batch beside the stream, whole: from the plan to the accounting.

        Raises:
            SnapshotError, CommitError: as `route`.
            JobError: the job's queues have got messages of this batch.
        """
        self.wait_until_sent()
        return self._commit(pinned, batch_input, clock, query, side_batch)()

    def _warn_of(self, unlike: Mapping[str, tuple[str, bool]], snapshot: SnapshotRef) -> None:
        for name, (sentence, binary) in unlike.items():
            key = sentence.partition(": ")[0]  # how many values there were differs from batch to batch
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
        # A replay mostly comes when something was mended: it looks anew.
        opened = open_once(snapshot)
        topics = (
            None if self._kafka is None else self._kafka.topics(topics_of(opened), side_batch is not None)
        )
        if self._destinations:
            self._missing.look(opened, queues, topics)
        work = TaskSettings(
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
        counts, written, found, of_topics, unlike, warnings = batch_input.route(batch, work)
        self._warn_of(unlike, snapshot)
        for key, sentence in warnings.items():
            self._warn_once(key, sentence)
        clock.lap("match")
        if unwanted := counts.policies.get(FAIL):
            raise CommitError(
                f"batch {batch} has {counted(unwanted, 'message')} that nobody wants; "
                "nothing of it was published"
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
                kind: self._senders[kind].outgoing(query, counts.handed_on(kind)) | {"files": staged}
                for kind, staged in outgoing.items()
            }
        if side_batch is not None:
            commit[side_batch.kind] = side_batch.record
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
                f"{self.job.checkpoint} is older than the output folder {self.job.output}; put the newest "
                "one back, or choose a new output folder"
            )


class Clock:
    """Seconds since the last lap, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 4)
        self._last = now
