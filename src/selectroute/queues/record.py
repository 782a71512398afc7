"""A message as queues hand it around inside: one plain tuple, which `Block` packs.

The fields of a `Descriptor` but for the token come first, in its order; so whatever reads fields by these
positions reads them from either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from selectroute.queues.message import NO_PROPERTIES, UNLIMITED, Descriptor, Message
from selectroute.queues.positions import BACKOUT_COUNT, EXPIRATION, EXPIRY
from selectroute.queues.visible import visible
from selectroute.selector.values import Value

Record = tuple[Any, ...]

PLACE: Final = 12
BODY: Final = 13
PROPERTIES: Final = 14

_FIELDS: Final = PLACE
"""The fields of the descriptor are those before this one."""

_made = tuple.__new__  # a NamedTuple's own way takes twice as long


def seen(record: Record) -> Callable[[str], Value | None]:
    """Return what gives the value of each name that a selector reads of a stored message."""
    return visible(record, record[PROPERTIES] or NO_PROPERTIES)


def descriptor_of(record: Record, token_prefix: bytes) -> Descriptor:
    """Return the descriptor of a stored message."""
    return _made(Descriptor, (*record[:_FIELDS], token_of(record, token_prefix)))


def message_of(record: Record, token_prefix: bytes) -> Message:
    """Return a stored message as it is given out."""
    place, body, properties = record[PLACE:]
    token = token_prefix + place.to_bytes(8, "big")
    descriptor = _made(Descriptor, (*record[:_FIELDS], token))
    return _made(Message, (descriptor, body, NO_PROPERTIES if properties is None else properties, place))


def given_out(record: Record, token_prefix: bytes, clock: Callable[[], float]) -> Message:
    """Return a stored message as it is given out, with the expiry that is left."""
    message = message_of(record, token_prefix)
    if record[EXPIRY] == UNLIMITED:
        return message
    left = record[EXPIRATION] - int(clock() * 1000)
    return message._replace(descriptor=message.descriptor._replace(expiry=max(1, -(-left // 100))))


def token_of(record: Record, token_prefix: bytes) -> bytes:
    """Return the token of a stored message: 8 bytes of its queue and its place, which no other ever has."""
    return token_prefix + record[PLACE].to_bytes(8, "big")  # type: ignore[no-any-return]


def returned(record: Record) -> Record:
    """Return a message as it is after it was got under syncpoint and came back."""
    return (*record[:BACKOUT_COUNT], record[BACKOUT_COUNT] + 1, *record[BACKOUT_COUNT + 1 :])
