"""Headers of a message in IBM MQ's messaging REST API.

The body is that of the request or response, unchanged. IBM's own headers are ``ibm-mq-md-messageId``,
``-correlationId``, ``-priority``, ``-persistence``, ``-expiry`` in milliseconds, ``-replyTo`` and
``ibm-mq-usr``; the other fields of the descriptor have names of the same form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_EXPIRY_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_FLAGS_ERROR,
    MQRC_MSG_SEQ_NUMBER_ERROR,
    MQRC_OFFSET_ERROR,
    MQRC_PERSISTENCE_ERROR,
    MQRC_PRIORITY_ERROR,
)
from selectroute.queues.message.message import CORRELATION, GROUP, UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import MAX_NUMBER
from selectroute.queues.rest.lookup import (
    FIELDS,
    RestError,
    data_of,
    descriptor_of,
    id_of_text,
    is_id,
    message_id_of,
)
from selectroute.queues.rest.properties import PROPERTIES, header_of, properties_of
from selectroute.selector.fields import NO_ID
from selectroute.selector.values import Value

_PREFIX: Final = "ibm-mq-md-"
MESSAGE_ID: Final = "ibm-mq-md-messageId"
CORRELATION_ID: Final = "ibm-mq-md-correlationId"
GROUP_ID: Final = "ibm-mq-md-groupId"
SEQUENCE: Final = "ibm-mq-md-msgSeqNumber"
OFFSET: Final = "ibm-mq-md-offset"
LAST_IN_GROUP: Final = "ibm-mq-md-lastInGroup"
PRIORITY: Final = "ibm-mq-md-priority"
PERSISTENCE: Final = "ibm-mq-md-persistence"
EXPIRY: Final = "ibm-mq-md-expiry"
REPLY_TO: Final = "ibm-mq-md-replyTo"
PUT_DATE: Final = "ibm-mq-md-putDate"
PUT_TIME: Final = "ibm-mq-md-putTime"

OMITTED: Final = "ibm-mq-usr-omitted"
"""Header of a response: the number of properties left out because they do not fit."""

AS_DESTINATION: Final = "asDestination"
"""Value of priority and persistence for the queue's default."""

_JMS_REPLY_TO: Final = "JMSReplyTo"
_NUMBER: Final = re.compile("[0-9]{1,19}")
_QUEUE_URI: Final = re.compile("queue://([^/?@]*)/([^?@]+)")
_CLEAR: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
"""Texts that a header carries unchanged."""


def put_fields(headers: Mapping[str, str], properties: Iterable[str]) -> dict[str, Any]:
    """Return the arguments of `Queue.put` in the headers of a request. Raises RestError.

    Args:
        headers: those of `SETTABLE` that the request has, as Unicode.
        properties: the headers ``ibm-mq-usr``.
    """
    fields: dict[str, Any] = {}
    own = properties_of(properties)
    for name, read in _READ.items():
        if name in headers:
            field, value = read(headers[name].strip())
            if value is not None:
                target = own if field.startswith("JMS") else fields
                if field in target:
                    raise RestError(name, f"{field} is given twice")
                target[field] = value
    if own:
        fields["properties"] = own
    return fields


def headers_of(message: QueuedMessage) -> dict[str, str]:
    """Return a message without its body as headers, in ASCII."""
    descriptor, properties = message.descriptor, dict(message.properties)
    headers = descriptor_headers(descriptor)
    for header, name in ((CORRELATION_ID, CORRELATION), (GROUP_ID, GROUP)):
        text = properties.get(name)
        if isinstance(text, str) and _CLEAR.fullmatch(text) and not is_id(text):
            headers[header] = text
            del properties[name]
    reply_to = properties.get(_JMS_REPLY_TO)
    queue = _QUEUE_URI.fullmatch(reply_to) if isinstance(reply_to, str) else None
    if queue is not None and _CLEAR.fullmatch(queue[2]) and (not queue[1] or _CLEAR.fullmatch(queue[1])):
        headers[REPLY_TO] = queue[2] + (f"@{queue[1]}" if queue[1] else "")
        del properties[_JMS_REPLY_TO]
    if properties:
        headers[PROPERTIES] = header_of(properties)
    return headers


def descriptor_headers(descriptor: Descriptor) -> dict[str, str]:
    """Return the headers of a descriptor, ids as bytes."""
    put = descriptor.put_time
    return {
        **_field_headers(descriptor._asdict()),
        PUT_DATE: f"{put:%Y%m%d}",
        PUT_TIME: f"{put:%H%M%S}{put.microsecond // 10_000:02}",
    }


def _field_headers(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return fields of a descriptor as headers, without those that are None."""
    return {
        _PREFIX + name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in data_of(fields).items()
        if value is not None
    }


def hex_headers(headers: Mapping[str, str], descriptor: Descriptor) -> dict[str, str]:
    """Return the headers of a response as versions 1 and 2 of the API have them.

    Ids are 48 digits without ``ID:``, and there is neither priority nor properties.
    """
    left_out = (PRIORITY, PROPERTIES, OMITTED, CORRELATION_ID, GROUP_ID)
    ids = zip((MESSAGE_ID, CORRELATION_ID, GROUP_ID), descriptor[:3], strict=True)
    kept = {name: value for name, value in headers.items() if name not in left_out}
    return kept | {header: octets.hex() for header, octets in ids if octets != NO_ID}


def message_of(headers: Mapping[str, str], body: bytes) -> QueuedMessage:
    """Return the message of a response, the inverse of `headers_of`. Raises as `descriptor_of`."""
    descriptor = descriptor_of_headers(headers)
    properties = properties_of([headers[PROPERTIES]] if headers.get(PROPERTIES) else [])
    for header, name in ((CORRELATION_ID, CORRELATION), (GROUP_ID, GROUP)):
        text = headers.get(header)
        if text is not None and not is_id(text):
            properties[name] = text
    if headers.get(REPLY_TO) is not None:
        properties[_JMS_REPLY_TO] = _reply_to(headers[REPLY_TO])
    return QueuedMessage(descriptor, body, properties)


def descriptor_of_headers(headers: Mapping[str, str]) -> Descriptor:
    """Return the descriptor of a response. Raises as `descriptor_of`."""
    return descriptor_of({field.name: headers.get(_PREFIX + field.name) for field in FIELDS.values()})


def _number(text: str, place: str, reason: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise RestError(place, "expected a whole number", reason)
    return int(text)


# ---- headers of a request to fields of a put

_Read = Callable[[str], tuple[str, Any]]


def _id(place: str, field: str, text_name: str, reason: int) -> _Read:
    """Return a reader of an id, or of an application's text, which becomes a property."""

    def read(text: str) -> tuple[str, Any]:
        return (field, id_of_text(text, place, reason)) if is_id(text) else (text_name, text or None)

    return read


def _plain_number(place: str, field: str, reason: int) -> _Read:
    def read(text: str) -> tuple[str, Any]:
        number = _number(text, place, reason)
        if number > MAX_NUMBER:
            raise RestError(place, f"must be at most {MAX_NUMBER:,}", reason)
        return field, number

    return read


def _chosen(place: str, field: str, values: Mapping[str, Any], reason: int) -> _Read:
    def read(text: str) -> tuple[str, Any]:
        if text not in values:
            raise RestError(place, f"must be one of {', '.join(values)}", reason)
        return field, values[text]

    return read


def _expiry(text: str) -> tuple[str, Any]:
    if text == "unlimited":
        return "expiry", UNLIMITED
    tenths = -(-_number(text, EXPIRY, MQRC_EXPIRY_ERROR) // 100)
    if tenths > MAX_NUMBER:
        raise RestError(
            EXPIRY, f"must be unlimited, or 0 to {100 * MAX_NUMBER:,} milliseconds", MQRC_EXPIRY_ERROR
        )
    return "expiry", tenths or UNLIMITED  # as a time to live of 0 in JMS


def _reply_to(text: str) -> str:
    queue, _, manager = text.partition("@")
    return f"queue://{manager}/{queue}"


_PERSISTENT: Final[Mapping[str, Value | None]] = {
    "persistent": True,
    "nonPersistent": False,
    AS_DESTINATION: None,
}
_PRIORITIES: Final = {**{str(number): number for number in range(10)}, AS_DESTINATION: None}

_READ: Final[Mapping[str, _Read]] = {
    MESSAGE_ID: lambda text: ("msg_id", message_id_of(text, MESSAGE_ID)),
    CORRELATION_ID: _id(CORRELATION_ID, "correl_id", CORRELATION, MQRC_CORREL_ID_ERROR),
    GROUP_ID: _id(GROUP_ID, "group_id", GROUP, MQRC_GROUP_ID_ERROR),
    SEQUENCE: _plain_number(SEQUENCE, "msg_seq_number", MQRC_MSG_SEQ_NUMBER_ERROR),
    OFFSET: _plain_number(OFFSET, "offset", MQRC_OFFSET_ERROR),
    LAST_IN_GROUP: _chosen(
        LAST_IN_GROUP, "last_in_group", {"true": True, "false": False}, MQRC_MSG_FLAGS_ERROR
    ),
    PRIORITY: _chosen(PRIORITY, "priority", _PRIORITIES, MQRC_PRIORITY_ERROR),
    PERSISTENCE: _chosen(PERSISTENCE, "persistence", _PERSISTENT, MQRC_PERSISTENCE_ERROR),
    EXPIRY: _expiry,
    REPLY_TO: lambda text: (_JMS_REPLY_TO, _reply_to(text) if text else None),
}

SETTABLE: Final = tuple(_READ)
"""Headers of a put, in addition to ``ibm-mq-usr``."""


def decoded(value: str, place: str) -> str:
    """Decode a header value as UTF-8 that a framework read as Latin-1. Raises RestError."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise RestError(place, "a header must be UTF-8") from None


def put_headers(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a request for these arguments of `Queue.put`. Raises MQError for an id."""
    headers = _field_headers({name: value for name, value in fields.items() if value is not None})
    if fields.get("properties"):
        headers[PROPERTIES] = header_of(fields["properties"])
    return headers
