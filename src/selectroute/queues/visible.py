"""What selectors see of a message on a queue: the fields of its descriptor under their names, and its
properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from selectroute.queues.positions import (
    BACKOUT_COUNT,
    CORREL_ID,
    EXPIRATION,
    GROUP_ID,
    MSG_ID,
    MSG_SEQ_NUMBER,
    PERSISTENCE,
    PRIORITY,
    TIMESTAMP,
)
from selectroute.selector.fields import DERIVED, NO_ID, PREFIX, id_to_text, is_no_id, read
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.names import INVALID_NAMES, message_breaches
from selectroute.selector.values import Int, Long, Value

Fields = tuple[Any, ...]
"""A descriptor, or whatever else has its fields in their positions."""

CORRELATION: Final = "JMSCorrelationID"
GROUP: Final = "JMSXGroupID"
SEQUENCE: Final = "JMSXGroupSeq"
# What an application may set by these names is also in the descriptor: two texts, whose 24 bytes are there,
# and a number.


def _sequence(fields: Fields) -> Int | None:
    grouped = fields[GROUP_ID] != NO_ID or fields[MSG_SEQ_NUMBER] != 1
    return Int(fields[MSG_SEQ_NUMBER]) if grouped else None


_HEADERS: Final[Mapping[str, Callable[[Fields], Value | None]]] = {
    "JMSMessageID": lambda fields: id_to_text(fields[MSG_ID]),
    "JMSTimestamp": lambda fields: Long(fields[TIMESTAMP]),
    "JMSPriority": lambda fields: Int(fields[PRIORITY]),
    "JMSDeliveryMode": lambda fields: "PERSISTENT" if fields[PERSISTENCE] else "NON_PERSISTENT",
    "JMSExpiration": lambda fields: Long(fields[EXPIRATION]),
    "JMSRedelivered": lambda fields: bool(fields[BACKOUT_COUNT]),
}
_PROPERTIES: Final[Mapping[str, Callable[[Fields], Value | None]]] = {
    "JMSXDeliveryCount": lambda fields: Int(fields[BACKOUT_COUNT] + 1),
    SEQUENCE: _sequence,
}
_TEXTS: Final[Mapping[str, Callable[[Fields], Value | None]]] = {
    CORRELATION: lambda fields: None if fields[CORREL_ID] == NO_ID else id_to_text(fields[CORREL_ID]),
    GROUP: lambda fields: None if fields[GROUP_ID] == NO_ID else id_to_text(fields[GROUP_ID]),
}
_OWN: Final = {**_HEADERS, **_PROPERTIES}


def _names_of_fields() -> frozenset[str]:
    """Every name of a field that the descriptor has, the synonyms too."""
    own = set(_OWN) | {"Root.MQMD.CorrelId", "Root.MQMD.GroupId", "Root.MQMD.BackoutCount"}
    found = set(own)
    for name, sources in DERIVED.items():
        if ":" not in name and any(other in own for source in sources for other in source.names):
            found.add(name)
    return frozenset(found - {CORRELATION, GROUP, "jms.Cid", "jms.Gid", SEQUENCE, "jms.Seq"})


FIELDS: Final = _names_of_fields()
"""The names that no property of a message may have, because the descriptor says what they are."""


def visible(fields: Fields, properties: Mapping[str, Value]) -> Callable[[str], Value | None]:
    """Return what gives the value of each header, property or derived field of a message.

    The same as ``Message.selector_message.value``, without making that.
    """

    def own(name: str) -> Value | None:
        field = _OWN.get(name)
        if field is not None:
            return field(fields)
        value = properties.get(name)
        if value is None and name in _TEXTS:
            return _TEXTS[name](fields)
        return None if is_no_id(name, value) else value

    def value(name: str) -> Value | None:
        if name.startswith(PREFIX):
            if name == INVALID_NAMES:
                return _breaches(tuple(properties))
            if name[1:] in DERIVED:
                return read(name[1:], own)
        return own(name)

    return value


@lru_cache(maxsize=10_000)
def _breaches(names: tuple[str, ...]) -> bool:
    """Whether names of properties break a rule of seed 003; the messages of an application have the same."""
    return bool(message_breaches([name for name in names if name not in HEADER_TYPES]))


def visible_headers(fields: Fields, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the headers of a message, those among its properties too."""
    headers: dict[str, Value | None] = {name: field(fields) for name, field in _HEADERS.items()}
    headers[CORRELATION] = _TEXTS[CORRELATION](fields)
    return headers | {name: value for name, value in properties.items() if name in HEADER_TYPES}


def visible_properties(fields: Fields, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the properties of a message, those that its descriptor gives too."""
    found: dict[str, Value | None] = {name: field(fields) for name, field in _PROPERTIES.items()}
    found[GROUP] = _TEXTS[GROUP](fields)
    return found | {name: value for name, value in properties.items() if name not in HEADER_TYPES}
