"""What a fan-out does beside its stream: a thread that replays dead letters as somebody asked for, and, on a
registry, writes back cut-offs and makes backfills.

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
from selectroute.spark.backfill import Backfills, Log
from selectroute.spark.batches import BatchReport, Router
from selectroute.spark.cutoffs import Cutoffs, Notes
from selectroute.spark.job import JobError
from selectroute.spark.replay import Replays

_LOOK_SECONDS = 0.5
"""How often an idle stream looks whether a new revision was published."""

_POLL_SECONDS = 0.2


class Link(Log, Notes, Protocol):
    """What a fan-out asks of a registry: its log, and a place to write back to."""

    def queries(self) -> Sequence[object]:
        """The queries that it knows. Raises `AuthError` for a token that no query may report with."""


def admitted(registry: Link) -> None:
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


class Turns:
    """A lock that two threads take in turns: who gave it back waits until the other one, if it waits, had it.

    Otherwise a backfill of many parts would keep the stream out, or a busy stream the backfills.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._mine = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold it."""
        with self._next:
            self._mine.acquire()
        try:
            yield
        finally:
            self._mine.release()


class Follower:
    """Runs from `start` to `finish`; `wake` it after a batch.

    Args:
        registry: a `Registry`, or whatever else has a log and takes notes; None for a job without one.
        router: what routes the job's batches; prepared.
        turns: held while a backfill is made, and by whoever routes a batch of the stream.
        on_aside: called with the report of each backfill or replay.
        on_warning: called with a sentence when the registry gets out of reach, or a request is none.
        on_failure: called with the error that ended a backfill or replay, or with which the registry refused
            the job when it first met it; none is made after it.
    """

    def __init__(
        self,
        registry: Link | None,
        router: Router,
        turns: Turns,
        on_aside: Callable[[BatchReport], None],
        on_warning: Callable[[str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._registry = registry
        self._turns = turns
        self._on_aside = on_aside
        self._on_warning = on_warning
        self._on_failure = on_failure
        self._cutoffs = Cutoffs(router.job, router.commits, router.source)
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
        """A batch of this query was routed."""
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
            with self._turns.taken():
                report = None if self._hurried.is_set() else self._next(query)
            if report is None:
                return
            self._on_aside(report)

    def _next(self, query: str) -> BatchReport | None:
        """Make what comes next beside the stream: what was begun before what is new, and backfills before
        replays, so that who was given a batch since is known.
        """
        report = self._replays.unfinished(query) or self._backfills.next(query)
        if report is not None:
            return report
        if self._registry is None:
            return self._replays.next(query)
        settled = self._backfills.settled
        return None if settled is None else self._replays.next(query, settled)

    def _ask(self, registry: Link, query: str) -> None:
        try:
            self._cutoffs.write_back(registry, query)
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
