"""View of a queued message by selectors: descriptor fields under their names, and properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from selectroute.selector.fields import DERIVED, NO_ID, PREFIX, id_to_text, is_no_id, read
from selectroute.selector.message import HEADER_TYPES
from selectroute.selector.names import INVALID_NAMES, message_breaches
from selectroute.selector.values.values import Int, Long, Value


class _Fields(Protocol):
    """Fields of a descriptor that selectors see; a `Descriptor` and a `Record` have them."""

    @property
    def msg_id(self) -> bytes: ...
    @property
    def correl_id(self) -> bytes: ...
    @property
    def group_id(self) -> bytes: ...
    @property
    def msg_seq_number(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def persistence(self) -> bool: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def backout_count(self) -> int: ...
    @property
    def expiration(self) -> int: ...


CORRELATION: Final = "JMSCorrelationID"
GROUP: Final = "JMSXGroupID"
SEQUENCE: Final = "JMSXGroupSeq"
# Headers that an application may set and that are also in the descriptor: two as 24 bytes, one as a number.


def _sequence(fields: _Fields) -> Int | None:
    grouped = fields.group_id != NO_ID or fields.msg_seq_number != 1
    return Int(fields.msg_seq_number) if grouped else None


_HEADERS: Final[Mapping[str, Callable[[_Fields], Value | None]]] = {
    "JMSMessageID": lambda fields: id_to_text(fields.msg_id),
    "JMSTimestamp": lambda fields: Long(fields.timestamp),
    "JMSPriority": lambda fields: Int(fields.priority),
    "JMSDeliveryMode": lambda fields: "PERSISTENT" if fields.persistence else "NON_PERSISTENT",
    "JMSExpiration": lambda fields: Long(fields.expiration),
    "JMSRedelivered": lambda fields: bool(fields.backout_count),
}
_PROPERTIES: Final[Mapping[str, Callable[[_Fields], Value | None]]] = {
    "JMSXDeliveryCount": lambda fields: Int(fields.backout_count + 1),
    SEQUENCE: _sequence,
}
_TEXTS: Final[Mapping[str, Callable[[_Fields], Value | None]]] = {
    CORRELATION: lambda fields: None if fields.correl_id == NO_ID else id_to_text(fields.correl_id),
    GROUP: lambda fields: None if fields.group_id == NO_ID else id_to_text(fields.group_id),
}
_OWN: Final = {**_HEADERS, **_PROPERTIES}

OWN_PROPERTIES: Final = (*_PROPERTIES, GROUP)
"""Properties that selectors see beside those that an application set."""


def _names_of_fields() -> frozenset[str]:
    """Return every name of a descriptor field, including synonyms."""
    own = set(_OWN) | {"Root.MQMD.CorrelId", "Root.MQMD.GroupId", "Root.MQMD.BackoutCount"}
    found = set(own)
    for name, sources in DERIVED.items():
        if ":" not in name and any(other in own for source in sources for other in source.names):
            found.add(name)
    return frozenset(found - {CORRELATION, GROUP, "jms.Cid", "jms.Gid", SEQUENCE, "jms.Seq"})


FIELDS: Final = _names_of_fields()
"""Names that no property of a message may have, because the descriptor defines them."""


def value_reader(fields: _Fields, properties: Mapping[str, Value]) -> Callable[[str], Value | None]:
    """Return a function that returns the value of each header, property or derived field of a message.

    Equivalent to ``QueuedMessage.selector_message.value``, without creating a `SelectorMessage`.
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
    """Return whether property names break a rule of seed 003; cached, as messages repeat them."""
    return bool(message_breaches([name for name in names if name not in HEADER_TYPES]))


def visible_headers(fields: _Fields, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the headers of a message, including those among its properties."""
    headers: dict[str, Value | None] = {name: field(fields) for name, field in _HEADERS.items()}
    headers[CORRELATION] = _TEXTS[CORRELATION](fields)
    return headers | {name: value for name, value in properties.items() if name in HEADER_TYPES}


def visible_properties(fields: _Fields, properties: Mapping[str, Value]) -> dict[str, Value | None]:
    """Return the properties of a message, including those of its descriptor."""
    found: dict[str, Value | None] = {name: field(fields) for name, field in _PROPERTIES.items()}
    found[GROUP] = _TEXTS[GROUP](fields)
    return found | {name: value for name, value in properties.items() if name not in HEADER_TYPES}
