"""ASGI application: all calls, wrapped in the middleware."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from anyio import CapacityLimiter
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from selectroute.queues.sql.queues import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.selector.errors import SelectRouteError
from selectroute.service import system
from selectroute.service.context import Service
from selectroute.service.http.callers import Callers
from selectroute.service.http.endpoint import NO_PATH, Call, invalid
from selectroute.service.http.error_mapping import logged_problem
from selectroute.service.http.middleware import Gate
from selectroute.service.http.openapi import EXAMPLES, SUMMARIES
from selectroute.service.http.problems import MEDIA_TYPE, PROBLEMS, MqErrors, ProblemError
from selectroute.service.http.rates import FairLimiter, OpenBodies, Rates
from selectroute.service.http.short_way import ShortWay
from selectroute.service.jobs import calls
from selectroute.service.jobs.job_output import JobOutput
from selectroute.service.jobs.job_watch import JobWatch
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import Metrics
from selectroute.service.queues import administration, topics
from selectroute.service.queues import bulk as queue_bulk
from selectroute.service.queues import messages as queue_messages
from selectroute.service.queues.waiting import QueueWaiting
from selectroute.service.subscriptions import bulk, changes, messages, subscriptions, tokens
from selectroute.service.subscriptions.cursors import HiddenCursors
from selectroute.service.subscriptions.publication.batch_waiting import BatchWaiting
from selectroute.service.subscriptions.publication.publishing import Publishing, Watch
from selectroute.service.subscriptions.reports import activity, samples, streams
from selectroute.service.subscriptions.reports.recent_messages import RecentMessages
from selectroute.service.subscriptions.subscriptions import SHORT
from selectroute.storage import Location
from selectroute.storage.location import Where

_ROUTERS: tuple[APIRouter, ...] = (
    bulk.router,
    messages.router,
    changes.router,
    streams.router,
    activity.router,
    samples.router,
    tokens.router,
    system.router,
    queue_messages.router,
    topics.router,
    calls.router,
    queue_bulk.router,
    administration.router,  # /v1/queues/{name} matches every name
    subscriptions.router,  # last: /v1/subscriptions/{id} is the most general path
)

QUEUE_MANAGER: Final = "selectroute"
"""Default name of the service's queue manager."""

_WRITERS: Final = 16
"""Threads, of the pool's 40, that may wait at a time to write: a database has one writer at a time."""

_FASTAPIS_200: Final = "Successful Response"
"""FastAPI's description of a response that succeeds."""

_FASTAPIS_422: Final = "Validation Error"
"""FastAPI's description of the 422 that it adds to every call with parameters that names none. Here such a
call answers 400 or 404.
"""

_PARAMETER: Final = re.compile(r"\{[^}]*\}")

_PARSED: Final = 2
"""Large bodies parsed at the same time: under the GIL more would only slow down other requests."""

_EXPLAINED: Final = 4
"""Requests that explain at the same time: heavy selectors take seconds, and there are 40 threads."""

_SEARCHES: Final = 1
"""Searches at the same time: each looks at all subscriptions, and would take a core from all other calls."""

_MATCHES: Final = 4
"""Messages matched at the same time: the worst take minutes, and would take all threads."""

_SELECTIONS: Final = 8
"""Lookups of messages with a selector at the same time, each for a moment."""

_SCANS: Final = 2
"""Lookups with a selector that take longer than a moment at the same time."""

_JOB_READERS: Final = 8
"""Calls that read folders of jobs at the same time; others wait."""

_AUDITS: Final = 2
"""Audits at the same time, each of which may read for minutes; others wait."""


def create_app(
    registry: Registry,
    *,
    limits: ServiceLimits | None = None,
    tokens_needed: bool = False,
    snapshots: Where | None = None,
    queues: str | None = None,
    queue_manager: str = QUEUE_MANAGER,
    jobs: Mapping[str, JobOutput] | None = None,
) -> FastAPI:
    """Create the service of a registry, an ASGI application. Its lifespan starts and stops the threads.

    Args:
        registry: an open registry; it stays open when the application ends.
        limits: the limits of requests.
        tokens_needed: require a token even if none exists yet.
        snapshots: the folder to which revisions are published; the registry's own by default.
        queues: the URL of the database of queues; the registry's own by default.
        queue_manager: the name of the queue manager of all queues.
        jobs: the output folders of jobs, by name, whose dead letters the service shows and has replayed.
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
        watch=Watch(registry, publishing.note_commit),
        metrics=Metrics(publishing, waiting.__len__),
        cursors=HiddenCursors(lambda: registry.id),
        importing=CapacityLimiter(limits.imports),
        importers=Counter(),
        exporting=CapacityLimiter(limits.exports),
        writing=CapacityLimiter(_WRITERS),
        parsing=CapacityLimiter(_PARSED),
        explaining=CapacityLimiter(_EXPLAINED),
        searching=CapacityLimiter(_SEARCHES),
        matching=FairLimiter(_MATCHES),
        selecting=CapacityLimiter(_SELECTIONS),
        scanning=FairLimiter(_SCANS),
        reading_jobs=CapacityLimiter(_JOB_READERS),
        auditing=CapacityLimiter(_AUDITS),
        queues=SqlQueues((lambda: registry.url) if queues is None else queues),
        queue_manager=queue_manager,
        queue_waiting=waiting,
        batch_waiting=BatchWaiting(lambda: registry.newest_used()),
        recent=RecentMessages(registry),
        jobs=jobs,
        job_watch=JobWatch(jobs),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.publishing.start()
        service.watch.start()
        yield
        service.release()
        service.watch.stop()
        service.publishing.stop()
        service.queues.close()

    single = [one for one in subscriptions.router.routes if isinstance(one, Call) and one.endpoint in SHORT]
    app = _Application(
        lambda rest: Gate(ShortWay(rest, service, single), service),
        _has_telemetry(),
        title="selectroute",
        version="1",
        description="Subscriptions with selectors: register them, change them while messages flow, ask why. "
        "And queues: put messages, get each once, by its ids or by a selector.",
        lifespan=lifespan,
        docs_url=None,  # its pages load scripts of other sites; see `pages`
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_exception_handler(SelectRouteError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for router in _ROUTERS:
        for route in router.routes:
            assert isinstance(route, Call), "made by `call`"
        # As they are: `include_router` makes all of them anew at the first request, for a tenth of a second.
        app.router.routes.extend(router.routes)
    return app


def _has_telemetry() -> bool:
    """Return whether OpenTelemetry is configured, by its variables; FastAPI would ask for it at each request,
    which takes a twentieth of the time of a change.
    """
    return any(name.startswith("OTEL_") for name in os.environ)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SelectRouteError)
    problem = logged_problem(error, request.state.request_id)
    return problem.response(request.state.request_id, request.scope["path"])


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid(error, request.method).response(request.state.request_id, request.scope["path"])


async def _on_http(request: Request, error: Exception) -> Response:
    """Answer requests that the framework refuses: unknown paths and methods. OPTIONS returns the methods."""
    assert isinstance(error, HTTPException)
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(_allowed(request))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
    kinds = {row.status: kind for kind, row in reversed(tuple(PROBLEMS.items()))}
    kind = kinds.get(error.status_code, "invalid-request")
    detail = {"not-found": NO_PATH, "method-not-allowed": "see Allow for the methods"}
    problem = ProblemError(kind, detail.get(kind, PROBLEMS[kind].title), headers=headers)
    return problem.response(request.state.request_id, request.scope["path"])


def _allowed(request: Request) -> list[str]:
    """Return the methods of a path. Each route has one method; if a path matches several templates, the one
    with the most literal text applies (``/{id}:pause``, not ``/{id}``).
    """
    matching = [
        (len(_PARAMETER.sub("", route.path)), method)
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"])
        for method in route.methods or ()
    ]
    longest = max((length for length, _ in matching), default=0)
    methods = {method for length, method in matching if length == longest}
    return sorted({*methods, "OPTIONS", *({"HEAD"} if "GET" in methods else ())})


class _Application(FastAPI):
    """Application with middleware in front of that of the framework, and whose OpenAPI document also has
    problem documents, summaries and the bearer token.

    Args:
        front: wraps the framework's middleware and router, and answers their errors.
        has_telemetry: whether OpenTelemetry is configured.
        options: those of FastAPI.
    """

    def __init__(self, front: Callable[[ASGIApp], ASGIApp], has_telemetry: bool, **options: Any) -> None:
        self._front = front
        self._has_telemetry = has_telemetry
        if not has_telemetry:
            options["telemetry"] = {"tracing": False, "metrics": False, "logs": False}
        super().__init__(**options)

    def build_middleware_stack(self) -> ASGIApp:
        """Return the middleware and the router. The outermost middleware of the framework has no error to
        answer. It is left out, unless instrumentation looks for it.
        """
        stack = super().build_middleware_stack()
        assert isinstance(stack, ServerErrorMiddleware)
        stack.app = self._front(stack.app)
        return stack if self._has_telemetry else stack.app

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            found = super().openapi()
            components = found.setdefault("components", {})
            schema = MqErrors.model_json_schema(ref_template="#/components/schemas/{model}")
            components.setdefault("schemas", {}).update({**schema.pop("$defs", {}), "MqErrors": schema})
            schemes = {"token": "bearer", "password": "basic"}
            components["securitySchemes"] = {
                name: {"type": "http", "scheme": scheme} for name, scheme in schemes.items()
            }
            found["security"] = [{}, *({name: []} for name in schemes)]
            for path, operations in found["paths"].items():
                for method, operation in operations.items():
                    name = f"{method.upper()} {path}"
                    operation["summary"] = SUMMARIES[name]
                    for media_type, example in EXAMPLES.get(name, {}).items():
                        operation["requestBody"]["content"][media_type]["example"] = example
                    answers = operation["responses"]
                    if answers.get("422", {}).get("description") == _FASTAPIS_422:
                        del answers["422"]
                    # This service does not use FastAPI's format of validation errors.
                    if MEDIA_TYPE in answers.get("422", {}).get("content", {}):
                        answers["422"]["content"].pop("application/json", None)
                    for answer in answers.values():
                        if answer["description"] == _FASTAPIS_200:
                            answer["description"] = "The call succeeded."
                    operation["responses"] = dict(sorted(answers.items()))
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            self.openapi_schema = found
        return self.openapi_schema
