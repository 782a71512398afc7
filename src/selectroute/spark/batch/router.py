"""Router of batches, from the inputs to the published output.

Five steps; after a crash between any two of them the next start gives the same output::

    committed already? ─no→ pin revision and plan ─→ prepare ─→ match, put, send ─→ commit ─→ publish
                       └yes→ skip

    crash after …    the next start …
    Spark's offsets  repeats the batch, with the newest revision
    pin              repeats it with this revision, see `pins.pin`
    plan             repeats it in the same tasks, which put and send what is missing, see ``destinations``
    commit           publishes it, see `Commits.prepare`; the repeat is skipped

The tasks put to queues and send to Kafka themselves, in transactions that also record this (see
``destinations``).

A side batch, a backfill (see ``backfill``) or a replay (see ``replay``), takes the same steps from the plan
on, between two batches of the stream.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.missing import unlike_sentence
from selectroute.selector.sentences import counted
from selectroute.spark.batch.attempts import Attempts
from selectroute.spark.batch.commits import Commits, kind_of
from selectroute.spark.batch.pins import (
    NewestRevision,
    Pin,
    Plan,
    decisions_of,
    digests_of,
    pin,
    reference,
    remove_plan,
    write_plan,
    written_plan,
)
from selectroute.spark.columns.snapshot_ref import SnapshotRef, open_once
from selectroute.spark.destinations.destination import MissingDestinations, names_of
from selectroute.spark.destinations.kafka.topics import KafkaTopics
from selectroute.spark.destinations.queues.queues import JobQueues
from selectroute.spark.job import FAIL, CommitError, Job, Unrouted
from selectroute.spark.sources.source import BatchInput, Outcome, Source
from selectroute.spark.tables.open_tables import tables_of
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.tables.schemas import Counts
from selectroute.spark.task.task import TaskSettings
from selectroute.storage import Location

_THREADS: Final = 4
_MOST_REMOVALS: Final = 100
"""Removals that may be outstanding before one is waited for, so that memory stays bounded."""


class Ahead:
    """Writes that go on while a batch is matched, of one batch at a time, and removals of the batches before.

    Each write waits for a disk, or for a round trip to remote storage. The plan and the pin of a batch are
    only needed if the batch is put, sent or committed: until then its tasks can read and match. What a batch
    leaves behind, such as its plan once it is committed, is removed while the next ones are made, and nothing
    waits for that.
    """

    def __init__(self) -> None:
        self._writers: ThreadPoolExecutor | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._writes: list[Future[None]] = []
        self._removals: deque[Future[None]] = deque()

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write."""
        if self._writers is None:
            self._writers = ThreadPoolExecutor(_THREADS, "selectroute-ahead")
        self._writes.append(self._writers.submit(write))

    def remove(self, removal: Callable[[], None]) -> None:
        """Begin a removal, after those that were begun before."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, "selectroute-remover")
        self._removals.append(self._remover.submit(removal))

    def wait(self) -> None:
        """Wait until all writes are done. Raises the error of the first that failed, or else that of a
        removal which is done.
        """
        writes, self._writes = self._writes, []
        errors = [error for future in writes if (error := future.exception()) is not None]
        while self._removals and (self._removals[0].done() or len(self._removals) > _MOST_REMOVALS):
            error = self._removals.popleft().exception()
            errors += [] if error is None else [error]
        if errors:
            raise errors[0]

    def forget(self) -> None:
        """Wait for the writes of a batch that failed and for all removals, without their errors."""
        futures = [*self._writes, *self._removals]
        self._writes = []
        self._removals.clear()
        for future in futures:
            future.exception()


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Report of a batch: its revision, its counts, and the seconds of each step (pin, plan, match, commit,
    publish; the last one includes the wait for the previous batch).

    ``inputs``: number of files, of Kafka records, or of the sources of a DataFrame.
    ``skipped``: the batch was committed before, and not routed again; the counts are those of the commit.
    ``kind``: ``stream``, or ``backfill`` or ``replay``, with numbers below 0.
    ``missing``: of a backfill or replay, a sentence for each input that can't be read again.
    ``topics``: number of messages of each Kafka topic.
    ``busiest``: number of deliveries of the subscriptions that had most, if the router counts them.
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
    busiest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of a batch, which differ between the stream, a backfill and a replay.

    Attributes:
        prepare: prepares the staging folder; returns the snapshot to match with.
        unrouted: the policy for unrouted messages.
        record: the record of a side batch in its commit.
        replay_list: file name in the staging folder of the list of letters to judge, of a replay only.
    """

    prepare: Callable[[Location], SnapshotRef]
    unrouted: Unrouted
    record: dict[str, Any] | None = None
    replay_list: str | None = None


class Router:
    """Router of one job, one batch after another. Independent of the stream: the caller numbers the batches.

    Args:
        job: the job.
        source: the source of its messages.
        queues, kafka: the queues and topics, if the job has such destinations.
        destinations: the kinds of destinations to deliver to; with none, nothing is sent, and queues and
            topics are not looked up.
        warn: called with a sentence, once, for each column of the messages whose type no property has, and
            when something holds the stream back.
        outage: called with a sentence each time that a task meets remote storage that does not answer.
        pause: waits some time when something holds the stream back; returns whether the job is to stop.
        check_owner: raises an error if another process has taken over the output folder.
        id: the id of the job in its tables, in the place of that in the output folder.
        counts_busiest: whether reports name the subscriptions with most deliveries.
    """

    def __init__(
        self,
        job: Job,
        source: Source,
        queues: JobQueues | None = None,
        kafka: KafkaTopics | None = None,
        *,
        destinations: Sequence[str] = (QUEUE, KAFKA),
        warn: Callable[[str], None] = lambda _: None,
        outage: Callable[[str], None] = lambda _: None,
        pause: Callable[[], bool] = lambda: True,
        check_owner: Callable[[], None] = lambda: None,
        id: str | None = None,
        counts_busiest: bool = False,
    ) -> None:
        self.job = job
        self.source = source
        self._warn = warn
        self._warned: set[str] = set()
        self._check_owner = check_owner
        self.ahead = Ahead()
        self._newest = NewestRevision(job.snapshots)
        self._attempts = Attempts(queues, kafka, warn, pause, outage)
        self.commits = Commits(job.output, tables_of(job, id))
        self._queues = queues
        self._kafka = kafka
        self._destinations = tuple(destinations)
        self._counts_busiest = counts_busiest
        self._missing = MissingDestinations(job.output, warn)

    def look(self) -> None:
        """Warn of destinations of the newest snapshot that do not exist.

        Raises SnapshotError, or StoreError or SourceError if queues or topics can't be looked up.
        """
        snapshot = Snapshot.open(self.job.snapshots)
        queues = None if self._queues is None else self._queues.known()
        topics = None if self._kafka is None else self._kafka.known(names_of(snapshot, KAFKA))
        self._missing.look(snapshot, queues, topics)

    def route(self, batch: int, inputs: Sequence[Any], query: str) -> BatchReport:
        """Route one batch completely, and return its report; finish a batch that was committed before.

        Args:
            batch: the number of the batch. The same number must always have the same inputs.
            inputs: the batch's inputs, from `Source.planned`.
            query: id of the query, whose lease in the snapshot folder keeps the revision.

        Raises:
            PinError, SnapshotError: the revision is not usable.
            CommitError: messages are unaccounted for, or the batch was committed with other inputs.
        """
        clock = Clock()
        batch_input = self.source.batch_input(inputs)
        committed = self.commits.read(batch)
        if committed is not None:
            self._check_same(committed, batch_input.record())
            return self._skip(committed)
        pinned = pin(batch, self._pins, self.job.snapshots, query, self._newest.get, self.ahead.start)
        clock.lap("pin")
        settings = BatchSettings(lambda _: reference(pinned, self.job.snapshots), self.job.policy)
        return self.write(pinned, batch_input, clock, query, settings)

    def newest_revision(self) -> int:
        """Return the newest published revision that is known; later batches have it or a newer one. Raises
        SnapshotError.
        """
        return self._newest.number()

    def newest_snapshot(self) -> SnapshotRef:
        """Return the reference to the newest published snapshot. Raises SnapshotError."""
        return SnapshotRef(str(self.job.snapshots), *self._newest.get())

    def close(self) -> None:
        """Wait until the last batch is published, and end the threads. Raises as `Commits.publish`."""
        self._newest.close()
        self.ahead.forget()
        self.commits.finish()
        self.commits.write_accounting()

    def _wait_ahead(self, batch: int) -> None:
        """Wait until plan and pin of a batch are written. Raises OtherJobError, CommitError."""
        try:
            self.ahead.wait()
        except FileExistsError as error:
            self._check_owner()
            raise self._taken(batch) from error

    def _taken(self, batch: int) -> CommitError:
        return CommitError(
            f"batch {batch} was begun by another process: start the job again, which goes on from there"
        )

    @property
    def _pins(self) -> Location:
        return self.job.output / "pins"

    def _warn_of(self, unlike: Mapping[str, tuple[str, bool]], snapshot: SnapshotRef) -> None:
        for name, (sentence, binary) in unlike.items():
            key = sentence.partition(": ")[0]  # the number of values differs from batch to batch
            readers = open_once(snapshot).readers(name, byte_strings=not binary)
            self._warn_once(key, unlike_sentence(sentence, readers))

    def _warn_once(self, key: str, sentence: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            self._warn(sentence)

    def write(
        self, pinned: Pin, batch_input: BatchInput, clock: Clock, query: str, batch_settings: BatchSettings
    ) -> BatchReport:
        """Route a pinned batch completely: from the plan to the accounting.

        Raises:
            SnapshotError, CommitError: as `route`.
            JobError: the job's queues already have messages of this batch.
        """
        batch = pinned.batch
        staging = self.commits.stage(batch)
        snapshot = batch_settings.prepare(staging)
        opened = open_once(snapshot)
        replay_list = batch_settings.replay_list
        settings = TaskSettings(
            snapshot,
            self.commits.tables.files_of(batch, staging),
            batch_settings.unrouted,
            self.job.max_message_bytes,
            replay_list=None if replay_list is None else str(staging / replay_list),
            destinations=self._destinations,
            counts_busiest=self._counts_busiest,
        )
        queues = frozenset[str]() if self._queues is None else names_of(opened, QUEUE)
        topics = frozenset[str]() if self._kafka is None else names_of(opened, KAFKA)
        if queues or topics:
            if batch_settings.unrouted.may_fail:
                # What is put or sent cannot be taken back: the batch is judged once before.
                trial = OutputFiles.staged(str(staging / "attempts"))
                to_judge = replace(settings, destinations=(), files=trial, counts_busiest=False)
                self._check_policy(batch, batch_input.route(batch, to_judge, self._attempts))
            plan = self._plan(pinned, batch_input, query, queues, topics)
            batch_input = batch_input.by(plan.input)
            self._wait_ahead(batch)
            settings = self._with_targets(settings, query, plan, bool(queues), bool(topics))
            settings = replace(
                settings,
                schema_decisions=str(decisions_of(self._pins, batch)),
                row_digests=str(digests_of(self._pins, batch)),
            )
        if self._destinations:
            self._missing.look(
                opened,
                None if self._queues is None else settings.queues.lengths if settings.queues else {},
                None if settings.kafka is None else settings.kafka.topics,
            )
        inputs = batch_input.record()
        clock.lap("plan")
        outcome = batch_input.route(batch, settings, self._attempts)
        self._warn_of(outcome.unlike, snapshot)
        for key, sentence in outcome.warnings.items():
            self._warn_once(key, sentence)
        clock.lap("match")
        self._check_policy(batch, outcome)
        counts = outcome.counts
        files = self.commits.tables.collect(batch, staging, outcome.files)
        commit = {
            "batch": batch,
            "revision": pinned.revision,
            "digest": pinned.digest,
            "staging": staging.name,
            "inputs": {**inputs, **outcome.additions},
            "counts": asdict(counts),
            "files": files,
            "committed": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if batch_settings.record is not None:
            commit[pinned.kind] = batch_settings.record
        self._wait_ahead(batch)
        self._check_owner()
        try:
            self.commits.commit(commit)
        except FileExistsError as error:
            self._check_owner()
            raise self._taken(batch) from error
        clock.lap("commit")
        self.commits.publish(commit)
        self.ahead.remove(partial(remove_plan, self._pins, batch))
        clock.lap("publish")
        return replace(
            self._report(commit),
            seconds=clock.seconds,
            topics=dict(outcome.topics),
            kind=kind_of(commit),
            busiest=dict(outcome.busiest),
        )

    def _with_targets(
        self, settings: TaskSettings, query: str, plan: Plan, has_queues: bool, has_topics: bool
    ) -> TaskSettings:
        """Return the settings with the destinations of the plan."""
        if self._queues is not None and has_queues:
            of_queues = self._queues.target(query, plan.batch, plan.queues, plan.sha256)
            settings = replace(settings, queues=of_queues)
        if self._kafka is not None and has_topics:
            of_topics = self._kafka.target(query, plan.batch, plan.topics, plan.sha256)
            settings = replace(settings, kafka=of_topics)
        return settings

    def _plan(
        self,
        pinned: Pin,
        batch_input: BatchInput,
        query: str,
        queues: frozenset[str],
        topics: frozenset[str],
    ) -> Plan:
        """Return the plan of a batch: the one that it has begun with, or a new one, which is written. Wait
        until that is done before anything is put or sent.

        Raises:
            CommitError: the batch was put or sent in part, and its input has changed since.
            JobError: the queues have messages of the batch, or of a later one, and the output folder does not
                know of them.
        """
        batch = pinned.batch
        begun = self._queues.begun(query, batch) if self._queues is not None and queues else set()
        plan = written_plan(self._pins, pinned)
        if self._queues is not None and begun - (set() if plan is None else {plan.sha256}):
            raise self._queues.older(batch)
        if plan is not None and not batch_input.follows(plan.input):
            if begun or (self._kafka is not None and self._kafka.has_tokens(batch)):
                raise CommitError(
                    f"batch {batch} was put to queues or sent to Kafka in part, and its input has changed "
                    f"since: {batch_input.remedy}"
                )
            plan = None
        if plan is not None:
            return plan
        lengths = self._queues.lengths(queues) if self._queues is not None and queues else {}
        # A replay often follows a repair, so missing topics are looked up again.
        is_side = batch < 0
        of_topics = self._kafka.topics(topics, is_side) if self._kafka is not None and topics else {}
        tasks = batch_input.plan(self.source.tasks)
        plan = Plan(batch, pinned.revision, pinned.digest, tasks, of_topics, lengths)
        self.ahead.start(partial(write_plan, self._pins, plan))
        return plan

    def _check_policy(self, batch: int, outcome: Outcome) -> None:
        if unwanted := outcome.counts.policies.get(FAIL):
            raise CommitError(
                f"batch {batch} has {counted(unwanted, 'unrouted message')}, and the policy is to fail; "
                "it was not published"
            )

    def _skip(self, committed: dict[str, Any]) -> BatchReport:
        self.commits.publish(committed)
        remove_plan(self._pins, committed["batch"])
        return replace(self._report(committed), skipped=True)

    def _report(self, commit: dict[str, Any]) -> BatchReport:
        counts = Counts(**commit["counts"])
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
