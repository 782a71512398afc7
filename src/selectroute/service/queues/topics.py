"""Publication of a message by IBM MQ's messaging REST API: it is put on the queues of all subscriptions whose
topic filter and selector match it, in one transaction.

A subscription without a queue as its destination gets nothing by this call: its deliveries are files or
records of Kafka, which only a stream writes.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any, Final, Literal

import pyarrow.compute as pc
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from selectroute.index.destination import QUEUE
from selectroute.index.match_report import judged
from selectroute.queues.errors import MQError
from selectroute.queues.message.from_stream import DELIVERY_ID, REVISION, SUBSCRIPTION, TOPIC
from selectroute.queues.message.put_validation import validate_put
from selectroute.queues.message.record import arrived, message_of, new_id_prefix
from selectroute.queues.rest.headers import MESSAGE_ID
from selectroute.queues.settings import QueueSettings
from selectroute.selector.message import Message
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.problems import ProblemError
from selectroute.service.queues.messages import (
    V3,
    Manager,
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
    given = {**fields, "msg_id": msg_id}
    own = dict(given.pop("properties", None) or {})
    put = validate_put(_ANY_QUEUE, body, **given, properties=own)
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
        puts.append((queue, validate_put(queue.settings, body, **given, properties=properties)))
    service.queues.put_all(puts)
    return msg_id


def _queues(subscriptions: Any, ordinals: Any) -> list[tuple[str, str]]:
    """Return those of these subscriptions that are delivered to a queue, with its name."""
    chosen = subscriptions.select(["id", "destination"]).take(ordinals)
    chosen = chosen.filter(pc.fill_null(pc.starts_with(chosen["destination"], f"{QUEUE}:"), False))
    ids, texts = (chosen[name].to_pylist() for name in ("id", "destination"))
    return [(id, text.removeprefix(f"{QUEUE}:")) for id, text in zip(ids, texts, strict=True)]
