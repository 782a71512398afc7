"""Side thread of a fan-out: requested replays and, with a registry, backfills and reports of batches.

Deliveries never wait for the registry: it is called in this thread, and only the routing of side batches
comes between two batches of the stream. If the registry does not answer, there is one warning, reports and
new backfills wait, and the stream goes on. Only a registry that rejects the job's token from the start ends
the job, which would otherwise miss backfills.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from selectroute.registry.errors import AuthError
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import BatchReport, Router
from selectroute.spark.job import JobError
from selectroute.spark.replay.backfill import Backfills
from selectroute.spark.replay.replay import Replays
from selectroute.spark.stream.reports import BatchReporter, EffectiveFromReporter, Ending, Sampler

if TYPE_CHECKING:
    from selectroute.client import SubscriptionRegistry

_LOOK_SECONDS = 0.5
"""Interval of the rounds of an idle stream, which look for backfills that a new revision asks for. The
revision of a batch itself is chosen by `pins.pin`.
"""

_POLL_SECONDS = 0.2


def admitted(registry: SubscriptionRegistry) -> None:
    """Check that the registry accepts the job's token. One that does not answer is checked again later.

    Raises:
        JobError: the registry rejects the token; one sentence.
    """
    try:
        registry.streams.queries()
    except AuthError as error:
        raise JobError(f"the registry rejects this job: {error}") from error
    except (SelectRouteError, OSError):
        pass


class FairLock:
    """Fair lock of two threads: after a release, a waiting thread gets the lock before the one that released.

    Otherwise a backfill of many parts would block the stream, or a busy stream the backfills.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._mine = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock for the duration of a block."""
        with self._next:
            self._mine.acquire()
        try:
            yield
        finally:
            self._mine.release()


class SideThread:
    """Thread that runs from `start` to `finish`; `wake` it after a batch.

    Args:
        registry: a `Registry` or `RemoteRegistry`; None for a job without one.
        router: the router of the job, with prepared commits.
        lock: held while a side batch is made; the stream holds it while a batch is routed.
        on_side_batch: called with the report of each backfill or replay.
        on_warning: called with a sentence when the registry does not answer, or a file is not a request.
        on_failure: called with the error of a backfill or replay, or of a registry that rejects the token at
            first contact; the thread then ends.
        reporter: reports batches to the registry.
        sampler: sends it some messages.
    """

    def __init__(
        self,
        registry: SubscriptionRegistry | None,
        router: Router,
        lock: FairLock,
        on_side_batch: Callable[[BatchReport], None],
        on_warning: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
        reporter: BatchReporter,
        sampler: Sampler,
    ) -> None:
        self._registry = registry
        self._sampler = sampler
        self._reporter = reporter
        self._lock = lock
        self._on_side_batch = on_side_batch
        self._on_warning = on_warning
        self._on_failure = on_failure
        self._effective_from = EffectiveFromReporter(router.job, router.commits, router.source)
        self._backfills = Backfills(router)
        self._replays = Replays(router, on_warning)
        self._query: str | None = None
        self._reached = True
        self._admitted = False
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._how: Ending = "ended"
        self._hurried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="selectroute-registry", daemon=True)

    def start(self, query: str | None) -> None:
        """Start the thread; without a query's id it waits for `wake`."""
        self._query = self._query or query  # `wake` may have come first
        self._woken.set()
        self._thread.start()

    def wake(self, query: str, report: BatchReport, inputs: Sequence[Any] = ()) -> None:
        """Wake the thread after a batch of this query with these inputs."""
        self._query = query
        if self._registry is not None:
            self._reporter.note(report)
            self._sampler.note(inputs)
        self._woken.set()

    def hurry(self) -> None:
        """Make no further backfill or replay: the rest is done at the next start."""
        self._hurried.set()

    def finish(self, should_stop: Callable[[], bool] = lambda: False, ending: Ending = "ended") -> None:
        """Finish the pending reports and side batches, unless hurried or stopped, report how the stream ends,
        and end the thread.
        """
        self._how = ending
        self._ending.set()
        self._woken.set()
        while self._thread.is_alive():
            self._thread.join(_POLL_SECONDS)
            if should_stop():
                self.hurry()

    def _run(self) -> None:
        try:
            ending = False
            while not ending:
                self._woken.wait(_LOOK_SECONDS)
                self._woken.clear()
                ending = self._ending.is_set()  # read first: the last round comes after the last batch
                if self._query is not None:
                    self._round(self._query)
            self._backfills.close()
        except BaseException as error:
            self._how = "failed"
            self._on_failure(error)
        self._report_end()

    def _report_end(self) -> None:
        """Report the remaining batches and how the stream ends, unless the registry did not answer just now:
        a job does not wait for it to end.
        """
        if self._registry is not None and self._query is not None and self._admitted and self._reached:
            with suppress(SelectRouteError, OSError):
                self._reporter.finish(self._registry.streams, self._query, self._how)

    def _round(self, query: str) -> None:
        if self._registry is not None:
            self._ask(self._registry, query)
        self._replays.look()
        while not self._hurried.is_set():
            with self._lock.held():
                report = None if self._hurried.is_set() else self._next(query)
            if report is None:
                return
            self._on_side_batch(report)
            if self._registry is not None:
                self._reporter.note(report)

    def _next(self, query: str) -> BatchReport | None:
        """Make the next side batch: unfinished ones first, and backfills before replays, which must not give
        a batch to the subscriptions of a backfill again.
        """
        report = self._replays.unfinished(query) or self._backfills.next(query)
        if report is not None:
            return report
        if self._registry is None:
            return self._replays.next(query)
        revision = self._backfills.nothing_owed_at
        return None if revision is None else self._replays.next(query, revision)

    def _ask(self, registry: SubscriptionRegistry, query: str) -> None:
        try:
            self._effective_from.report(registry.streams, query)
            self._backfills.follow(registry)
            self._reporter.send(registry.streams, query, at_once=self._ending.is_set())
            self._sampler.send(registry.streams, query, at_once=self._ending.is_set())
            self._reached = self._admitted = True
        except (SelectRouteError, OSError) as error:
            if isinstance(error, AuthError) and not self._admitted:
                raise JobError(f"the registry rejects this job: {error}") from error
            if self._reached:
                self._reached = False
                self._on_warning(
                    f"the registry can't be followed ({error}): deliveries go on, reports and backfills wait"
                )
