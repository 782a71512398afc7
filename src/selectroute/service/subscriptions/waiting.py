"""Waiting for changes of the registry, and for batches that used them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool

from selectroute.registry.registry import Registry
from selectroute.service.logs import log

BATCH_LOOK_SECONDS: Final = 0.2
"""Interval of queries during a wait for a batch: batches may be reported directly to the database."""


REMEMBERED: Final = 10_000
"""Unpublished revisions whose commit times are kept; with more, the lag is underestimated."""


WATCH_SECONDS: Final = 0.05
"""Timeout of one wait for a change of the log, and the longest time that stopping takes."""


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
