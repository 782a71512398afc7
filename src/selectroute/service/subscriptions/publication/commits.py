"""Changes of requests, committed together by one thread, so that a request that waits takes none.

A commit is delayed until as many changes wait as there were at the end of the last one, at most by as long as
that took (as with PostgreSQL's ``commit_delay``). The interpreter runs one thread at a time: a commit beside
requests that are read slows down both, and twice as many commits take almost twice as long. A client alone
does not wait, nor does a change that comes `RECENT_SECONDS` after the last commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from selectroute.registry.authorization.permission import Permission
from selectroute.registry.log.group_commit import Unit
from selectroute.registry.log.revision import Revision
from selectroute.registry.registry import Registry
from selectroute.registry.specification import Checks

_T = TypeVar("_T")

MOST: Final = 256
"""Changes that are given to the registry at once."""

RECENT_SECONDS: Final = 0.02
"""Time after a commit in which its clients are expected again, and the longest delay of a commit."""


class Commits:
    """Queue of changes to a registry. Used in the event loop of the requests."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: list[tuple[Unit[Any], asyncio.Future[None]]] = []
        self._thread: ThreadPoolExecutor | None = None
        self._running: asyncio.Task[None] | None = None
        self._committing = 0
        self._expected = 0
        """Changes that were committed or waiting at the end of the last commit."""
        self._seconds = 0.0
        """Duration of the last commit."""
        self._ended = 0.0
        """Time of its end."""
        self._complete: asyncio.Future[None] | None = None
        """Done when as many changes wait as are expected, or after `_seconds`."""

    def __len__(self) -> int:
        """Return how many changes are not done yet."""
        return len(self._waiting) + self._committing

    async def changed(
        self, work: Callable[[Revision], _T], by: Permission, checks: Checks | None = None
    ) -> _T:
        """Make a change, one revision, in a transaction with those of other requests; return its result once
        it is durable, or raise its error.
        """
        unit = Unit(work, checks or Checks(self._registry.limits), by)
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((unit, done))
        if self._complete is not None and len(self._waiting) >= self._expected:
            _end(self._complete)
        if self._running is None:
            self._running = loop.create_task(self._run(loop))
        await done
        return unit.outcome()

    def close(self) -> None:
        """End the thread, after a commit that is running. A later change starts it again."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        # A thread of its own: those of the pool may all be busy with reads, and taking one takes longer.
        self._thread = self._thread or ThreadPoolExecutor(1, "selectroute-commit")
        try:
            while self._waiting:
                await self._expected_ones(loop)
                began = loop.time()
                group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                self._committing = len(group)
                try:
                    units = [unit for unit, _ in group]
                    await loop.run_in_executor(self._thread, self._registry.commit, units)
                except BaseException as error:
                    for unit, _ in group:
                        unit.fail(error)
                    if not isinstance(error, Exception):
                        raise
                finally:
                    self._committing = 0
                    self._expected = min(len(group) + len(self._waiting), MOST)
                    self._ended = loop.time()
                    self._seconds = min(self._ended - began, RECENT_SECONDS)
                    for _, done in group:
                        if not done.done():  # its request may have been cancelled
                            done.set_result(None)
        finally:
            self._running = None

    async def _expected_ones(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the changes that are expected."""
        if len(self._waiting) < self._expected and loop.time() < self._ended + RECENT_SECONDS:
            self._complete = loop.create_future()
            timer = loop.call_later(self._seconds, _end, self._complete)
            try:
                await self._complete
            finally:
                self._complete = None
                timer.cancel()


def _end(waited: asyncio.Future[None]) -> None:
    if not waited.done():
        waited.set_result(None)
