"""A message as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Response

from selectroute.queues.message import Message
from selectroute.queues.rest_headers import headers_of
from selectroute.queues.rest_properties import PROPERTIES, header_of
from selectroute.service.limits import ServiceLimits
from selectroute.service.problems import ProblemError

_DESCRIPTOR_BYTES: Final = 1_536
"""What the headers of an answer take at most that are not properties."""


def answered(message: Message, limits: ServiceLimits) -> Response:
    """The message as an answer. Raises a problem, 501, for one that has too much beside its body."""
    headers = headers_of(message)
    if sum(len(name) + len(value) + 4 for name, value in headers.items()) > limits.message_header_bytes:
        detail = f"its properties take more than {limits.message_header_bytes:,} bytes of headers"
        raise ProblemError("unsupported-message", detail)
    return Response(message.body, headers=headers, media_type=_media_type(message.body))


def check_answerable(fields: Mapping[str, Any], limits: ServiceLimits) -> None:
    """Raise a problem, 422, for a message that could be put, and never be got over HTTP: it would keep its
    place, and nobody who asks for the next one would come past it.
    """
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
