"""A message as a queue in memory stores it: one plain tuple.

Ten million messages are mostly a matter of how many places in memory each of them is scattered over: every
one is a wait of a tenth of a microsecond. A plain tuple of texts and numbers is one place, and Python's
collector of cycles soon looks at it no more, as it would at an object of any class.

The fields of a `Descriptor` but for the token come first, in its order; so whatever reads fields by these
positions reads them from either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from selectroute.queues.message import NO_PROPERTIES, Descriptor, Message
from selectroute.queues.positions import BACKOUT_COUNT
from selectroute.queues.visible import visible
from selectroute.selector.values import Value

Record = tuple[Any, ...]

PLACE: Final = 12
BODY: Final = 13
PROPERTIES: Final = 14

_FIELDS: Final = PLACE
"""The fields of the descriptor are those before this one."""


def seen(record: Record) -> Callable[[str], Value | None]:
    """Return what gives the value of each name that a selector reads of a stored message."""
    return visible(record, record[PROPERTIES] or NO_PROPERTIES)


def descriptor_of(record: Record, token_prefix: bytes) -> Descriptor:
    """Return the descriptor of a stored message."""
    return Descriptor._make((*record[:_FIELDS], token_of(record, token_prefix)))


def message_of(record: Record, token_prefix: bytes) -> Message:
    """Return a stored message as it is given out."""
    place, body, properties = record[PLACE:]
    return Message(descriptor_of(record, token_prefix), body, properties or NO_PROPERTIES, place)


def token_of(record: Record, token_prefix: bytes) -> bytes:
    """Return the token of a stored message: 8 bytes of its queue and its place, which no other ever has."""
    return token_prefix + record[PLACE].to_bytes(8, "big")  # type: ignore[no-any-return]


def returned(record: Record) -> Record:
    """Return a message as it is after it was got under syncpoint and came back."""
    return (*record[:BACKOUT_COUNT], record[BACKOUT_COUNT] + 1, *record[BACKOUT_COUNT + 1 :])
