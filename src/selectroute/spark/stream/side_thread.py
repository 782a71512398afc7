"""Thread beside the stream of a fan-out: it replays dead letters as somebody asked for, and, on a registry,
writes back cut-offs and makes backfills.

Deliveries never wait for the registry: what needs it is done here, between two batches only where messages
are routed. While the registry is out of reach there is one warning, cut-offs and new backfills wait, and the
stream goes on. Only a registry that refuses the job's token from the start ends it: it would miss backfills.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from selectroute.registry.errors import AuthError
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.backfill.backfill import Backfills, ChangeLog
from selectroute.spark.batch.router import BatchReport, Router
from selectroute.spark.job.job import JobError
from selectroute.spark.replay.replay import Replays
from selectroute.spark.stream.effective_from import BatchReports, EffectiveFromReporter

_LOOK_SECONDS = 0.5
"""How often an idle stream looks whether a new revision was published."""

_POLL_SECONDS = 0.2


class RegistryClient(ChangeLog, BatchReports, Protocol):
    """Client of a registry, as a fan-out uses it: its log, and a place to write back to."""

    def queries(self) -> Sequence[object]:
        """Return the queries that it knows. Raises `AuthError` for a token that no query may report with."""


def admitted(registry: RegistryClient) -> None:
    """Make sure that the registry does not refuse the job. One out of reach does not: it is met later.

    Raises:
        JobError: it does; one sentence.
    """
    try:
        registry.queries()
    except AuthError as error:
        raise JobError(f"the registry refuses this job: {error}") from error
    except (SelectRouteError, OSError):
        pass


class FairLock:
    """Fair lock of two threads: the one that released it waits until the other, if it is waiting, has had it.

    Otherwise a backfill of many parts would keep the stream out, or a busy stream the backfills.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._mine = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it."""
        with self._next:
            self._mine.acquire()
        try:
            yield
        finally:
            self._mine.release()


class SideThread:
    """Thread that runs from `start` to `finish`; `wake` it after a batch.

    Args:
        registry: a `Registry`, or whatever else has a log and takes notes; None for a job without one.
        router: what routes the job's batches; prepared.
        lock: held while a backfill is made, and by whoever routes a batch of the stream.
        on_side_batch: called with the report of each backfill or replay.
        on_warning: called with a sentence when the registry gets out of reach, or a file is not a request.
        on_failure: called with the error that ended a backfill or replay, or with which the registry refused
            the job when it first met it; none is made after it.
    """

    def __init__(
        self,
        registry: RegistryClient | None,
        router: Router,
        lock: FairLock,
        on_side_batch: Callable[[BatchReport], None],
        on_warning: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._registry = registry
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
        self._hurried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="selectroute-registry", daemon=True)

    def start(self, query: str | None) -> None:
        """Begin; without a query's id nothing is done until `wake` brings it."""
        self._query = self._query or query  # a first batch may have been quicker
        self._woken.set()
        self._thread.start()

    def wake(self, query: str) -> None:
        """Note that a batch of this query was routed."""
        self._query = query
        self._woken.set()

    def hurry(self) -> None:
        """Make no further backfill or replay: the rest comes at the next start."""
        self._hurried.set()

    def finish(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Tell and give what there is by now, unless it is told to hurry or to stop, and end."""
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
                ending = self._ending.is_set()  # looked at first: the last round comes after the last batch
                if self._query is not None:
                    self._round(self._query)
            self._backfills.close()
        except BaseException as error:
            self._on_failure(error)

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

    def _next(self, query: str) -> BatchReport | None:
        """Make what comes next beside the stream: what was begun before what is new, and backfills before
        replays, so that who was given a batch since is known.
        """
        report = self._replays.unfinished(query) or self._backfills.next(query)
        if report is not None:
            return report
        if self._registry is None:
            return self._replays.next(query)
        revision = self._backfills.nothing_owed_at
        return None if revision is None else self._replays.next(query, revision)

    def _ask(self, registry: RegistryClient, query: str) -> None:
        try:
            self._effective_from.write_back(registry, query)
            self._backfills.follow(registry)
            self._reached = self._admitted = True
        except (SelectRouteError, OSError) as error:
            if isinstance(error, AuthError) and not self._admitted:
                raise JobError(f"the registry refuses this job: {error}") from error
            if self._reached:
                self._reached = False
                self._on_warning(
                    f"the registry can't be followed ({error}): deliveries go on, cut-offs and backfills wait"
                )
