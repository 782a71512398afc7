"""Way of a change from its commit to the batch that uses it.

::

    request ──→ registry ──Publishing──→ snapshots ──→ streams ──BatchWaiting──→ waiting request

The thread of `Publishing` publishes committed changes, the thread of `LogWatch` wakes requests that wait
for changes. `BatchWaiting` wakes requests when a batch has used their revision. The service's context owns
one of each.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from selectroute.index.snapshot import Snapshot
from selectroute.index.snapshot_files import revisions
from selectroute.registry.errors import OtherPublisherError, PublishError
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service.logs import log
from selectroute.service.subscriptions.waiting import REMEMBERED
from selectroute.storage import Location

STAND_BY_SECONDS: Final = 1.0
"""Interval of the attempts to take over from another process that publishes the same registry."""

LOOK_SECONDS: Final = 0.05
"""Interval of looking for revisions that another process has published; in remote storage, where a look is
paid for, `STAND_BY_SECONDS`.
"""


AGAIN_SECONDS: Final = 2.0
"""Delay until the thread restarts after a failure."""

STOP_SECONDS: Final = 3.0
"""Longest time that stopping waits for a publication: the first one of a million takes longer."""


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
