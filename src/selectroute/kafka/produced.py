"""Kafka records of messages: the inverse of `record` without a binding.

A record header has no type: numbers are decimal, booleans ``true`` and ``false``, byte strings their bytes.
A reader of the record gives the types in a binding (``weight:int``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from selectroute.selector.message import Message
from selectroute.selector.values.values import Double, Float, Number, Value


class Produced(NamedTuple):
    """Record of a message: no key, the body as value, and a header for each JMS header and property."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def record_of(message: Message) -> Produced:
    """Return the record of a message. A text body is encoded as UTF-8."""
    headers = [
        (name, text_of(value))
        for part in (message.headers, message.properties)
        for name, value in part.items()
        if value is not None
    ]
    body = message.body
    return Produced(None, body.encode("utf-8") if isinstance(body, str) else body, headers)


def text_of(value: Value) -> bytes:
    """Return a value as the bytes of a header.

    >>> text_of(True), text_of(Double(0.1))
    (b'true', b'0.1')
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, Float | Double):
        number = value.value
        if math.isnan(number):
            return b"NaN"
        if math.isinf(number):
            return b"Infinity" if number > 0 else b"-Infinity"
        return repr(number).encode()
    if isinstance(value, Number):
        return str(value.value).encode()
    return str(value).encode("utf-8")
