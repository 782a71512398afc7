"""Administration of queues: create, describe, delete. A token limited to topics or destinations may use the
queues that match its patterns, none without patterns.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field
from starlette.responses import Response

from selectroute.index.destination import QUEUE
from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQError
from selectroute.queues.settings import QueueDescription, QueueName
from selectroute.registry.model import Items
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.problems import ProblemError
from selectroute.service.queues.models import QueueBody

PATH: Final = "/v1/queues"

Name = Annotated[str, Field(description="A queue's name; encode a slash as %2F, a percent sign as %25.")]


def listed(service: Service, by: Caller) -> Items[QueueName]:
    """Return the queues that the caller may use, ordered by name."""
    by.check_queues()
    return Items([QueueName(name) for name in service.queues.names() if by.permission.may_name(QUEUE, name)])


def get(service: Service, by: Caller, name: Name) -> QueueDescription:
    """Return a queue: its settings, its depth, the oldest of its messages, and how many gets wait for one."""
    by.check_queue(name)
    return replace(service.queues.describe(name), waiting=service.queues.open(name).waiting)


def put(
    service: Service, by: Caller, name: Name, body: QueueBody | None = None
) -> Annotated[Response, QueueDescription]:
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
    described = get(service, by, name)
    location = {"Location": f"{PATH}/{quote(name, safe='')}"}
    return JsonAnswer(described, 201, location) if is_new else JsonAnswer(described)


def delete(
    service: Service,
    by: Caller,
    name: Name,
    purge: Annotated[bool, Field(description="Delete the queue with its messages.")] = False,
) -> Response:
    """Delete an empty queue, or with `purge` also one with messages, unless some are in units of work."""
    by.check_queue(name)
    service.queues.delete(name, purge=purge)
    return Response(status_code=204)
