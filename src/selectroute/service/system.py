"""The service itself: its limits, its health, its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from selectroute.selector.errors import SelectRouteError
from selectroute.service.callers import Role
from selectroute.service.calls import Call, JsonAnswer, call
from selectroute.service.context import The
from selectroute.service.limits import ServiceLimits
from selectroute.service.metrics import CONTENT_TYPE
from selectroute.service.models import StateAnswer
from selectroute.store.errors import ReplacedError

router = APIRouter(route_class=Call, tags=["service"])


@call(router, "GET", "/v1/limits", Role.reader, response_model=ServiceLimits)
def limits(service: The) -> Response:
    """What a request may hold and ask for."""
    return JsonAnswer(service.limits.model_dump())


@call(
    router,
    "GET",
    "/metrics",
    Role.reader,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(service: The) -> Response:
    """What is counted, for Prometheus."""
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@call(router, "GET", "/healthz", Role.reader, response_model=StateAnswer)
def health() -> Response:
    """The process answers."""
    return JsonAnswer({"status": "ok"})


@call(
    router,
    "GET",
    "/readyz",
    Role.reader,
    response_model=StateAnswer,
    responses={503: {"model": StateAnswer, "description": "It cannot be asked now."}},
)
def ready(service: The) -> Response:
    """The registry can be read, and a revision is published."""
    try:
        state = service.publishing.state()
    except ReplacedError as error:
        return JsonAnswer({"status": "not ready", "reason": str(error)}, 503)
    except SelectRouteError:
        return JsonAnswer({"status": "not ready", "reason": "the registry cannot be read"}, 503)
    data = {"revision": state.revision}
    if state.snapshot is None:
        return JsonAnswer({"status": "not ready", **data, "reason": "no revision is published yet"}, 503)
    reason = {} if state.failure is None else {"reason": "the newest changes cannot be published"}
    return JsonAnswer({"status": "ready", **data, "published": state.snapshot.revision, **reason})
