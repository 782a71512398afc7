"""Calls on queues themselves: create, describe, delete, and publish a message to a topic.

A token limited to topics or destinations may use the queues that match its patterns, none without patterns.

Publication by IBM MQ's messaging REST API puts a message on the queues of all subscriptions whose topic
filter and selector match it, in one transaction. A subscription without a queue as its destination gets
nothing by this call: its deliveries are files or records of Kafka, which only a stream writes.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import pyarrow.compute as pc
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from selectroute.index.destination import QUEUE
from selectroute.index.match_report import judged
from selectroute.queues.errors import MQRC_OBJECT_ALREADY_EXISTS, MQError
from selectroute.queues.message.from_stream import DELIVERY_ID, REVISION, SUBSCRIPTION, TOPIC
from selectroute.queues.message.put_validation import validate_put
from selectroute.queues.message.record import arrived, message_of, new_id_prefix
from selectroute.queues.rest.headers import MESSAGE_ID
from selectroute.queues.settings import QueueDescription, QueueName, QueueSettings
from selectroute.registry.model import Items
from selectroute.selector.message import Message
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.problems import ProblemError
from selectroute.service.queues.messages import (
    V3,
    Manager,
    Name,
    QueueBody,
    check_manager,
    request_fields,
    writing,
)
from selectroute.service.subscriptions.messages import newest_snapshot

MOST_PUTS: Final = 1_000
"""Messages that one call puts at most: until its transaction ends, no other call writes."""

MOST_BYTES: Final = 32 << 20

_ANY_QUEUE: Final = QueueSettings()


async def publish(
    request: Request,
    service: Service,
    by: Caller,
    version: Annotated[Literal["v2", "v3"], Field(description="The version of the API.")],
    qmgr: Manager,
    topic: Annotated[str, Field(description="The topic, with its slashes.")],
) -> Response:
    """Publish a message: put it on the queue of each subscription that matches it, on all or on none.

    Subscriptions without a queue as destination get nothing by this call. Needs a token without limits.
    """
    by.check_unlimited("publishing needs a token")
    check_manager(service, qmgr)
    if any(level in ("+", "#") for level in topic.split("/")):
        raise ProblemError("invalid-request", "a message's topic has no wildcards", place="topic")
    fields = request_fields(request, by, service.limits)
    if version != V3:
        fields = {"priority": 4, **fields}  # the default of IBM MQ's version 2
    body = await request.body()
    msg_id = await writing(service, lambda: _published(service, topic, body, fields))
    digits = msg_id.hex()
    return Response(
        status_code=201, headers={MESSAGE_ID: f"ID:{digits.upper()}" if version == V3 else digits}
    )


def _published(service: Service, topic: str, body: bytes, fields: dict[str, Any]) -> bytes:
    """Put a message on the queues of the subscriptions that match it; return its id."""
    msg_id: bytes = fields.get("msg_id") or new_id_prefix() + secrets.token_bytes(8)
    fields_with_id = {**fields, "msg_id": msg_id}
    own = dict(fields_with_id.pop("properties", None) or {})
    put = validate_put(_ANY_QUEUE, body, **fields_with_id, properties=own)
    seen = message_of(arrived(put, 1, False, b"", int(time.time() * 1000)), b"").selector_message
    message = Message(seen.headers, seen.properties, topic, body)
    snapshot = newest_snapshot(service)
    with service.metrics.match_seconds.time():
        verdict = judged(snapshot, message)
    queues = [_queues(snapshot.subscriptions, ordinals) for ordinals in (verdict.matched, verdict.refused)]
    if queues[1]:
        detail = f"it cannot be decided whether the subscription {queues[1][0][0]!r} gets the message"
        raise ProblemError("invalid-message", detail)
    if len(queues[0]) > MOST_PUTS or len(queues[0]) * len(body) > MOST_BYTES:
        raise ProblemError(
            "message-too-large",
            f"{len(queues[0]):,} subscriptions deliver the message to queues: one call puts at most "
            f"{MOST_PUTS:,} messages with {MOST_BYTES:,} bytes; use a stream",
        )
    puts = []
    for subscription, name in queues[0]:
        properties = own | {
            SUBSCRIPTION: subscription,
            DELIVERY_ID: f"{msg_id.hex()}/{subscription}",
            REVISION: snapshot.revision,
            TOPIC: topic,
        }
        try:
            queue = service.queues.open(name)
        except MQError as error:
            detail = f"the subscription {subscription!r} delivers to the queue {name!r}, which does not exist"
            raise ProblemError("queue-not-found", detail) from error
        puts.append((queue, validate_put(queue.settings, body, **fields_with_id, properties=properties)))
    service.queues.put_all(puts)
    return msg_id


def _queues(subscriptions: Any, ordinals: Any) -> list[tuple[str, str]]:
    """Return the ids and queues of the subscriptions at these ordinals whose destination is a queue."""
    chosen = subscriptions.select(["id", "destination"]).take(ordinals)
    chosen = chosen.filter(pc.fill_null(pc.starts_with(chosen["destination"], f"{QUEUE}:"), False))
    ids, texts = (chosen[name].to_pylist() for name in ("id", "destination"))
    return [(id, text.removeprefix(f"{QUEUE}:")) for id, text in zip(ids, texts, strict=True)]


PATH: Final = "/v1/queues"


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
