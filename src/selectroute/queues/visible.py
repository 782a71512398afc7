"""What selectors see of a message on a queue: the fields of its descriptor under their names, and its
properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from selectroute.selector.fields import DERIVED, NO_ID, PREFIX, id_to_text, read
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.names import INVALID_NAMES, breaches
from selectroute.selector.values import Int, Long, Value

if TYPE_CHECKING:
    from selectroute.queues.message import Descriptor

CORRELATION: Final = "JMSCorrelationID"
GROUP: Final = "JMSXGroupID"
SEQUENCE: Final = "JMSXGroupSeq"
# What an application may set by these names is also in the descriptor: two texts, whose 24 bytes are there,
# and a number.


def _sequence(descriptor: Descriptor) -> Int | None:
    grouped = descriptor.group_id != NO_ID or descriptor.msg_seq_number != 1
    return Int(descriptor.msg_seq_number) if grouped else None


_HEADERS: Final[Mapping[str, Callable[[Descriptor], Value | None]]] = {
    "JMSMessageID": lambda descriptor: id_to_text(descriptor.msg_id),
    "JMSTimestamp": lambda descriptor: Long(descriptor.timestamp),
    "JMSPriority": lambda descriptor: Int(descriptor.priority),
    "JMSDeliveryMode": lambda descriptor: "PERSISTENT" if descriptor.persistence else "NON_PERSISTENT",
    "JMSExpiration": lambda descriptor: Long(descriptor.expiration),
    "JMSRedelivered": lambda descriptor: descriptor.backout_count > 0,
}
_PROPERTIES: Final[Mapping[str, Callable[[Descriptor], Value | None]]] = {
    "JMSXDeliveryCount": lambda descriptor: Int(descriptor.backout_count + 1),
    SEQUENCE: _sequence,
}
_TEXTS: Final[Mapping[str, Callable[[Descriptor], Value | None]]] = {
    CORRELATION: lambda descriptor: (
        None if descriptor.correl_id == NO_ID else id_to_text(descriptor.correl_id)
    ),
    GROUP: lambda descriptor: None if descriptor.group_id == NO_ID else id_to_text(descriptor.group_id),
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


def visible(descriptor: Descriptor, properties: Mapping[str, Value]) -> Callable[[str], Value | None]:
    """Return what gives the value of each header, property or derived field of a message.

    The same as ``Message.selector_message.value``, without making that.
    """

    def own(name: str) -> Value | None:
        field = _OWN.get(name)
        if field is not None:
            return field(descriptor)
        value = properties.get(name)
        if value is None and name in _TEXTS:
            return _TEXTS[name](descriptor)
        return value

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
    return bool(breaches([name for name in names if name not in HEADER_TYPES]))


def visible_headers(descriptor: Descriptor, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the headers of a message, those among its properties too."""
    headers: dict[str, Value | None] = {name: field(descriptor) for name, field in _HEADERS.items()}
    headers[CORRELATION] = _TEXTS[CORRELATION](descriptor)
    return headers | {name: value for name, value in properties.items() if name in HEADER_TYPES}


def visible_properties(descriptor: Descriptor, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the properties of a message, those that its descriptor gives too."""
    found: dict[str, Value | None] = {name: field(descriptor) for name, field in _PROPERTIES.items()}
    found[GROUP] = _TEXTS[GROUP](descriptor)
    return found | {name: value for name, value in properties.items() if name not in HEADER_TYPES}
