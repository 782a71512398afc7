"""Conversion of a stream's message to one for queues: its descriptor, properties and body."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from selectroute.queues.errors import MQRC_PROPERTY_TYPE_ERROR, failed
from selectroute.queues.message.message import FIELDS, MESSAGE_ID, text_of
from selectroute.queues.message.put_validation import validate_put
from selectroute.queues.settings import QueueSettings
from selectroute.selector.fields import NO_ID
from selectroute.selector.message import Message
from selectroute.selector.values import Byte, Int, Long, Short, Value

SUBSCRIPTION: Final = "selectroute_subscription"
DELIVERY_ID: Final = "selectroute_delivery_id"
REVISION: Final = "selectroute_revision"
TOPIC: Final = "selectroute_topic"
"""Properties that routing adds to a message."""

_OURS: Final = (SUBSCRIPTION, DELIVERY_ID, REVISION, TOPIC, MESSAGE_ID)
_ANY_QUEUE: Final = QueueSettings(max_message_length=1 << 62)


class Routed(NamedTuple):
    """Parts that all deliveries of a message share. None means the queue's default, and for ids no id."""

    msg_id: bytes | None
    correl_id: bytes | None
    group_id: bytes | None
    msg_seq_number: int
    priority: int | None
    persistence: bool | None
    timestamp: int | None
    """JMSTimestamp of the message, in milliseconds since 1970."""

    expiration: int
    """JMSExpiration of the message, in milliseconds since 1970; 0 for never."""

    properties: str
    """Typed properties as JSON."""

    body: bytes


def routed_of(message: Message) -> Routed:
    """Return a message converted for queues, whatever the length of its body. O(properties + body).

    MsgId, CorrelId, GroupId, MsgSeqNumber, priority, persistence, timestamp and expiration are taken from any
    of their names; other headers become properties. A message id that is not the text of 24 bytes
    becomes a property, and the queue makes a MsgId. A text body becomes its UTF-8, a missing one is empty.

    Raises MQError for what no queue can hold, with the reason that ``put`` would give.
    """
    # Most messages have nothing for the descriptor but what `validate_put` takes from their properties.
    described = not (FIELDS.isdisjoint(message.headers) and FIELDS.isdisjoint(message.properties))
    value = message.value if described else _nothing
    sent: dict[str, object] = {
        name: item
        for part in (message.headers, message.properties)
        for name, item in part.items()
        if item is not None and name not in FIELDS and name not in _OURS
    }
    if message.topic is not None:
        sent[TOPIC] = message.topic
    msg_id = value("@Root.MQMD.MsgId")
    own_id = value("JMSMessageID")
    if msg_id is None and own_id is not None:
        sent[MESSAGE_ID] = own_id
    sequence = _whole(value("@Root.MQMD.MsgSeqNumber"))
    mode = value("@JMSDeliveryMode")
    body = message.body.encode() if isinstance(message.body, str) else message.body or b""
    admitted = validate_put(
        _ANY_QUEUE,
        body,
        _octets(msg_id),
        _octets(value("@Root.MQMD.CorrelId")) or NO_ID,
        _octets(value("@Root.MQMD.GroupId")) or NO_ID,
        1 if sequence is None else sequence,
        priority=_whole(value("@JMSPriority")),
        persistence=None if mode is None else mode == "PERSISTENT",
        # These properties count towards the limit.
        properties=sent | dict.fromkeys((SUBSCRIPTION, DELIVERY_ID), "") | {REVISION: 0},
    )
    properties = {name: item for name, item in (admitted.properties or {}).items() if name not in _OURS[:3]}
    timestamp, expiration = _whole(value("@JMSTimestamp")), _whole(value("@JMSExpiration")) or 0
    return Routed(
        admitted.msg_id,
        None if admitted.correl_id == NO_ID else admitted.correl_id,
        None if admitted.group_id == NO_ID else admitted.group_id,
        admitted.msg_seq_number,
        None if value("@JMSPriority") is None else admitted.priority,
        None if mode is None else admitted.persistence,
        timestamp if timestamp is not None and timestamp >= 0 else None,
        # What expired before 1970 has expired, too.
        max(1, expiration) if expiration else 0,
        text_of(properties),
        admitted.body,
    )


def with_delivery(properties: str, subscription: str, delivery_id: str, revision: int) -> str:
    """Return the properties of one delivery of a message, as JSON.

    >>> with_delivery('{"color": "red"}', "s", "a.jsonl/0/7/s", 3)
    '{"color": "red", "selectroute_subscription": "s", "selectroute_delivery_id": "a.jsonl/0/7/s", \
"selectroute_revision": 3}'
    """
    more = json.dumps({SUBSCRIPTION: subscription, DELIVERY_ID: delivery_id, REVISION: revision})
    return more if properties == "{}" else f"{properties[:-1]}, {more[1:]}"


def _nothing(name: str) -> None:
    """Return None: a message without descriptor fields."""


def _whole(value: Value | None) -> int | None:
    if value is None or isinstance(value, Byte | Short | Int | Long):
        return None if value is None else value.value
    raise failed(MQRC_PROPERTY_TYPE_ERROR, "a number of the descriptor must be an integer")


def _octets(value: Value | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise failed(MQRC_PROPERTY_TYPE_ERROR, "an id of the descriptor must be bytes")
