"""Streaming fan-out: a Structured Streaming query that routes each of its batches exactly once.

Spark numbers the batches and plans their inputs; ``batch/router.py`` routes a batch, and `SideThread` follows
the registry and makes backfills and replays. `sentence` shortens the errors of Spark and the system that end
a query; our own errors are raised unchanged.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from selectroute.index.destination import KAFKA, QUEUE
from selectroute.index.errors import SnapshotNotFoundError
from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import latest_revision
from selectroute.selector.arguments import check_argument, check_path
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.changed_inputs import ChangeWatch
from selectroute.spark.batch.pins import begun_batches
from selectroute.spark.batch.router import BatchReport, Router
from selectroute.spark.columns.binding import BY_NAME, Binding
from selectroute.spark.columns.frame_input import NO_POSITION, FrameInput, Position
from selectroute.spark.destinations.destination import StoppingError, names_of
from selectroute.spark.destinations.kafka.topics import KafkaTopics, check_cluster, check_topics
from selectroute.spark.destinations.queues.queues import JobQueues, check_queues
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import Job
from selectroute.spark.session import quick_checkpoint, wait_for_sources
from selectroute.spark.sources.checkpoint import spark_path
from selectroute.spark.sources.files.source import check_folder
from selectroute.spark.sources.kafka.config import KafkaInput
from selectroute.spark.sources.open_source import source_of
from selectroute.spark.stream.reports import BatchReporter, Ending, Sampler, offsets_behind
from selectroute.spark.stream.side_thread import FairLock, SideThread, admitted
from selectroute.spark.stream.upkeep import ReadyWorkers, TableUpkeep
from selectroute.spark.tables.open_tables import tables_of
from selectroute.spark.working_copy import keep
from selectroute.storage import Location
from selectroute.storage.lease import LEASE_SECONDS
from selectroute.storage.owned import owned
from selectroute.storage.patient import OutageWarning, patient, retried

if TYPE_CHECKING:
    from selectroute.client import SubscriptionRegistry

_FULL = {code: os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT)}
_LOST_WORKER = "Python worker exited unexpectedly"


class StreamError(SelectRouteError):
    """Error of Spark or the system that ended the query, as one sentence."""


def sentence(error: BaseException) -> SelectRouteError:
    """Return our own errors unchanged, and others as one sentence with the cause, without the traceback."""
    if isinstance(error, SelectRouteError):
        return error
    text = str(error)
    full = next((message for message in _FULL.values() if message in text), None)
    if full is not None:
        where = error.filename if isinstance(error, OSError) and error.filename else "of output or checkpoint"
        return StreamError(
            f"the query ended: a disk that the job writes to is full ({full}: {where}); make room, and start "
            "the job again: it continues where it ended"
        )
    if isinstance(error, OSError):
        return StreamError(f"the query ended: {error.strerror or error}: {error.filename or 'no file named'}")
    if _LOST_WORKER in text:
        return StreamError(
            "the query ended: a Python worker of Spark crashed or was killed, maybe for lack of memory; "
            "start the job again: it continues where it ended"
        )
    # An error of a worker arrives as the text of its traceback: the last such line is the error itself.
    raised = re.findall(r"^\s*((?:[\w.]+\.)?\w*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    # An error of the JVM has its cause within a line.
    raised = raised or re.findall(r"([\w.]+(?:Error|Exception)): (.+)$", text, re.MULTILINE)[:1]
    if not raised:
        lines = text.strip().splitlines() or [repr(error)]
        return StreamError(f"the query ended: {lines[0]}")
    name, cause = raised[-1]
    return StreamError(f"the query ended: {cause if name.startswith('selectroute.') else f'{name}: {cause}'}")


_LATE_WORKER = "Python worker failed to connect back"
_RESTARTS = 5
"""Times that the query is started again, without a batch in between, because a Python worker was late."""

_POLL_SECONDS = 0.2
_PAUSE_SECONDS = 0.5


_ANSWER_SECONDS = 20.0
"""Time for which a check before the start asks remote storage that does not answer."""


class FanOut:
    """Fan-out of one job: `start` it, then `wait` for its end, or `stop` it from another thread.

    `start_fanout` creates and starts one.

    Args:
        spark: the session, such as that of `selectroute.spark.local_session`.
        job: `Job.of(input, snapshots, output, …)`.
        on_batch: called with a `BatchReport` after each batch, in another thread.
        registry: the ``selectroute.Registry`` that publishes the snapshots: the first batch of each revision
            is reported to it, and resumed subscriptions get missed messages (see ``replay/backfill.py``). It
            is not closed; close it after `wait`.
        on_warning: called with a sentence, in another thread, when the registry does not answer, or a
            destination that is full or does not answer holds the stream back.
        should_stop: called while a destination holds the stream back, also before `start` returns.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        on_batch: Callable[[BatchReport], None] | None = None,
        registry: SubscriptionRegistry | None = None,
        on_warning: Callable[[str], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        _check_kinds(spark, job)
        self.spark = spark
        self.job = job
        self.query: StreamingQuery | None = None
        self._writer: DataStreamWriter | None = None
        self._restarts = 0
        self._on_batch = on_batch or (lambda _: None)
        self._on_warning = on_warning or (lambda _: None)
        self._registry = registry
        self._side_thread: SideThread | None = None
        self._upkeep: TableUpkeep | None = None
        self._workers: ReadyWorkers | None = None
        self._lock = FairLock()
        self._should_stop = should_stop or (lambda: False)
        self._stopping = threading.Event()
        waiting = self._on_warning, self._pause
        outage = OutageWarning(self._on_warning)
        job = _patient(job, outage, self._pause)
        self._folder = OutputFolder(job, self._fail, self._watched)
        self._watches = False
        self._queues = None if job.queues is None else JobQueues(job.queues, *waiting, job.destination_wait)
        self._kafka = None if job.kafka is None else KafkaTopics(job, *waiting)
        self._source = source_of(spark, job)
        self._router = Router(
            job,
            self._source,
            self._queues,
            self._kafka,
            warn=self._on_warning,
            outage=outage,
            pause=self._pause,
            check_owner=self._folder.check_owner,
            counts_busiest=registry is not None,
        )
        self._changed_inputs = (
            ChangeWatch(self._router.commits, job.input.path, self._on_warning)
            if isinstance(job.input, Location) and job.input.is_local
            else None
        )
        self._failure: BaseException | None = None
        self._closed = False
        self._idle = threading.Event()
        self._idle.set()

    def start(self, available_now: bool = False, trigger_seconds: float = 0.0) -> None:
        """Claim the output folder, finish or remove interrupted batches, and start the query.

        If stopped before that, while a queue is full, start no query; `wait` then returns at once. The
        arguments and errors are those of `start_fanout`.
        """
        try:
            check(self.job, self._registry)
            for path in self._folder.claim():
                self._on_warning(
                    f"{path}, of Spark's checkpoint, was empty: it was removed, and Spark continues"
                )
            self._folder.bind_system(self._source.connect())
            if isinstance(self.job.input, KafkaInput):
                binding, schemas = self.job.input.binding, self.job.input.schemas is not None
                self._folder.note_binding(binding.to_dict() | {"schemas": schemas})
            if self._kafka is not None:
                self._open_tokens(self._kafka)
            self._router.look()
            for text in self._router.commits.prepare():
                self._on_warning(text)
            self._upkeep = TableUpkeep(self._router.commits, self._on_warning)
            self._upkeep.start()
            if not available_now:  # else the first batch has a task for each of them, and the last ends soon
                self._workers = ReadyWorkers(self.spark, self._router)
                self._workers.start()
            writer = (
                self._source.stream(self._folder.checkpoint)
                .writeStream.foreachBatch(self._route)
                .option("checkpointLocation", spark_path(self._folder.checkpoint))
            )
            pause = f"{int(trigger_seconds * 1000)} milliseconds"
            trigger = (
                writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=pause)
            )
            self._side_thread = SideThread(
                self._registry,
                self._router,
                self._lock,
                self._on_batch,
                self._on_warning,
                self._fail,
                BatchReporter(self._state),
                Sampler(self._source, self.job.sample_messages),
            )
            self._writer = trigger
            self._start_query(trigger)
            self._side_thread.start(self._folder.query())
        except BaseException as error:
            with suppress(PySparkException, Py4JError, OSError):  # the JVM is gone
                self.stop()
            self._finish_threads(lambda: True, "ended", at_once=True)
            with suppress(SelectRouteError, OSError):  # the first failure is raised
                self._close()
            if isinstance(error, StoppingError):
                self._failure = error
                return
            if isinstance(error, PySparkException | Py4JError | OSError):
                raise sentence(error) from error
            raise

    def _start_query(self, writer: DataStreamWriter) -> None:
        """Start the query, which goes on where its checkpoint is."""
        with quick_checkpoint(self.spark):
            self.query = writer.start()
            if isinstance(self.job.input, Location):
                wait_for_sources(self.query)
        if self._stopping.is_set():  # before there was a query to stop
            self.query.stop()

    def _ends(self) -> bool:
        """Wait some time for the end of the query; return whether it has ended, or there is none.

        Spark gives a Python worker ten seconds to start, which can't be set. A query that ends because the
        machine was too busy for that, while it planned a batch, is started again.
        """
        if self.query is None or self._writer is None:
            return True
        try:
            return bool(self.query.awaitTermination(_POLL_SECONDS))  # type: ignore[arg-type]
        except PySparkException as error:
            is_late = _LATE_WORKER in str(error) and self._failure is None and not self._stopping.is_set()
            if not is_late or self._restarts == _RESTARTS:
                raise
        if not self._restarts:
            self._on_warning(
                "Spark gave up on a Python worker that had not started within ten seconds, because this "
                "machine is busy: the query is started again"
            )
        self._restarts += 1
        self._folder.repair_checkpoint()
        self._start_query(self._writer)
        return False

    @property
    def waiting(self) -> dict[str, int]:
        """Number of destinations of each kind that refuse now, waited for or not."""
        senders = {QUEUE: self._queues, KAFKA: self._kafka}
        return {kind: 0 if sender is None else sender.waiting.count for kind, sender in senders.items()}

    def _state(self) -> dict[str, Any]:
        """Return the state of the stream for a registry."""
        try:
            progress = None if self.query is None else self.query.lastProgress
        except (PySparkException, Py4JError, OSError):  # the query or the JVM has ended
            progress = None
        sources = [] if progress is None else [*offsets_behind(json.loads(progress.json))]
        behind = sum(sum(messages) for _, messages in sources) if sources else None
        return {"name": self.job.name, "waiting": self.waiting, "behind": behind}

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until the query ends: all input is read, ``should_stop`` returned True, or the query failed.

        Raises:
            SelectRouteError: the failure, in one sentence. The job can be started again.
        """
        ended, failed = False, False
        try:
            while not self._ends():
                if should_stop():
                    self.stop(None)  # after the running batch, which would otherwise fail and be repeated
                elif self._changed_inputs is not None:
                    self._changed_inputs.look()
            if self._changed_inputs is not None:
                self._changed_inputs.look(at_once=True)
            ended = True
        except (PySparkException, Py4JError, OSError) as error:  # the last two: the JVM is gone
            if not isinstance(self._failure, StoppingError):
                failed = True
                raise sentence(self._failure or error) from error
        finally:
            if not ended:
                self._stopping.set()
            failed = failed or not isinstance(self._failure, StoppingError | None)
            ending: Ending = "failed" if failed else "stopped" if self._stopping.is_set() else "ended"
            at_once = not ended or self._stopping.is_set()
            self._finish_threads(should_stop if ended else lambda: True, ending, at_once=at_once)
            try:
                self._close()
            except SelectRouteError as error:
                self._failure = self._failure or error
        if self._failure is not None and not isinstance(self._failure, StoppingError):
            raise sentence(self._failure) from self._failure

    def stop(self, timeout_seconds: float | None = 60.0) -> None:
        """End the query between two batches: the running one is finished within the timeout; None is no
        limit.
        """
        self._stopping.set()
        if self._side_thread is not None:
            self._side_thread.hurry()
        self._idle.wait(timeout_seconds)
        if self.query is not None:
            self.query.stop()

    def _route(self, frame: DataFrame, batch: int) -> None:
        self._idle.clear()
        try:
            with _interruptible(), self._lock.held():
                if self._stopping.is_set():
                    raise StoppingError(f"the job stopped before batch {batch}")
                query = self._folder.bind()
                inputs = self._source.planned(self._folder.checkpoint, batch, frame)
                ahead = self._router.ahead
                ahead.start(partial(keep, self._folder.job.checkpoint, ahead.remove))
                if self._upkeep is not None:
                    self._upkeep.begin()
                report = self._router.route(batch, inputs, query)
                self._restarts = 0
                self._on_batch(report)
            if self._side_thread is not None:
                self._side_thread.wake(query, report, inputs)
            if self._upkeep is not None:
                self._upkeep.wake()
            if self._workers is not None:
                self._workers.note()
        except BaseException as error:
            # Spark would raise only its text, with a traceback in it.
            self._failure = self._failure or error
            self._router.ahead.forget()
            raise
        finally:
            self._idle.set()

    def _open_tokens(self, kafka: KafkaTopics) -> None:
        """Open the topic of the job's commit tokens, if it is needed. It must exist if a batch may have been
        sent in part.
        """
        folder = self._folder
        commits = self._router.commits
        begun = begun_batches(folder.job.output / "pins")
        is_begun = folder.has_tokens() and not all(map(commits.is_committed, begun))
        kafka.bind(folder, is_begun)
        check_topics(self.job, kafka)
        if is_begun or names_of(Snapshot.open(folder.job.snapshots), KAFKA):
            kafka.open_tokens()

    def _watched(self, holder: str) -> bool:
        """Say that the lease of another process is watched; return whether the job is to stop."""
        if not self._watches:
            self._watches = True
            self._on_warning(
                f"the output folder {self.job.output} was last used by {holder}: waiting for "
                f"{LEASE_SECONDS:.0f} seconds to see whether it still runs"
            )
        return self._stopping.is_set() or self._should_stop()

    def _pause(self) -> bool:
        """Wait for a queue or its database; return whether the job is to stop."""
        return self._stopping.wait(_PAUSE_SECONDS) or self._should_stop()

    def _close(self) -> None:
        """Close the router, then its destinations, and release the folder at last, whichever of them fails:
        another process may wait for it. Idempotent, because the folder may be another's from then on.
        """
        if self._closed:
            return
        self._closed = True
        with ExitStack() as last:
            last.callback(self._folder.release)
            if self._queues is not None:
                last.callback(self._queues.close)
            if self._kafka is not None:
                last.callback(self._kafka.close)
            self._router.close()

    def _finish_threads(self, should_stop: Callable[[], bool], ending: Ending, *, at_once: bool) -> None:
        """Finish the threads beside the query, as far as they were started."""
        if self._side_thread is not None:
            self._side_thread.finish(should_stop, ending)
        if self._upkeep is not None:
            self._upkeep.finish(at_once)
        if self._workers is not None:
            self._workers.finish()

    def _fail(self, error: BaseException) -> None:
        """Stop after a failure in another thread: the job ends as after a failed batch."""
        self._failure = self._failure or error
        with suppress(PySparkException, Py4JError, OSError):  # the JVM is gone, as `wait` finds
            self.stop()


def _check_kinds(spark: object, job: object) -> None:
    check_argument(spark, SparkSession, "spark", "the SparkSession")
    check_argument(job, Job, "job", "a Job: Job.of(input, snapshots, output)")


def _patient(job: Job, outage: OutageWarning, pause: Callable[[], bool]) -> Job:
    """Return the job with folders that are waited for when remote storage does not answer."""
    job = _with_folders(job, lambda folder: patient(folder, outage, pause))
    return replace(job, output=owned(job.output, "_commits", "pins"))


def _with_folders(job: Job, change: Callable[[Location], Location]) -> Job:
    return replace(
        job,
        input=change(job.input) if isinstance(job.input, Location) else job.input,
        snapshots=change(job.snapshots),
        output=change(job.output),
        checkpoint=change(job.checkpoint),
    )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise only Exceptions from a batch. py4j does not report others to Spark: after a SystemExit the query
    would wait endlessly.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise StreamError(f"the batch was interrupted: {error!r}") from error


def check(job: Job, registry: SubscriptionRegistry | None = None) -> None:
    """Check quickly, before Spark is started, that the job's folders exist and are its own.

    With the registry that publishes the snapshots, the error about missing ones names the command to start,
    and the token is checked.

    Raises:
        JobError, SourceError, SnapshotError: one sentence; nothing was changed.
        StoreError: there is no database of queues, or it does not answer.
    """
    check_argument(job, Job, "job", "a Job: Job.of(input, snapshots, output)")
    job = _with_folders(job, lambda folder: retried(folder, _ANSWER_SECONDS))
    if isinstance(job.input, Location):
        check_folder(job.input)
    for folder in (job.output, job.checkpoint, job.snapshots / "leases"):
        folder.check_writable()
    try:
        latest_revision(job.snapshots)
    except SnapshotNotFoundError as error:
        if registry is None:
            raise
        raise SnapshotNotFoundError(
            f"no snapshot is published in {job.snapshots}: start `selectroute serve`, or `selectroute "
            "registry publish --follow`, for this registry first"
        ) from error
    OutputFolder(job).check()
    tables_of(job).check()
    if registry is not None:
        admitted(registry)
    check_queues(job)
    check_cluster(job)


def start_fanout(
    spark: SparkSession | None = None,
    job: Job | None = None,
    *,
    frame: DataFrame | None = None,
    snapshots: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    name: str = "frame",
    binding: Binding | None = None,
    position: Position | None = None,
    available_now: bool = False,
    trigger_seconds: float = 0.0,
    on_batch: Callable[[BatchReport], None] | None = None,
    registry: SubscriptionRegistry | None = None,
    on_warning: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    **options: Any,
) -> FanOut:
    """Create a `FanOut` with these arguments, start it and return it; `FanOut.wait` waits for its end.

    With ``frame`` instead of a session and a job, each row of that streaming DataFrame is a message:
    ``start_fanout(frame=events, snapshots=…, output=…)`` is `start_fanout` of the frame's session and of
    ``Job.of(FrameInput(events, name, binding, position), snapshots, output, **options)``.

    Args:
        spark: the session, such as that of `selectroute.spark.local_session`.
        job: `Job.of(input, snapshots, output, …)`.
        frame, name, binding, position: those of a `FrameInput`.
        snapshots, output, options: those of `Job.of`.
        available_now: route the available input and end, instead of waiting for more.
        trigger_seconds: interval between batches; 0 is as soon as the last batch is done.

    Raises:
        JobError, SourceError, SnapshotError: one sentence; published output was not changed.
        BindingError, ColumnTypeError: the frame lacks a column that binding or position names, or it has the
            wrong type.
        TypeError: there are both a frame and a job, or neither.
    """
    if frame is not None:
        if spark is not None or job is not None:
            raise TypeError("give either a session and a job, or a frame with snapshots and output")
        check_path(snapshots, "snapshots", "the path of the folder with the snapshots")
        check_path(output, "output", "the path of the job's output folder")
        assert snapshots is not None and output is not None
        input = FrameInput(frame, name, binding or BY_NAME, position or NO_POSITION)
        spark, job = frame.sparkSession, Job.of(input, snapshots, output, **options)
    elif options or any(option is not None for option in (snapshots, output, binding, position)):
        raise TypeError("these arguments are for a frame: with a session and a job, give them to Job.of")
    _check_kinds(spark, job)
    assert spark is not None and job is not None
    fan = FanOut(spark, job, on_batch, registry, on_warning, should_stop)
    fan.start(available_now, trigger_seconds)
    return fan
