"""Way of a change from its commit to the batch that uses it.

::

    request ──→ registry ──Publishing──→ snapshots ──→ streams ──BatchWaiting──→ waiting request

The thread of `Publishing` publishes committed changes, the thread of `LogWatch` wakes requests that wait
for changes. `BatchWaiting` wakes requests when a batch has used their revision. The service's context owns
one of each.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool

from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import revisions
from selectroute.registry.errors import OtherPublisherError, PublishError
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service.logs import log
from selectroute.storage import Location

STAND_BY_SECONDS: Final = 1.0
"""Interval of the attempts to take over from another process that publishes the same registry."""

LOOK_SECONDS: Final = 0.05
"""Interval of looking for revisions that another process has published; in remote storage, where a look is
paid for, `STAND_BY_SECONDS`.
"""

BATCH_LOOK_SECONDS: Final = 0.2
"""Interval of queries during a wait for a batch: batches may be reported directly to the database."""

AGAIN_SECONDS: Final = 2.0
"""Delay until the thread restarts after a failure."""

STOP_SECONDS: Final = 3.0
"""Longest time that stopping waits for a publication: the first one of a million takes longer."""

REMEMBERED: Final = 10_000
"""Unpublished revisions whose commit times are kept; with more, the lag is underestimated."""

WATCH_SECONDS: Final = 0.05
"""Timeout of one wait for a change of the log, and the longest time that stopping takes."""


@dataclass(frozen=True, slots=True)
class State:
    """Newest committed revision, its published snapshot, and the failure of publishing, if any."""

    revision: int
    snapshot: Snapshot | None
    lag_seconds: float
    failure: str | None


class Publishing:
    """Publisher of a registry's changes in a thread until `stop`; by default to the registry's folder.

    If several processes serve one registry, one of them publishes. The others read what it publishes, and one
    takes over within `STAND_BY_SECONDS` of its end, in remote storage when its lease has expired.
    """

    def __init__(self, registry: Registry, folder: Location | None = None) -> None:
        self._registry = registry
        self._folder = folder
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._publisher: RegistryPublisher | None = None
        self._snapshot: Snapshot | None = None
        self._failure: str | None = None
        self._stands_by = False
        self._seen: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    @property
    def snapshot(self) -> Snapshot | None:
        """Newest published revision; None before the first."""
        publisher = self._publisher
        if publisher is not None:
            with suppress(PublishError):  # it reads its folder again after a failure
                self._snapshot = publisher.snapshot
        return self._snapshot

    @property
    def is_publisher(self) -> bool:
        """True while this process publishes, False while another service of the registry does."""
        return self._publisher is not None

    @property
    def is_running(self) -> bool:
        """True while the thread runs, also after `stop` if that abandoned it."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="selectroute-publish", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop the thread after the running publication, if that ends in time. Otherwise abandon it like a
        crash: the next start publishes it.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)
            if self.is_running:
                log().warning("a publication is abandoned; the next start completes it")

    def state(self) -> State:
        """Return the state of publishing. Raises the errors of reading the registry."""
        snapshot, revision = self.snapshot, self._registry.revision
        published = _revision(snapshot)
        lag = 0.0
        if published < revision:
            pending = [since for number, since in tuple(self._seen) if number > published]
            lag = time.monotonic() - min(pending) if pending else 0.0
        return State(revision, snapshot, lag, self._failure if published < revision else None)

    def note_commit(self, revision: int) -> None:
        """Record the time of a new revision, from which the lag counts. Does not read the log, because one
        revision may have a million changes.
        """
        published = _revision(self.snapshot)
        while self._seen and self._seen[0][0] <= published:
            self._seen.popleft()
        self._seen.append((revision, time.monotonic()))

    def caught_up(self, revision: int, wait_seconds: float) -> Snapshot | None:
        """Return the newest snapshot; wait for this revision or a later one until the timeout."""
        deadline = time.monotonic() + wait_seconds
        while _revision(snapshot := self.snapshot) < revision:
            if time.monotonic() >= deadline or self._stop.wait(0.005):
                break
        return snapshot

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with RegistryPublisher(self._registry, self._folder) as publisher:
                    if self._stands_by:
                        log().info("this process publishes the revisions now")
                        self._stands_by = False
                    self._publisher = publisher
                    try:
                        publisher.follow(self._stop, failed=self._failed)
                    finally:
                        self._snapshot = self.snapshot  # for the remaining requests
                        self._publisher = None
            except OtherPublisherError:
                self._stand_by()
                continue
            except SelectRouteError as error:
                self._failed(error)
            except Exception as error:
                self._failure = type(error).__name__
                if not self._stop.is_set():
                    log().exception("publishing failed")
            if not self._stop.is_set():
                self._stop.wait(AGAIN_SECONDS)

    def _stand_by(self) -> None:
        """Read the revisions that another process publishes, for `STAND_BY_SECONDS`."""
        if not self._stands_by:
            log().info("another process publishes the revisions; this one takes over when it ends")
            self._stands_by = True
        folder = self._folder or self._registry.snapshots_folder
        until = time.monotonic() + STAND_BY_SECONDS
        while not self._stop.is_set() and time.monotonic() < until:
            try:
                newest = max(revisions(folder), default=-1)
                if newest > _revision(self._snapshot):
                    self._snapshot = Snapshot.open(folder, newest)
                self._failure = None
            except SelectRouteError as error:  # such as a revision that was collected while it was opened
                self._failed(error)
            self._stop.wait(LOOK_SECONDS if folder.is_local else STAND_BY_SECONDS)

    def _failed(self, error: SelectRouteError) -> None:
        if str(error) != self._failure and not self._stop.is_set():  # after stop the registry may be closed
            log().error("publishing failed", reason=str(error))
        self._failure = str(error)


def _revision(snapshot: Snapshot | None) -> int:
    return -1 if snapshot is None or snapshot.revision is None else snapshot.revision


class LogWatch:
    """Waiting requests for changes: one thread watches the log for all of them."""

    def __init__(
        self,
        registry: Registry,
        committed: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._committed = committed
        self._clock = clock
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self.revision = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        """Start the thread. Called in the event loop of the requests."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="selectroute-watch", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """End all waits because the service is about to stop."""
        self._stopping = True
        self._wake()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()

    async def wait(self, after: int, seconds: float) -> None:
        """Return when there is a revision after `after`, after the timeout, or when the service stops."""
        deadline = self._clock() + seconds
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while not self._stopping and self.revision <= after and (left := deadline - self._clock()) > 0:
                event.clear()
                with anyio.move_on_after(left):
                    await event.wait()
        finally:
            self._waiting.discard(event)

    def _wake(self) -> None:
        for event in tuple(self._waiting):
            event.set()

    def _run(self) -> None:
        while not self._stopping:
            try:
                newest = self._registry.next_revision(self.revision, WATCH_SECONDS)
                is_new = newest > self.revision
                if is_new:
                    self.revision = newest
                    self._committed(newest)
            except Exception as error:
                log().error("the log cannot be watched", reason=type(error).__name__)
                time.sleep(WATCH_SECONDS)
                continue
            if is_new and self._waiting and self._loop is not None:  # who waits from now on sees the revision
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._wake)


class BatchWaiting:
    """Requests that wait for a batch.

    Args:
        newest: queries the database for the newest revision that any batch used.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._count = 0
        self._used = 0
        self._looked: float | None = None
        self._looking = asyncio.Lock()
        self._stopping = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def release(self) -> None:
        """End all waits because the service is about to stop."""
        self._stopping.set()

    async def wait(self, revision: int, seconds: float) -> None:
        """Return when a batch has used this revision or a later one, after the timeout, or when the service
        stops.
        """
        deadline = time.monotonic() + seconds
        self._count += 1
        try:
            while not self._stopping.is_set() and not await self._is_used(revision):
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                with anyio.move_on_after(min(left, BATCH_LOOK_SECONDS)):
                    await self._stopping.wait()
        finally:
            self._count -= 1

    async def _is_used(self, revision: int) -> bool:
        """Return whether a batch has used the revision, by the cached result or, if old, a new query."""
        if self._used < revision:
            async with self._looking:  # the others use the result of the first one
                if self._looked is None or time.monotonic() - self._looked >= BATCH_LOOK_SECONDS / 2:
                    self._used = await run_in_threadpool(self._newest)
                    self._looked = time.monotonic()
        return self._used >= revision
