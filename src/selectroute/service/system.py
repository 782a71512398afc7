"""Calls on the service itself: its limits, its health, its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from selectroute.registry.authorization.role import Role
from selectroute.registry.loopback import is_loopback
from selectroute.selector.errors import SelectRouteError
from selectroute.service.context import CallerDep, Service, ServiceDep
from selectroute.service.http.endpoint import Call, JsonAnswer, call
from selectroute.service.http.models import CallerAnswer, StateAnswer
from selectroute.service.http.problems import ProblemError
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import CONTENT_TYPE
from selectroute.service.pages import HEADERS, docs_page, front_page
from selectroute.store.errors import ReplacedError

router = APIRouter(route_class=Call, tags=["service"])


@call(router, "GET", "/v1/limits", Role.reader, response_model=ServiceLimits)
def limits(service: ServiceDep) -> Response:
    """Return the limits of requests."""
    return JsonAnswer(service.limits.model_dump())


@call(router, "GET", "/v1/caller", Role.reader, response_model=CallerAnswer)
def caller(by: CallerDep) -> Response:
    """Return the name, the role and the topics of the caller's token."""
    topics = [one.text for one in by.permission.topics or ()]
    return JsonAnswer({"name": by.name, "role": by.role.name, "topics": topics})


@call(
    router,
    "GET",
    "/metrics",
    Role.reader,
    "forbidden",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(service: ServiceDep, by: CallerDep) -> Response:
    """Return the metrics for Prometheus. Needs a token for all topics, since metrics cover all callers."""
    by.check_all_topics("metrics need a token")
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@call(router, "GET", "/healthz", Role.reader, response_model=StateAnswer)
def health() -> Response:
    """Return ok while the process is alive. Needs no token."""
    return JsonAnswer({"status": "ok"})


@call(
    router,
    "GET",
    "/readyz",
    Role.reader,
    response_model=StateAnswer,
    responses={503: {"model": StateAnswer, "description": "The service is not ready."}},
)
def ready(request: Request, service: ServiceDep) -> Response:
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


@call(router, "GET", "/", Role.reader, include_in_schema=False, response_class=HTMLResponse)
def front(request: Request, service: ServiceDep) -> Response:
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


@call(router, "GET", "/docs", Role.reader, include_in_schema=False, response_class=HTMLResponse)
async def docs(request: Request) -> Response:
    """Return the OpenAPI document as an HTML page."""
    # In the event loop, like /openapi.json: FastAPI stores the document before it is complete.
    state, document = request.app.state, request.app.openapi()
    if not hasattr(state, "docs"):
        state.docs = docs_page(document)
    return HTMLResponse(state.docs, headers=HEADERS)


def _sees_all(service: Service, authorization: str | None) -> bool:
    """Return whether the caller of this Authorization header may see every subscription."""
    try:
        return service.callers.caller(authorization).sees_all
    except ProblemError:
        return False
