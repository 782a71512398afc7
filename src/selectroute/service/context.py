"""Shared state of the calls of one service, and requests that wait until the client disconnects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio import CapacityLimiter
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from selectroute.job_output import JobOutput
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.authorization import Permission
from selectroute.registry.log.revision import PendingRevision
from selectroute.registry.registry import Registry
from selectroute.registry.specification import Checks
from selectroute.service.http.callers import Caller, Callers, FairLimiter, HiddenCursors, OpenBodies, Rates
from selectroute.service.http.problems import check_waiting
from selectroute.service.jobs.job_watch import JobWatch
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import Metrics
from selectroute.service.queues.waiting import QueueWaiting
from selectroute.service.subscriptions.publishing import Publishing
from selectroute.service.subscriptions.recent_messages import RecentMessages
from selectroute.service.subscriptions.waiting import BatchWaiting, LogWatch

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Registry, and the components around it."""

    registry: Registry
    limits: ServiceLimits
    callers: Callers
    rates: Rates
    bodies: OpenBodies
    publishing: Publishing
    watch: LogWatch
    metrics: Metrics
    cursors: HiddenCursors
    importing: CapacityLimiter
    importers: Counter[str] = field(default_factory=Counter)
    """Running imports of each caller."""
    exporting: CapacityLimiter
    writing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(16))
    """Threads, of the pool's 40, that may wait at a time to write: a database has one writer at a time."""
    parsing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """Large bodies parsed at the same time, in threads: with the GIL more would only slow down others."""
    explaining: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
    """Requests that explain at the same time: heavy selectors take seconds."""
    searching: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    """Searches at the same time: each looks at all subscriptions, and takes a core from all other calls."""
    matching: FairLimiter = field(default_factory=lambda: FairLimiter(4))
    """Messages matched at the same time: the worst take minutes."""
    selecting: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    """Lookups of messages with a selector at the same time, each for a moment."""
    scanning: FairLimiter = field(default_factory=lambda: FairLimiter(2))
    """Lookups with a selector that take longer at the same time, because they scan a queue."""
    reading_jobs: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    """Calls that read the folders of jobs at the same time, each in a thread of its own, so that the threads
    of all other calls stay free.
    """
    auditing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    """Audits at the same time, each of which may read for minutes."""
    queues: SqlQueues
    queue_manager: str
    """Name of the queue manager of all queues."""
    queue_waiting: QueueWaiting
    batch_waiting: BatchWaiting
    recent: RecentMessages
    jobs: Mapping[str, JobOutput]
    """Output folders of the jobs that the service shows, by name."""
    job_watch: JobWatch
    _done: list[asyncio.Future[None]] = field(default_factory=list)
    """Futures of requests whose change is done."""

    async def changed(
        self, work: Callable[[PendingRevision], _T], by: Permission, checks: Checks | None = None
    ) -> _T:
        """Make a change of the registry; return its result once it is durable, or raise its error. A request
        that waits takes no thread.
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        change = self.registry.submit(work, checks, by)
        change.add_done_callback(lambda _: self._wake(loop, done))
        await done
        return change.result()

    def _wake(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        """Resume a request whose change is done. Requests of one commit wake the event loop once."""
        self._done.append(done)
        if len(self._done) == 1:
            loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        while self._done:
            done = self._done.pop()
            if not done.done():  # its request may have been cancelled
                done.set_result(None)

    def release(self) -> None:
        """Answer all waiting requests and let no further request wait: the service is about to stop."""
        self.watch.release()
        self.queue_waiting.release()
        self.batch_waiting.release()


@asynccontextmanager
async def while_connected(
    request: Request, on_disconnect: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects, and raise ClientDisconnect.

    If the block awaits a thread, the thread ends first and its result is returned; the block is cancelled at
    its next await. `on_disconnect` may end the thread. The request's body must have been read or be
    irrelevant.
    """
    is_gone = False
    error: Exception | None = None
    async with anyio.create_task_group() as both:

        async def listen() -> None:
            nonlocal is_gone, error
            try:
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                is_gone = True
                on_disconnect()
            except Exception as raised:  # the body came too late, or the token was revoked
                error = raised
            both.cancel_scope.cancel()

        both.start_soon(listen)
        try:
            yield
        except Exception as raised:  # not wrapped in an exception group
            error = raised
        both.cancel_scope.cancel()
    if is_gone:
        raise ClientDisconnect
    if error is not None:
        raise error


async def waited(
    request: Request,
    service: Service,
    waiting: LogWatch | BatchWaiting,
    what: str,
    revision: int,
    seconds: float,
) -> Caller:
    """Wait for a revision while the client is connected, and return the caller, see `still_known`. Raises a
    problem, 429, if too many requests wait for ``what``.
    """
    check_waiting(len(waiting), service.limits.waiting, what)
    async with while_connected(request):  # a disconnected client does not count
        await waiting.wait(revision, seconds)
    return await still_known(request, service)


async def still_known(request: Request, service: Service) -> Caller:
    """Return the caller after a wait. Raises a problem, 401, if the token was revoked meanwhile."""
    return await run_in_threadpool(service.callers.caller, request.headers.get("authorization"))
