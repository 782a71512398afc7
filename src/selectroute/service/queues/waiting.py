"""Requests that wait for a message, without a thread each; all are answered when the service stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from anyio import CancelScope
from starlette.concurrency import run_in_threadpool

from selectroute.queues.message.message import QueuedMessage
from selectroute.queues.sql.watch import WaitingCall
from selectroute.service.http.problems import check_waiting

Notify = Callable[[], None]
InThread = Callable[[Callable[[], QueuedMessage | None]], Awaitable[QueuedMessage | None]]
"""Function that runs another one in a thread, as soon as one is free."""


class QueueWaiting:
    """Requests that wait for a message.

    Args:
        limit: the most requests that may wait at the same time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stopping = False
        self._events: set[asyncio.Event] = set()

    def __len__(self) -> int:
        return len(self._events)

    def release(self) -> None:
        """End all waits because the service is about to stop. Called in the event loop of the requests."""
        self._stopping = True
        for event in self._events:
            event.set()

    async def message(
        self, new_call: Callable[[Notify], WaitingCall], seconds: float, in_thread: InThread
    ) -> QueuedMessage | None:
        """Return the message of a call as soon as there is one, None after the timeout.

        Raises a problem, 429, if too many requests wait already.
        """
        check_waiting(len(self._events), self._limit, "messages")
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(event.set)

        self._events.add(event)
        call = new_call(notify)
        deadline = time.monotonic() + seconds
        try:
            while not self._stopping:
                event.clear()
                message = await in_thread(call.look)
                left = deadline - time.monotonic()
                if message is not None or left <= 0 or self._stopping:
                    return message
                try:
                    await asyncio.wait_for(event.wait(), left)
                except TimeoutError:
                    return None
            return None
        finally:
            self._events.discard(event)
            with CancelScope(shield=True):  # also when the request was cancelled
                await run_in_threadpool(call.end)
