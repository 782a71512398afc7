"""Administration of queues: create, describe, delete. A token limited to topics or destinations may use the
queues that match its patterns, none without patterns.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response

from selectroute.index.destination import QUEUE
from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQError
from selectroute.queues.sql.queue import SqlQueue
from selectroute.registry.authorization.role import Role
from selectroute.registry.model import time_text
from selectroute.service.context import CallerDep, ServiceDep
from selectroute.service.http.endpoint import Call, JsonAnswer, call
from selectroute.service.http.problems import ProblemError
from selectroute.service.queues.models import QueueAnswer, QueueBody, QueuesAnswer

PATH: Final = "/v1/queues"

router = APIRouter(route_class=Call, prefix=PATH, tags=["queues"])
Name = Annotated[str, Path(description="A queue's name; encode a slash as %2F, a percent sign as %25.")]


@call(router, "GET", "", Role.reader, "forbidden", response_model=QueuesAnswer)
def listed(service: ServiceDep, by: CallerDep) -> Response:
    """Return the queues that the caller may use, ordered by name."""
    by.check_queues()
    names = [name for name in service.queues.names() if by.permission.may_name(QUEUE, name)]
    return JsonAnswer({"items": [{"name": name} for name in names]})


@call(router, "GET", "/{name:path}", Role.reader, "forbidden", "queue-not-found", response_model=QueueAnswer)
def get(service: ServiceDep, by: CallerDep, name: Name) -> Response:
    """Return a queue: its settings, its depth, the oldest of its messages, and how many gets wait for one."""
    by.check_queue(name)
    return JsonAnswer(_described(service.queues.open(name)))


@call(
    router,
    "PUT",
    "/{name:path}",
    Role.admin,
    "invalid-body",
    "invalid-queue",
    "queue-taken",
    "unsupported-media-type",
    "too-large",
    "read-only",
    response_model=QueueAnswer,
    responses={201: {"model": QueueAnswer, "description": "Created."}},
)
def put(service: ServiceDep, by: CallerDep, name: Name, body: QueueBody | None = None) -> Response:
    """Create a queue. Idempotent: succeeds if it exists with these settings, which cannot be changed."""
    by.check_queue(name)
    settings = (body or QueueBody()).settings()
    try:
        is_new = service.queues.create(name, settings)
    except MQError as error:
        if error.reason != MQRC_OBJECT_ALREADY_EXISTS:
            raise
        present = asdict(service.queues.settings(name))
        others = [field for field, value in asdict(settings).items() if value != present[field]]
        detail = f"there is a queue with this name but other settings: {', '.join(others)}"
        raise ProblemError("queue-taken", detail) from None
    described = _described(service.queues.open(name))
    location = {"Location": f"{PATH}/{quote(name, safe='')}"}
    return JsonAnswer(described, 201, location) if is_new else JsonAnswer(described)


@call(
    router,
    "DELETE",
    "/{name:path}",
    Role.admin,
    "queue-not-found",
    "queue-not-empty",
    "read-only",
    status_code=204,
)
def delete(
    service: ServiceDep,
    by: CallerDep,
    name: Name,
    purge: Annotated[bool, Query(description="Delete the queue with its messages.")] = False,
) -> Response:
    """Delete an empty queue, or with `purge` also one with messages, unless some are in units of work."""
    by.check_queue(name)
    service.queues.delete(name, purge=purge)
    return Response(status_code=204)


def _described(queue: SqlQueue) -> dict[str, Any]:
    oldest = queue.oldest
    return {
        "name": queue.name,
        **asdict(queue.settings),
        "depth": queue.depth,
        "oldest": None if oldest is None else time_text(oldest),
        "waiting": queue.waiting,
    }
