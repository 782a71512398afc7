"""Requests that wait until a batch has used a revision, without a thread each, and with one database query
for all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import anyio
from starlette.concurrency import run_in_threadpool

LOOK_SECONDS: Final = 0.2
"""Interval of queries during a wait: batches may be reported directly to the database."""


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
                with anyio.move_on_after(min(left, LOOK_SECONDS)):
                    await self._stopping.wait()
        finally:
            self._count -= 1

    async def _is_used(self, revision: int) -> bool:
        """Return whether a batch has used the revision, by the cached result or, if old, a new query."""
        if self._used < revision:
            async with self._looking:  # the others use the result of the first one
                if self._looked is None or time.monotonic() - self._looked >= LOOK_SECONDS / 2:
                    self._used = await run_in_threadpool(self._newest)
                    self._looked = time.monotonic()
        return self._used >= revision
