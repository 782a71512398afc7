"""Threads that publish what is committed, and wake those who wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from selectroute.index.snapshot import Snapshot
from selectroute.registry.errors import PublishError
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service.logs import log

AGAIN_SECONDS: Final = 2.0
"""After a failure the thread begins anew so much later."""

STOP_SECONDS: Final = 3.0
"""How long stopping waits for a publication that is under way: the first one of a million takes longer."""

REMEMBERED: Final = 10_000
"""Revisions that may wait to be published before the lag counts from a later one than the oldest."""

WATCH_SECONDS: Final = 0.05
"""How long a look at the log waits for a change, and how long stopping may take."""


@dataclass(frozen=True, slots=True)
class State:
    """Newest committed revision, what is published of it, and what is wrong with publishing, if so."""

    revision: int
    snapshot: Snapshot | None
    lag_seconds: float
    failure: str | None


class Publishing:
    """Publishes the registry's changes in a thread of its own until `stop`; to the registry's own folder
    unless one is given.
    """

    def __init__(self, registry: Registry, folder: Path | None = None) -> None:
        self._registry = registry
        self._folder = folder
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._publisher: RegistryPublisher | None = None
        self._snapshot: Snapshot | None = None
        self._failure: str | None = None
        self._seen: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    @property
    def snapshot(self) -> Snapshot | None:
        """Newest published revision; None before the first."""
        publisher = self._publisher
        if publisher is not None:
            with suppress(PublishError):  # it reads its folder anew after a failure
                self._snapshot = publisher.snapshot
        return self._snapshot

    def start(self) -> None:
        """Begin to publish."""
        self._thread = threading.Thread(target=self._run, name="selectroute-publish", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End, with what is being published if that is done in time. If not it is left as it is, as by a
        crash: the next start publishes it.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                log().warning("a publication is broken off; the next start makes it")

    def state(self) -> State:
        """Return how far publishing is. Raises what reading the registry raises."""
        snapshot, revision = self.snapshot, self._registry.revision
        published = _revision(snapshot)
        lag = 0.0
        if published < revision:
            behind = [since for number, since in tuple(self._seen) if number > published]
            lag = time.monotonic() - min(behind) if behind else 0.0
        return State(revision, snapshot, lag, self._failure if published < revision else None)

    def committed(self, revision: int) -> None:
        """Note that there is this revision now: the lag counts from here. The log is not asked, because
        one revision of it may be a million changes.
        """
        published = _revision(self.snapshot)
        while self._seen and self._seen[0][0] <= published:
            self._seen.popleft()
        self._seen.append((revision, time.monotonic()))

    def caught_up(self, revision: int, wait_seconds: float) -> Snapshot | None:
        """Return the newest snapshot, of this revision or a later one if it is published in time."""
        deadline = time.monotonic() + wait_seconds
        while _revision(found := self.snapshot) < revision:
            if time.monotonic() >= deadline or self._stop.wait(0.005):
                break
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with RegistryPublisher(self._registry, self._folder) as publisher:
                    self._publisher = publisher
                    publisher.follow(self._stop, failed=self._failed)
                    self._snapshot = self.snapshot  # what questions are answered from while others end
                    self._publisher = None
            except SelectRouteError as error:
                self._failed(error)
            except Exception as error:
                self._failure = type(error).__name__
                if not self._stop.is_set():
                    log().exception("publishing failed")
            if not self._stop.is_set():
                self._stop.wait(AGAIN_SECONDS)

    def _failed(self, error: SelectRouteError) -> None:
        if str(error) != self._failure and not self._stop.is_set():  # then its registry may be closed
            log().error("publishing failed", reason=str(error))
        self._failure = str(error)


def _revision(snapshot: Snapshot | None) -> int:
    return -1 if snapshot is None or snapshot.revision is None else snapshot.revision


class Watch:
    """Wakes requests that wait for a change: one thread looks at the log, however many of them wait."""

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
        """Begin to look; in the event loop of the requests."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="selectroute-watch", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Wake everybody, and let nobody wait any more: the service is about to stop."""
        self._stopping = True
        self._wake()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join()

    async def wait(self, after: int, seconds: float) -> None:
        """Return when there is a revision above `after`, after so many seconds, or when the service stops."""
        deadline = self._clock() + seconds
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while not self._stopping and self.revision <= after and (left := deadline - self._clock()) > 0:
                event.clear()
                try:
                    await asyncio.wait_for(event.wait(), left)
                except TimeoutError:
                    return
        finally:
            self._waiting.discard(event)

    def _wake(self) -> None:
        for event in tuple(self._waiting):
            event.set()

    def _run(self) -> None:
        while not self._stopping:
            try:
                found = self._registry.wait(self.revision, WATCH_SECONDS)
                if found:
                    self.revision = self._registry.revision
                    self._committed(self.revision)
            except Exception as error:
                log().error("the log cannot be watched", reason=type(error).__name__)
                time.sleep(WATCH_SECONDS)
                continue
            if found and self._loop is not None:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._wake)
