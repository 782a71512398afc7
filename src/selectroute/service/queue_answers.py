"""A message as an answer."""

from __future__ import annotations

from fastapi import Response

from selectroute.queues.message import Message
from selectroute.queues.rest_headers import headers_of
from selectroute.service.limits import ServiceLimits
from selectroute.service.problems import ProblemError


def answered(message: Message, limits: ServiceLimits) -> Response:
    """The message as an answer. Raises a problem, 501, for one that has too much beside its body."""
    headers = headers_of(message)
    if sum(len(name) + len(value) + 4 for name, value in headers.items()) > limits.message_header_bytes:
        detail = f"its properties take more than {limits.message_header_bytes:,} bytes of headers"
        raise ProblemError("unsupported-message", detail)
    return Response(message.body, headers=headers, media_type=_media_type(message.body))


def _media_type(body: bytes) -> str:
    """Of which type a body is, as far as can be told: a queue does not know."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
