"""Changes of requests, committed together by one thread, so that a request that waits takes none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio
from anyio.to_thread import run_sync

from selectroute.registry.authorization.permission import Permission
from selectroute.registry.log.group_commit import Unit
from selectroute.registry.log.revision import Revision
from selectroute.registry.registry import Registry
from selectroute.registry.specification import Checks

_T = TypeVar("_T")

MOST: Final = 256
"""Changes that are given to the registry at once."""


class Commits:
    """Queue of changes to a registry. Used in the event loop of the requests."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._waiting: list[tuple[Unit[Any], asyncio.Future[None]]] = []
        self._thread: anyio.CapacityLimiter | None = None
        self._running: asyncio.Task[None] | None = None
        self._committing = 0

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
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, done))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await done
        return unit.outcome()

    async def _run(self) -> None:
        # A thread of its own: those of the pool may all be busy with reads.
        self._thread = self._thread or anyio.CapacityLimiter(1)
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                self._committing = len(group)
                try:
                    await run_sync(self._registry.commit, [unit for unit, _ in group], limiter=self._thread)
                except BaseException as error:
                    for unit, _ in group:
                        unit.fail(error)
                    if not isinstance(error, Exception):
                        raise
                finally:
                    self._committing = 0
                    for _, done in group:
                        if not done.done():  # its request may have been cancelled
                            done.set_result(None)
        finally:
            self._running = None
