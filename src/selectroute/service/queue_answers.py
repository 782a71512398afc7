"""A message as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from selectroute.queues.message import Message
from selectroute.queues.rest_headers import OMITTED, headers_of
from selectroute.queues.rest_properties import PROPERTIES, header_of
from selectroute.service.limits import ServiceLimits
from selectroute.service.problems import ProblemError

_DESCRIPTOR_BYTES: Final = 1_536
"""What the headers of an answer take at most that are not properties."""


def answered(message: Message, limits: ServiceLimits) -> Response:
    """The message as an answer. Properties that do not fit into its headers are left out, and `OMITTED` says
    how many: if the message were refused, nobody who asks for the first one would come past it.
    """
    headers = headers_of(message)
    if _size(headers) > limits.message_header_bytes:
        kept = _fitting(message, limits.message_header_bytes)
        headers = headers_of(kept) | {OMITTED: str(len(message.properties) - len(kept.properties))}
    return Response(message.body, headers=headers, media_type=_media_type(message.body))


def _fitting(message: Message, most: int) -> Message:
    """The message with those of its properties that fit, taken in their order."""

    def alone(properties: Mapping[str, Any]) -> Message:
        return Message(message.descriptor, b"", properties)

    empty = _size(headers_of(alone({})))
    room = most - _DESCRIPTOR_BYTES
    kept = {}
    for name, value in message.properties.items():
        size = _size(headers_of(alone({name: value}))) - empty  # several share a header, and take less
        if size <= room:
            room -= size
            kept[name] = value
    return alone(kept)


def _size(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def check_answerable(fields: Mapping[str, Any], limits: ServiceLimits) -> None:
    """Raise a problem, 422, for a message that could be put, and never be got whole over HTTP."""
    properties = fields.get("properties") or {}
    size = _DESCRIPTOR_BYTES + (len(header_of(properties)) if properties else 0)
    if size > limits.message_header_bytes:
        detail = (
            f"its properties do not fit into the {limits.message_header_bytes:,} bytes of headers that an "
            f"answer has, {_DESCRIPTOR_BYTES:,} of them for the rest: what is not ASCII takes up to six "
            "times its length"
        )
        raise ProblemError("invalid-message", detail, place=PROPERTIES)


def _media_type(body: bytes) -> str:
    """Of which type a body is, as far as can be told: a queue does not know."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
