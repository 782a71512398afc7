"""Writes that go on while a batch is matched, and must be done before anything depends on them.

In remote storage each write is a round trip. The plan and the pin of a batch are only needed if the batch is
put, sent or committed: until then its tasks can read and match.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_THREADS = 4


class Ahead:
    """Writes of one batch at a time."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._running: list[Future[None]] = []

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "selectroute-ahead")
        self._running.append(self._threads.submit(write))

    def wait(self) -> None:
        """Wait until all writes are done. Raises the error of the first that failed."""
        running, self._running = self._running, []
        errors = [error for one in running if (error := one.exception()) is not None]
        if errors:
            raise errors[0]

    def forget(self) -> None:
        """Wait for the writes of a batch that failed, without their errors."""
        running, self._running = self._running, []
        for one in running:
            one.exception()
