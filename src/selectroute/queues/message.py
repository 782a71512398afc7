"""A message as queues hold it: its descriptor, its body and its typed properties."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from selectroute.queues.visible import visible_headers, visible_properties
from selectroute.selector.fields import ID_BYTES, NO_ID
from selectroute.selector.message import Message as SelectorMessage
from selectroute.selector.values import Value

__all__ = [
    "ID_BYTES",
    "NO_ID",
    "NO_PROPERTIES",
    "NO_TOKEN",
    "TOKEN_BYTES",
    "UNLIMITED",
    "Descriptor",
    "Message",
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
    """What a queue knows of a message besides its content: the fields of IBM's MQMD, and the token.

    A tuple, so that it costs one small object a message and nobody can change it.
    """

    msg_id: bytes
    """24 bytes; made by the queue where none are given."""

    correl_id: bytes
    """24 bytes, all zero for none."""

    group_id: bytes
    """24 bytes, all zero for a message that is in no group."""

    msg_seq_number: int
    """The place of a logical message in its group, from 1."""

    offset: int
    """Where a segment begins in its logical message, in bytes from 0."""

    last_in_group: bool
    """Whether the group ends with this message."""

    priority: int
    """0 to 9, 9 the most urgent."""

    persistence: bool

    expiry: int
    """Tenths of a second until the message expires, as of put, get or browse; -1 for never."""

    timestamp: int
    """When it was put, in milliseconds since 1970 (UTC)."""

    backout_count: int
    """How often it was got under syncpoint and came back."""

    expiration: int
    """JMSExpiration: when it expires, in milliseconds since 1970 (UTC); 0 for never."""

    msg_token: bytes
    """16 bytes by which the queue tells this message from every other that it ever held."""

    @property
    def put_time(self) -> datetime:
        """PutDate and PutTime in one, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.timestamp)


class Message(NamedTuple):
    """A message that was got or browsed."""

    descriptor: Descriptor
    body: bytes
    properties: Mapping[str, Value] = NO_PROPERTIES
    """The typed properties with which it was put, and the headers among them, such as JMSType."""

    place: int = 0
    """Its place on the queue: a message of a smaller place is got before one of a larger."""

    @property
    def selector_message(self) -> SelectorMessage:
        """The message as selectors see it; the body is not among it. O(properties)."""
        return SelectorMessage(
            visible_headers(self.descriptor, self.properties),
            visible_properties(self.descriptor, self.properties),
        )
