"""Message on a queue: descriptor, body and typed properties."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from selectroute.queues.message.selector_view import visible_headers, visible_properties
from selectroute.selector.fields import ID_BYTES, NO_ID
from selectroute.selector.message import Message as SelectorMessage
from selectroute.selector.message import MessageError, from_wire, to_wire
from selectroute.selector.values.values import Value
from selectroute.store.errors import DamagedError

__all__ = [
    "ID_BYTES",
    "NO_ID",
    "NO_PROPERTIES",
    "NO_TOKEN",
    "TOKEN_BYTES",
    "UNLIMITED",
    "Descriptor",
    "QueuedMessage",
]

TOKEN_BYTES: Final = 16
"""Bytes of a message token."""

NO_TOKEN: Final = bytes(TOKEN_BYTES)
"""MQMTOK_NONE, the token of no message."""

UNLIMITED: Final = -1
"""MQEI_UNLIMITED, the expiry of a message that never expires."""

NO_PROPERTIES: Final[Mapping[str, Value]] = MappingProxyType({})

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Descriptor(NamedTuple):
    """Descriptor of a message: the fields of IBM's MQMD, and the token. Immutable."""

    msg_id: bytes
    """24 bytes; made by the queue where none is given."""

    correl_id: bytes
    """24 bytes, all zero for none."""

    group_id: bytes
    """24 bytes, all zero for a message that is in no group."""

    msg_seq_number: int
    """Position of a logical message in its group, from 1."""

    offset: int
    """Offset of a segment in its logical message, in bytes from 0."""

    last_in_group: bool
    """True if the group ends with this message."""

    priority: int
    """0 to 9, 9 the most urgent."""

    persistence: bool

    expiry: int
    """Tenths of a second until the message expires, as of put, get or browse; -1 for never."""

    timestamp: int
    """When it was put, in milliseconds since 1970 (UTC)."""

    backout_count: int
    """Number of gets under syncpoint that were backed out."""

    expiration: int
    """JMSExpiration: when it expires, in milliseconds since 1970 (UTC); 0 for never."""

    msg_token: bytes
    """16 bytes by which the queue tells this message from every other that it ever held."""

    @property
    def put_time(self) -> datetime:
        """PutDate and PutTime in one, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.timestamp)


class QueuedMessage(NamedTuple):
    """A message that was got or browsed."""

    descriptor: Descriptor
    body: bytes
    properties: Mapping[str, Value] = NO_PROPERTIES
    """Typed properties with which it was put, headers among them, such as JMSType."""

    queue_key: int = 0
    """Its sort key on the queue: the message of the lowest key is delivered first."""

    @property
    def selector_message(self) -> SelectorMessage:
        """View of the message by selectors, without the body. O(properties)."""
        return SelectorMessage(
            visible_headers(self.descriptor, self.properties),
            visible_properties(self.descriptor, self.properties),
        )


# ---- properties as the text that databases and files have of them


def text_of(properties: Mapping[str, Value]) -> str:
    """Return properties as JSON, with the types that JSON lacks."""
    return json.dumps({name: to_wire(value) for name, value in properties.items()}, ensure_ascii=True)


def properties_of(text: str) -> Mapping[str, Value]:
    """Return the properties that were written as JSON. Raises DamagedError."""
    try:
        found = {name: from_wire(name, value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError, MessageError) as error:
        raise DamagedError(f"the properties of a message on a queue are damaged: {error}") from error
    return MappingProxyType({name: value for name, value in found.items() if value is not None})
