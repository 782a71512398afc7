"""The streaming fan-out: a Structured Streaming query over files, each batch routed exactly once.

Spark's part is to number the batches and to remember which files belong to each; what is done with a batch
stands in `batches`, and what a registry has to do with it in `follower`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from selectroute.index.errors import SnapshotNotFoundError
from selectroute.index.file_format import latest_revision
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batches import BatchReport, Router
from selectroute.spark.follower import Follower, Link, Turns, admitted
from selectroute.spark.job import Job, OutputFolder
from selectroute.spark.plan import Split
from selectroute.spark.sources import SourceError, batch_files, stream_files
from selectroute.spark.worker import Work, fan_out, run_tasks

_POLL_SECONDS = 0.2


class StreamError(SelectRouteError):
    """Spark ended the query for a reason that is not ours; the text is Spark's, shortened."""


class _StoppingError(SelectRouteError):
    """A batch that came after `FanOut.stop`: it runs at the next start."""


class FanOut:
    """A running fan-out. `start_fanout` makes one; then `wait` for its end, or `stop` it from another
    thread."""

    def __init__(
        self,
        spark: SparkSession,
        job: Job,
        on_batch: Callable[[BatchReport], None] | None = None,
        registry: Link | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.spark = spark
        self.job = job
        self.query: StreamingQuery | None = None
        self._on_batch = on_batch or (lambda _: None)
        self._on_warning = on_warning or (lambda _: None)
        self._registry = registry
        self._follower: Follower | None = None
        self._turns = Turns()
        self._folder = OutputFolder(job)
        self._router = Router(job, self._run, spark.sparkContext.defaultParallelism)
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    def start(self, available_now: bool, trigger_seconds: float) -> None:
        """Take the output folder, finish or remove what an earlier run left half done, start the query."""
        check(self.job, self._registry)
        self._folder.claim()
        try:
            self._router.commits.prepare()
            writer = (
                stream_files(self.spark, self.job.input, self.job.max_files)
                .writeStream.foreachBatch(self._route)
                .option("checkpointLocation", str(self.job.checkpoint))
            )
            pause = f"{int(trigger_seconds * 1000)} milliseconds"
            trigger = (
                writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=pause)
            )
            if self._registry is not None:
                self._follower = self._follow(self._registry)
            self.query = trigger.start()
            if self._follower is not None:
                self._follower.start(self._folder.query())
        except BaseException as error:
            self._folder.release()
            if isinstance(error, PySparkException | Py4JError):
                raise _sentence(error) from error
            raise

    def wait(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Wait until the query ends: because all input is read, ``should_stop`` said so, or it failed.

        Raises:
            SelectRouteError: what went wrong, in one sentence. The job can be started again.
        """
        query, ended = self.query, False
        try:
            while query is not None and not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
                if should_stop():
                    self.stop()
            ended = True
        except PySparkException as error:
            if not isinstance(self._failure, _StoppingError):
                raise _sentence(self._failure or error) from error
        finally:
            if self._follower is not None:
                self._follower.finish(should_stop if ended else lambda: True)
            self._folder.release()
        if self._failure is not None and not isinstance(self._failure, _StoppingError):
            raise _sentence(self._failure) from self._failure

    def stop(self, timeout_seconds: float = 60.0) -> None:
        """End the query between two batches: the one that runs is finished, if it takes no longer than
        this."""
        self._stopping.set()
        if self._follower is not None:
            self._follower.hurry()
        self._idle.wait(timeout_seconds)
        if self.query is not None:
            self.query.stop()

    def _route(self, _files: DataFrame, batch: int) -> None:
        self._idle.clear()
        try:
            with self._turns.taken():
                if self._stopping.is_set():
                    raise _StoppingError(f"the job stopped before batch {batch}")
                query = self._folder.bind()
                report = self._router.route(batch, batch_files(self.job.checkpoint, batch), query)
            self._on_batch(report)
            if self._follower is not None:
                self._follower.wake(query)
        except BaseException as error:
            # Spark would hand on its text only, with a traceback in it.
            self._failure = error
            if isinstance(error, Exception):
                raise
            # py4j answers Spark for an Exception only: a SystemExit would leave the query waiting for ever.
            raise StreamError(f"the batch was interrupted: {error!r}") from error
        finally:
            self._idle.set()

    def _follow(self, registry: Link) -> Follower:
        router, turns = self._router, self._turns
        return Follower(registry, router, turns, self._on_batch, self._on_warning, self._fail)

    def _fail(self, error: BaseException) -> None:
        """A backfill failed: the job ends as it does when a batch fails."""
        self._failure = self._failure or error
        self.stop()

    def _run(self, tasks: list[list[Split]], work: Work) -> list[dict[str, Any]]:
        rows = run_tasks(self.spark, tasks, fan_out(tasks, work), "report string").collect()
        return [json.loads(row["report"]) for row in rows]


def check(job: Job, registry: Link | None = None) -> None:
    """Make sure, in an instant and before Spark is started, that the job's folders are there and its own.

    With the registry that its snapshots are to come from, the error also says who publishes them, and a token
    that no job may have is refused.

    Raises:
        JobError, SourceError, SnapshotError: one sentence; nothing was touched.
    """
    if not job.input.is_dir():
        raise SourceError(f"the input folder {job.input} does not exist")
    try:
        latest_revision(job.snapshots)
    except SnapshotNotFoundError as error:
        if registry is None:
            raise
        raise SnapshotNotFoundError(
            f"no snapshot is published in {job.snapshots}: start `selectroute serve`, or `selectroute "
            "registry publish --follow`, on this registry first"
        ) from error
    OutputFolder(job).check()
    if registry is not None:
        admitted(registry)


def start_fanout(
    spark: SparkSession,
    job: Job,
    *,
    available_now: bool = False,
    trigger_seconds: float = 0.0,
    on_batch: Callable[[BatchReport], None] | None = None,
    registry: Link | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> FanOut:
    """Start the job's query and return it running; `FanOut.wait` waits for its end.

    Args:
        spark: the session; `selectroute.spark.local_session` makes one.
        job: `Job.of(input, snapshots, output, …)`.
        available_now: route what is there and end, instead of waiting for more.
        trigger_seconds: look for new files so often; 0 is as soon as the last batch is done.
        on_batch: called with a `BatchReport` after each batch, in another thread.
        registry: whose snapshots these are, a ``selectroute.Registry``: it is told from which batch on each
            revision holds, and subscriptions that are resumed get what they missed, as `backfill` has it.
            It stays open; close it after `wait`.
        on_warning: called with a sentence when the registry gets out of reach, in another thread.

    Raises:
        JobError, SourceError, SnapshotError: one sentence; nothing published was touched.
    """
    fan = FanOut(spark, job, on_batch, registry, on_warning)
    fan.start(available_now, trigger_seconds)
    return fan


def _sentence(error: BaseException) -> SelectRouteError:
    """Return our own error as it is, and Spark's as the error that caused it, without the traceback."""
    if isinstance(error, SelectRouteError):
        return error
    # An error raised in a worker arrives as the text of its traceback: the last such line is the error
    # itself.
    text = str(error)
    raised = re.findall(r"^\s*((?:[\w.]+\.)?\w*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    if not raised:
        return StreamError(
            f"the query ended: {text.strip().splitlines()[0] if text.strip() else repr(error)}"
        )
    name, sentence = raised[-1]
    return StreamError(
        f"the query ended: {sentence if name.startswith('selectroute.') else f'{name}: {sentence}'}"
    )
