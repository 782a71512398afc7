"""Calls on the service itself: its limits, its health, its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from selectroute.loopback import is_loopback
from selectroute.registry.authorization import Role
from selectroute.selector.errors import SelectRouteError
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import StateAnswer
from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import CONTENT_TYPE
from selectroute.service.pages import HEADERS, docs_page, front_page
from selectroute.store.errors import ReplacedError


def limits(service: Service) -> Annotated[Response, ServiceLimits]:
    """Return the limits of requests."""
    return JsonAnswer(service.limits.model_dump())


@dataclass(frozen=True, slots=True)
class CallerAnswer:
    """Caller of the service: a token's name, role and permitted topics (all if there are none); without
    tokens the name is null.
    """

    name: str | None
    role: Role
    topics: list[str]


def caller(by: Caller) -> CallerAnswer:
    """Return the name, the role and the topics of the caller's token."""
    return CallerAnswer(by.name, by.role, [one.text for one in by.permission.topics or ()])


def metrics(service: Service, by: Caller) -> Response:
    """Return the metrics for Prometheus. Needs a token for all topics, since metrics cover all callers."""
    by.check_all_topics("metrics need a token")
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def health() -> Annotated[Response, StateAnswer]:
    """Return ok while the process is alive. Needs no token."""
    return JsonAnswer({"status": "ok"})


def ready(request: Request, service: Service) -> Annotated[Response, StateAnswer]:
    """Return whether the registry is readable and a revision is published. Needs no token; the revisions are
    shown only to callers who may see all subscriptions.
    """
    try:
        state = service.publishing.state()
        sees_all = _sees_all(service, request.headers.get("authorization"))
    except ReplacedError as error:
        return JsonAnswer({"status": "not ready", "reason": str(error)}, 503)
    except SelectRouteError:
        return JsonAnswer({"status": "not ready", "reason": "the registry cannot be read"}, 503)
    data: dict[str, int | str | None] = {"revision": state.revision} if sees_all else {}
    if state.snapshot is None:
        return JsonAnswer({"status": "not ready", **data, "reason": "no revision is published yet"}, 503)
    if sees_all:
        data["published"] = state.snapshot.revision
    reason = {} if state.failure is None else {"reason": "the newest changes cannot be published"}
    return JsonAnswer({"status": "ready", **data, **reason})


def front(request: Request, service: Service) -> Response:
    """Return the front page. Needs no token; shows counts to callers who may see all subscriptions."""
    facts: dict[str, str] = {}
    try:
        # Protects the counts from DNS rebinding if no token is needed.
        is_own = is_loopback(request.url.hostname or "") or not service.callers.is_open()
        if is_own and _sees_all(service, request.headers.get("authorization")):
            state = service.publishing.state()
            published = "none yet" if state.snapshot is None else str(state.snapshot.revision)
            facts = {
                "Revision": str(state.revision),
                "Published revision": published,
                "Subscriptions": f"{len(service.registry):,}",
                "Active ones, as published": "0" if state.snapshot is None else f"{len(state.snapshot):,}",
                "Queues": f"{len(service.queues.names()):,}",
            }
    except SelectRouteError:
        facts = {"State": "the database cannot be read; the service's log says why"}
    return HTMLResponse(front_page(facts), headers=HEADERS)


async def docs(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    state = request.app.state
    if not hasattr(state, "docs"):
        state.docs = docs_page(request.app.openapi())
    return HTMLResponse(state.docs, headers=HEADERS)


async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return JsonAnswer(request.app.openapi())


def _sees_all(service: Service, authorization: str | None) -> bool:
    """Return whether the caller of this Authorization header may see every subscription."""
    try:
        return service.callers.caller(authorization).sees_all
    except ProblemError:
        return False
