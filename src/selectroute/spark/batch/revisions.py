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


class Revision(NamedTuple):
    """Published revision, and the SHA-256 of its manifest."""

    number: int
    digest: str


class NewestRevision:
    """Newest revision of a folder. In remote storage a thread looks for it each second, from the first use
    on, so that it is at most a second or two old; on a mounted file system it is looked for when needed.
    """

    def __init__(self, snapshots: Location) -> None:
        self._snapshots = snapshots
        self._known: Revision | None = None
        self._looked = 0.0
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def get(self) -> Revision:
        """Return the newest revision. Raises `SnapshotError`."""
        if self._snapshots.is_local:
            return self._look()
        with self._guard:
            known, age = self._known, time.monotonic() - self._looked
        if known is None or age > _OLD_SECONDS:
            known = self._look()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="selectroute-revision", daemon=True)
            self._thread.start()
        return known

    def close(self) -> None:
        """End the thread."""
        self._ending.set()

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
                self._look()
            except (SelectRouteError, OSError):
                continue  # `get` looks for itself, and says so
