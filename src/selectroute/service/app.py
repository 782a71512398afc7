"""ASGI application: all calls, wrapped in the middleware."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

from anyio import CapacityLimiter
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from selectroute.job_output import JobOutput
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.calls import CALLS
from selectroute.service.context import Service
from selectroute.service.http.call import NO_PATH, Call
from selectroute.service.http.callers import Callers, HiddenCursors, OpenBodies, Rates
from selectroute.service.http.middleware import Gate
from selectroute.service.http.openapi import document
from selectroute.service.http.problems import ProblemError
from selectroute.service.jobs.job_watch import JobWatch
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import Metrics
from selectroute.service.queues.waiting import QueueWaiting
from selectroute.service.subscriptions.publishing import Publishing
from selectroute.service.subscriptions.recent_messages import RecentMessages
from selectroute.service.subscriptions.waiting import BatchWaiting, LogWatch
from selectroute.storage import Location
from selectroute.storage.location import Where

QUEUE_MANAGER: Final = "selectroute"
"""Default name of the service's queue manager."""


def create_app(
    registry: Registry,
    *,
    limits: ServiceLimits | None = None,
    tokens_needed: bool = False,
    snapshots: Where | None = None,
    queues: str | None = None,
    queue_manager: str = QUEUE_MANAGER,
    jobs: Mapping[str, JobOutput] | None = None,
) -> Application:
    """Create the service of a registry, an ASGI application. Its lifespan starts and stops the threads.

    Args:
        registry: an open registry; it stays open when the application ends.
        limits: the limits of requests.
        tokens_needed: require a token even if none exists yet.
        snapshots: the folder to which revisions are published; the registry's own by default.
        queues: the URL of the database of queues; the registry's own by default.
        queue_manager: the name of the queue manager of all queues.
        jobs: the output folders of jobs, by name, whose dead letters the service shows and has replayed.

    Raises:
        StoreError: the database of the queues is unsupported or fails.
    """
    limits = limits or ServiceLimits()
    publishing = Publishing(registry, None if snapshots is None else Location.of(snapshots))
    waiting = QueueWaiting(limits.waiting)
    jobs = dict(sorted((jobs or {}).items()))
    service = Service(
        registry=registry,
        limits=limits,
        callers=Callers(registry, tokens_needed, limits.subscriptions_of_one),
        rates=Rates(limits.requests_per_second, limits.burst),
        bodies=OpenBodies(limits.open_body_bytes),
        publishing=publishing,
        watch=LogWatch(registry, publishing.note_commit),
        metrics=Metrics(publishing, waiting.__len__),
        cursors=HiddenCursors(lambda: registry.id),
        importing=CapacityLimiter(limits.imports),
        exporting=CapacityLimiter(limits.exports),
        queues=SqlQueues((lambda: registry.url) if queues is None else queues),
        queue_manager=queue_manager,
        queue_waiting=waiting,
        batch_waiting=BatchWaiting(lambda: registry.streams.newest_used()),
        recent=RecentMessages(registry),
        jobs=jobs,
        job_watch=JobWatch(jobs),
    )
    if queues is not None:
        service.queues.names()  # report an unusable URL at once

    @asynccontextmanager
    async def lifespan(_: Application) -> AsyncIterator[None]:
        for call in chain.from_iterable(CALLS.values()):
            call.takes  # noqa: B018  # read now, so that no first request waits for it
        service.publishing.start()
        service.watch.start()
        yield
        service.release()
        service.watch.stop()
        service.publishing.stop()
        service.queues.close()

    return Application(service, lifespan)


class Application:
    """ASGI application of a service: its calls behind the middleware.

    Args:
        service: the service, which ``state`` has as well.
        lifespan: starts and stops it.
    """

    def __init__(
        self, service: Service, lifespan: Callable[[Application], AbstractAsyncContextManager[None]]
    ) -> None:
        self._service = service
        self.state = State({"service": service})
        self._other = Router(lifespan=lifespan)
        self._gate = Gate(self._call, service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; also start and stop the service."""
        scope["app"] = self
        await (self._gate if scope["type"] == "http" else self._other)(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return _document()

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the call of its method and path. Raises a problem, 404 or 405, without one;
        OPTIONS returns the methods.
        """
        allowed: Mapping[str, Call] = {}
        for methods, steps in _matching(scope["path"]):
            if (call := methods.get(scope["method"])) is not None:
                scope["route"] = call  # its path is the label of metrics, as below
                answer = await call.answer(Request(scope, receive), steps, self._service)
                break
            allowed = allowed or methods
        else:
            if not allowed:
                raise ProblemError("not-found", NO_PATH)
            scope["route"] = next(iter(allowed.values()))
            names = sorted({*allowed, "OPTIONS", *({"HEAD"} if "GET" in allowed else ())})
            headers = {"Allow": ", ".join(names)}
            if scope["method"] != "OPTIONS":
                raise ProblemError("method-not-allowed", "see Allow for the methods", headers=headers)
            answer = Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        await answer(scope, receive, send)


@cache
def _document() -> dict[str, Any]:
    return document(CALLS)


def _matching(path: str) -> Iterator[tuple[Mapping[str, Call], Mapping[str, str]]]:
    """Yield the calls of each path in the table that matches, by their methods, and the steps of the path."""
    if (calls := _PATHS.get(path)) is not None:
        yield calls, {}
    for pattern, calls in _PATTERNS:
        if (step := pattern.match(path)) is not None:
            yield calls, step.groupdict()


_PATHS: Final[dict[str, dict[str, Call]]] = {}
"""Calls by path and method."""
for _call in chain.from_iterable(CALLS.values()):
    _PATHS.setdefault(_call.path, {})[_call.method] = _call

_PATTERNS: Final = [
    (next(iter(calls.values())).pattern, calls)
    for path, calls in sorted(_PATHS.items(), key=lambda row: -len(re.sub(r"{.*?}", "", row[0])))
    if "{" in path
]
"""Paths with variable steps, ordered by their literal text, the longest first
(``/{id}:pause``, not ``/{id}``).
"""
