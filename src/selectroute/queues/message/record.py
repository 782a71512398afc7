"""Record of a stored message: a flat tuple with its key, by which the lowest is delivered first."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from selectroute.amqp.sections import application_body
from selectroute.queues.message.message import (
    NO_PROPERTIES,
    UNLIMITED,
    Descriptor,
    QueuedMessage,
    value_reader,
)
from selectroute.queues.message.put_validation import MAX_EXPIRY, ValidatedPut
from selectroute.selector.values import Value

URGENCY: Final = 56
"""Bits below the urgency (9 minus the priority): enough for a million arrivals a second for 2,000 years."""

ARRIVALS: Final = (1 << URGENCY) - 1
"""Mask of the arrival number in a key."""

MAX_KEY: Final = (1 << 63) - 1
"""Largest key that a database can hold."""


def queue_key_of(arrival: int, priority: int | None) -> int:
    """Return the key of the message that arrived as number `arrival`, counted from 1."""
    return arrival if priority is None else (9 - priority) << URGENCY | arrival


def queue_key_in(msg_token: bytes) -> int:
    """Return the key that a message token contains."""
    return int.from_bytes(msg_token[8:], "big")


class Field(IntEnum):
    """Positions of the fields by which messages are found, in a `StoredMessage` and in a `Match`."""

    MSG_ID = 0
    CORREL_ID = 1
    GROUP_ID = 2
    MSG_SEQ_NUMBER = 3
    OFFSET = 4


class StoredMessage(NamedTuple):
    """Stored message. Its first twelve fields are those of a `Descriptor`, without the token."""

    msg_id: bytes
    correl_id: bytes
    group_id: bytes
    msg_seq_number: int
    offset: int
    last_in_group: bool
    priority: int
    persistence: bool
    expiry: int
    timestamp: int
    backout_count: int
    expiration: int
    queue_key: int
    body: bytes
    properties: Mapping[str, Value] | None
    """None for none."""

    is_amqp: bool
    """True if `body` is a message of AMQP, from its annotations on."""


DESCRIPTOR_FIELDS: Final = 12
"""Number of fields at the beginning of a record that are the descriptor's."""

_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long


# ---- creation when a message arrives


def new_id_prefix() -> bytes:
    """Return 16 bytes before the arrival number in the message ids of a queue; no other queue has them.

    They begin as IBM MQ's own ids do.
    """
    return b"AMQ " + secrets.token_bytes(12)


def arrived(
    message: ValidatedPut, arrival: int, by_priority: bool, id_prefix: bytes, now_ms: int
) -> StoredMessage:
    """Return the record of a message that arrives on a queue now.

    Args:
        message: the validated put.
        arrival: the number of the arrival on this queue, from 1.
        by_priority: whether the queue delivers by priority instead of by arrival alone.
        id_prefix: for the message id, if the message has none.
        now_ms: the time, in milliseconds since 1970.
    """
    body, msg_id, correl_id, group_id, sequence, offset, last, priority, persistence, expiry, own = message[
        :11
    ]
    timestamp, expiration, is_amqp = message[11:]
    if expiration is None:
        expiration = 0 if expiry == UNLIMITED else now_ms + 100 * expiry
    return _made(
        StoredMessage,
        (
            msg_id or id_prefix + arrival.to_bytes(8, "big"),
            correl_id,
            group_id,
            sequence,
            offset,
            last,
            priority,
            persistence,
            expiry,
            now_ms if timestamp is None else timestamp,
            0,
            expiration,
            queue_key_of(arrival, priority if by_priority else None),
            body,
            own,
            is_amqp,
        ),
    )


def expiry_at(expiration: int, now_ms: int) -> int:
    """Return the expiry, in tenths of a second, of a message that expires at a time; -1 for never.

    A message that has already expired gets the shortest possible expiry. One that expires later than an MQMD
    can say never expires, as in IBM MQ.
    """
    tenths = -(-(expiration - now_ms) // 100)
    return UNLIMITED if not expiration or tenths > MAX_EXPIRY else max(1, tenths)


# ---- read by lookups and callers


def selector_values(record: StoredMessage) -> Callable[[str], Value | None]:
    """Return a function that returns the value of each name that a selector reads of a stored message."""
    # A record begins with the fields of a descriptor.
    return value_reader(record, record.properties or NO_PROPERTIES)  # type: ignore[arg-type]


def descriptor_of(record: StoredMessage, token_prefix: bytes) -> Descriptor:
    """Return the descriptor of a stored message."""
    token = token_prefix + record.queue_key.to_bytes(8, "big")  # of its queue, and unique there
    return _made(Descriptor, (*record[:DESCRIPTOR_FIELDS], token))


def message_of(record: StoredMessage, token_prefix: bytes) -> QueuedMessage:
    """Return a stored message with the expiry of its put."""
    key, body, properties, is_amqp = record[DESCRIPTOR_FIELDS:]
    if is_amqp and body:
        body = application_body(body)
    descriptor = _made(Descriptor, (*record[:DESCRIPTOR_FIELDS], token_prefix + key.to_bytes(8, "big")))
    return _made(QueuedMessage, (descriptor, body, NO_PROPERTIES if properties is None else properties, key))


def current_message_of(
    record: StoredMessage, token_prefix: bytes, clock: Callable[[], float]
) -> QueuedMessage:
    """Return a stored message with its remaining expiry."""
    message = message_of(record, token_prefix)
    if record.expiry == UNLIMITED:
        return message
    left = expiry_at(record.expiration, int(clock() * 1000))
    return message._replace(descriptor=message.descriptor._replace(expiry=left))


def backed_out(record: StoredMessage) -> StoredMessage:
    """Return a record with its backout count raised, after a backed out get."""
    return record._replace(backout_count=record.backout_count + 1)
