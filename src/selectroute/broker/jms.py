"""JMS messages in AMQP: what selectors read of a message, and the bytes that a consumer gets.

The mapping is that of Qpid JMS and of OASIS' "AMQP Bindings and Mappings: JMS" (working draft 9): the
properties section has the headers, the application properties are the properties with their types.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, Final
from uuid import UUID

from selectroute.amqp.errors import DECODE_ERROR, AmqpError
from selectroute.amqp.performatives import MAX_UINT, MessageHeader, Properties, write
from selectroute.amqp.sections import MessageSections
from selectroute.amqp.types import Symbol, binary, boolean, decoder, described, map_of_encoded, string
from selectroute.broker.message import PublishedMessage
from selectroute.queues.message.message import CORRELATION, FIELDS, GROUP, MESSAGE_ID, SEQUENCE
from selectroute.queues.message.record import StoredMessage
from selectroute.selector.fields import NO_ID, id_to_text
from selectroute.selector.message import HEADER_TYPES, MAX_NAME_LENGTH, MAX_PROPERTIES
from selectroute.selector.values import Byte, Double, Float, Int, Long, Short, Value

DEFAULT_PRIORITY: Final = 4
_MAX_PRIORITY: Final = 9
_USER: Final = "JMSXUserID"
_DELIVERY_TIME: Final = "x-opt-delivery-time"

decode_properties: Final = decoder(
    {
        "ubyte": Short,
        "byte": Byte,
        "ushort": Int,
        "short": Short,
        "uint": Long,
        "int": Int,
        "ulong": lambda number: Long(number) if number < 1 << 63 else Double(number),
        "long": Long,
        "float": Float,
        "double": Double,
    }
)
"""Decodes application properties to the values of selectors; an unsigned number is one of the next size."""


def published(
    sections: MessageSections, *, topic: str | None, origin: object, now_ms: int
) -> PublishedMessage:
    """Return a message that a client sends to a topic, or to a queue if that is None.

    Raises AmqpError for names of properties, or numbers of them, that JMS does not have.
    """
    header, fields = sections.header, sections.properties
    priority = DEFAULT_PRIORITY if header.priority is None else min(header.priority, _MAX_PRIORITY)
    expiration = now_ms + header.ttl if header.ttl else fields.absolute_expiry_time or 0
    properties, unlike = _properties(sections.application_properties)
    if fields.group_id is not None:
        properties[GROUP] = fields.group_id
        if fields.group_sequence is not None and fields.group_sequence < 1 << 31:
            properties[SEQUENCE] = Int(fields.group_sequence)
    if fields.user_id is not None:
        properties[_USER] = fields.user_id.decode("utf-8", "replace")
    headers: dict[str, Value | None] = {
        "JMSPriority": Int(priority),
        "JMSDeliveryMode": "PERSISTENT" if header.durable else "NON_PERSISTENT",
        "JMSExpiration": Long(expiration),
        "JMSMessageID": _id_text(fields.message_id, "ID:AMQP_NO_PREFIX:"),
        CORRELATION: _id_text(fields.correlation_id, ""),
        "JMSType": fields.subject,
        "JMSReplyTo": fields.reply_to,
        "JMSDestination": fields.to,
    }
    if fields.creation_time is not None:
        headers["JMSTimestamp"] = Long(fields.creation_time)
    due = sections.annotations.get(_DELIVERY_TIME)
    due = int(due) if isinstance(due, int) and not isinstance(due, bool) else 0
    if due:
        headers["JMSDeliveryTime"] = Long(due)
    is_persistent = bool(header.durable)
    return PublishedMessage(
        sections.rest, is_persistent, priority, expiration, headers, properties, unlike, topic, origin, due
    )


def _properties(sent: Mapping[Any, Any]) -> tuple[dict[str, Value | None], list[str]]:
    """Return properties as selectors read them, and the names of those with a type that JMS lacks."""
    if len(sent) > MAX_PROPERTIES:
        raise AmqpError(DECODE_ERROR, f"a message has at most {MAX_PROPERTIES:,} properties")
    properties: dict[str, Value | None] = {}
    unlike = []
    for name, value in sent.items():
        if type(name) is not str or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise AmqpError(
                DECODE_ERROR, f"the name of a property is a text of at most {MAX_NAME_LENGTH:,} characters"
            )
        if name in HEADER_TYPES:
            continue
        if type(value) in _TYPES:
            properties[name] = value
        elif type(value) is Symbol:
            properties[name] = str(value)
        else:
            unlike.append(name)
    return properties, unlike


_TYPES: Final = frozenset({NoneType, bool, str, bytes, Byte, Short, Int, Long, Float, Double})


def _id_text(value: int | UUID | bytes | str | None, prefix: str) -> str | None:
    """Return an id as JMS shows it; a text that does not begin as the ids of JMS do gets a prefix."""
    match value:
        case None:
            return None
        case str():
            return value if value.startswith("ID:") else f"{prefix}{value}"
        case bytes():
            return f"ID:AMQP_BINARY:{value.hex().upper()}"
        case UUID():
            return f"ID:AMQP_UUID:{value}"
        case _:
            return f"ID:AMQP_ULONG:{value}"


# ---- to a consumer


def payload_of(message: PublishedMessage | StoredMessage, count: int, now_ms: int) -> bytes:
    """Return the bytes of a message for a consumer; `count` earlier deliveries of it have failed."""
    if isinstance(message, PublishedMessage):
        is_persistent, body = message.is_persistent, message.body
    else:
        is_persistent, body = message.persistence, message.body if message.is_amqp else _encoded(message)
    ttl = min(max(1, message.expiration - now_ms), MAX_UINT) if message.expiration else None
    return _header(is_persistent, message.priority, ttl, count) + body


@lru_cache(maxsize=1_000)
def _header(is_persistent: bool, priority: int, ttl: int | None, count: int) -> bytes:
    return write(MessageHeader(is_persistent, priority, ttl, count == 0, count))


def _encoded(record: StoredMessage) -> bytes:
    """Encode a message that did not come by AMQP: a body in UTF-8 is a text, any other one is bytes."""
    properties = record.properties or {}
    fields = Properties(
        message_id=_text(properties, MESSAGE_ID) or id_to_text(record.msg_id),
        to=_text(properties, "JMSDestination"),
        subject=_text(properties, "JMSType"),
        reply_to=_text(properties, "JMSReplyTo"),
        correlation_id=_text(properties, CORRELATION) or _id_of(record.correl_id),
        absolute_expiry_time=record.expiration or None,
        creation_time=record.timestamp,
        group_id=_text(properties, GROUP) or _id_of(record.group_id),
        group_sequence=record.msg_seq_number if record.group_id != NO_ID else None,
    )
    own = {
        string(name): _VALUES[type(value)](value)
        for name, value in properties.items()
        if name not in HEADER_TYPES and name not in FIELDS and name != GROUP
    }
    try:
        body = described(0x77, string(record.body.decode()))
    except UnicodeDecodeError:
        body = described(0x75, binary(record.body))
    return write(fields) + described(0x74, map_of_encoded(own)) + body


def _text(properties: Mapping[str, Value], name: str) -> str | None:
    value = properties.get(name)
    return value if isinstance(value, str) else None


def _id_of(octets: bytes) -> str | None:
    return None if octets == NO_ID else id_to_text(octets)


_VALUES: Final[Mapping[type, Any]] = {
    bool: boolean,
    str: string,
    bytes: binary,
    Byte: lambda number: b"\x51" + struct.pack(">b", number.value),
    Short: lambda number: b"\x61" + struct.pack(">h", number.value),
    Int: lambda number: b"\x71" + struct.pack(">i", number.value),
    Long: lambda number: b"\x81" + struct.pack(">q", number.value),
    Float: lambda number: b"\x72" + struct.pack(">f", number.value),
    Double: lambda number: b"\x82" + struct.pack(">d", number.value),
}
