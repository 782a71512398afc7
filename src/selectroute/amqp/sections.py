"""Sections of a message (AMQP 1.0, part 3, section 2).

::

    header · delivery annotations │ message annotations │ properties · application properties · body │ footer
         made anew at each hop                               bare message: never changed

`MessageSections.of` reads what a broker looks at, and keeps the bytes from the message annotations on as they
are.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from selectroute.amqp.errors import DECODE_ERROR, AmqpError
from selectroute.amqp.performatives import MessageHeader, Properties, read
from selectroute.amqp.types import DECODING_FAILED, Decoder, Described, decoder

_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES = range(0x70, 0x75)
_DATA, _SEQUENCE, _VALUE, _FOOTER = range(0x75, 0x79)
_BY_NAME: Final[dict[Any, int]] = {
    "amqp:header:list": _HEADER,
    "amqp:delivery-annotations:map": _DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": _ANNOTATIONS,
    "amqp:properties:list": _PROPERTIES,
    "amqp:application-properties:map": _APPLICATION_PROPERTIES,
    "amqp:data:binary": _DATA,
    "amqp:amqp-sequence:list": _SEQUENCE,
    "amqp:amqp-value:*": _VALUE,
    "amqp:footer:map": _FOOTER,
}


class MessageSections(NamedTuple):
    """Sections of a message that a broker reads.

    `rest` is the message as it came, from its message annotations on; the body begins at `body`, which is the
    length of `rest` if there is none.
    """

    header: MessageHeader
    annotations: dict[Any, Any]
    properties: Properties
    application_properties: dict[Any, Any]
    rest: bytes
    body: int


_decode: Final = decoder()


def read_message(payload: bytes, decode_properties: Decoder = _decode) -> MessageSections:
    """Read a message.

    Args:
        payload: the message.
        decode_properties: decodes the application properties, whose numbers may need classes.

    Raises AmqpError, `DECODE_ERROR`, for bytes that are not a message. The body is not decoded.
    """
    try:
        return _sections(payload, decode_properties)
    except DECODING_FAILED as error:
        raise AmqpError(DECODE_ERROR, f"the message cannot be read: {error!s:.200}") from None


def read_value(message: MessageSections) -> Any:
    """Return the value in a message's body. Raises AmqpError for any other body."""
    try:
        descriptor, begin = _descriptor(message.rest, message.body)
        value, end = _decode(message.rest, begin)
        if descriptor == _VALUE and end <= len(message.rest):
            return value
    except DECODING_FAILED:
        pass
    raise AmqpError(DECODE_ERROR, "the body of the message is not a value")


def application_body(message: bytes) -> bytes:
    """Return what an application sees as the body of a message: its bytes, or its text as UTF-8.

    Any other value, such as a map, is returned as it is encoded. `message` may begin at any section.

    Raises AmqpError, `DECODE_ERROR`, for bytes that are not a message.
    """
    try:
        sections = _sections(message, _decode)
        parts, position = [], sections.body
        while position < len(sections.rest):
            number, begin = _descriptor(sections.rest, position)
            value, position = _decode(sections.rest, begin)
            if number == _VALUE and isinstance(value, str | None):
                return (value or "").encode()
            if number == _VALUE and isinstance(value, bytes):
                return value
            if number != _DATA or type(value) is not bytes:
                break
            parts.append(value)
        return b"".join(parts) if parts else sections.rest[sections.body :]
    except DECODING_FAILED as error:
        raise AmqpError(DECODE_ERROR, f"the message cannot be read: {error!s:.200}") from None


def _sections(payload: bytes, decode_properties: Decoder) -> MessageSections:
    sections: dict[int, Any] = {}
    position = rest = last = 0
    size = len(payload)
    while position < size:
        descriptor, begin = _descriptor(payload, position)
        if not last < descriptor <= _FOOTER:
            raise ValueError("its sections are not in their order")
        if descriptor > _APPLICATION_PROPERTIES:
            break
        last = descriptor
        decode = decode_properties if descriptor == _APPLICATION_PROPERTIES else _decode
        sections[descriptor], position = decode(payload, begin)
        if descriptor <= _DELIVERY_ANNOTATIONS:
            rest = position
    if position > size:
        raise ValueError("it ends within a section")
    return MessageSections(
        _composite(sections, _HEADER, MessageHeader),
        _map(sections, _ANNOTATIONS),
        _composite(sections, _PROPERTIES, Properties),
        _map(sections, _APPLICATION_PROPERTIES),
        payload[rest:],
        position - rest,
    )


def _descriptor(payload: bytes, position: int) -> tuple[int, int]:
    """Return the number of a section, and the position of its value."""
    if payload[position : position + 2] == b"\x00\x53":
        return payload[position + 2], position + 3
    if payload[position]:
        raise ValueError("a section has no descriptor")
    descriptor, begin = _decode(payload, position + 1)
    number = _BY_NAME.get(descriptor, descriptor)
    if type(number) is not int:
        raise ValueError(f"there is no section {number!r:.80}")
    return number, begin


def _composite(sections: dict[int, Any], number: int, of: Any) -> Any:
    value = sections.get(number)
    return of() if value is None else read(Described(number, value), (of,))


def _map(sections: dict[int, Any], number: int) -> dict[Any, Any]:
    value = sections.get(number, {})
    if type(value) is not dict:
        raise ValueError("a section of properties is not a map")
    return value
