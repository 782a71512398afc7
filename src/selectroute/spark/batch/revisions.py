"""Newest revision of a snapshot folder in remote storage, known without a request while a batch waits."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

from selectroute.index.folder.manifest import latest_revision, published_digest
from selectroute.selector.errors import SelectRouteError
from selectroute.storage import Location

_LOOK_SECONDS: Final = 1.0
_OLD_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


class Revision(NamedTuple):
    """Published revision, and the SHA-256 of its manifest."""

    number: int
    digest: str


class NewestRevision:
    """Newest revision of a folder. In remote storage a thread looks for it each second, from the first use
    on, so that it is at most a second or two old; on a mounted file system it is looked for when needed.

    All that a job does by the newest revision asks here. What is returned never goes back, unless the folder
    does: a batch of the stream has at least the revision that a backfill before it was planned with.
    """

    def __init__(self, snapshots: Location) -> None:
        self._snapshots = snapshots
        self._known: Revision | None = None
        self._looked = 0.0
        self._guard = threading.Lock()
        # One after the other: of two at once, that which ends later may have read the older revision.
        self._looking = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def get(self) -> Revision:
        """Return the newest revision. Raises `SnapshotError`."""
        if self._snapshots.is_local:
            return self._look()
        known = self._fresh()
        if known is None:
            with self._looking:
                known = self._fresh() or self._look()
        with self._guard:
            if self._thread is None and not self._ending.is_set():
                self._thread = threading.Thread(target=self._run, name="selectroute-revision", daemon=True)
                self._thread.start()
        return known

    def number(self) -> int:
        """Return the newest revision without its digest. Raises `SnapshotError`."""
        return latest_revision(self._snapshots) if self._snapshots.is_local else self.get().number

    def close(self) -> None:
        """End the thread, and wait some seconds for its last answer: a client of HDFS aborts a process that
        ends in a call.
        """
        self._ending.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    def _fresh(self) -> Revision | None:
        """Return the known revision; None if it is too old."""
        with self._guard:
            return self._known if time.monotonic() - self._looked <= _OLD_SECONDS else None

    def _look(self) -> Revision:
        began = time.monotonic()
        number = latest_revision(self._snapshots)
        known = self._known
        if known is None or known.number != number:
            known = Revision(number, published_digest(self._snapshots, number))
        with self._guard:
            self._known, self._looked = known, began
        return known

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            try:
                with self._looking:
                    self._look()
            except (SelectRouteError, OSError):
                continue  # `get` looks for itself, and says so
