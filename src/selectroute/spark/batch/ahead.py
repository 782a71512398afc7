"""Writes that go on while a batch is matched: those that it needs in the end, and removals that it does not.

In remote storage each write is a round trip. The plan and the pin of a batch are only needed if the batch is
put, sent or committed: until then its tasks can read and match. What a batch leaves behind, such as its plan
once it is published, is removed while the next ones are made, and nothing waits for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

_THREADS: Final = 4
_MOST_REMOVALS: Final = 100
"""Removals that may be outstanding before one is waited for, so that memory stays bounded."""


class Ahead:
    """Writes of one batch at a time, and removals of the batches before."""

    def __init__(self) -> None:
        self._writers: ThreadPoolExecutor | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._writes: list[Future[None]] = []
        self._removals: deque[Future[None]] = deque()

    def start(self, write: Callable[[], None]) -> None:
        """Begin a write."""
        if self._writers is None:
            self._writers = ThreadPoolExecutor(_THREADS, "selectroute-ahead")
        self._writes.append(self._writers.submit(write))

    def remove(self, removal: Callable[[], None]) -> None:
        """Begin a removal, after those that were begun before."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, "selectroute-remover")
        self._removals.append(self._remover.submit(removal))

    def wait(self) -> None:
        """Wait until all writes are done. Raises the error of the first that failed, or else that of a
        removal which is done.
        """
        writes, self._writes = self._writes, []
        errors = [error for one in writes if (error := one.exception()) is not None]
        while self._removals and (self._removals[0].done() or len(self._removals) > _MOST_REMOVALS):
            error = self._removals.popleft().exception()
            errors += [] if error is None else [error]
        if errors:
            raise errors[0]

    def forget(self) -> None:
        """Wait for the writes of a batch that failed and for all removals, without their errors."""
        futures = [*self._writes, *self._removals]
        self._writes = []
        self._removals.clear()
        for one in futures:
            one.exception()
