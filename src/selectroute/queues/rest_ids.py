"""Ids as texts of IBM MQ's messaging REST API, version 3: ``ID:`` and hexadecimal digits, or a text of an
application.
"""

from __future__ import annotations

import re
from typing import Final

from selectroute.queues.errors import MQRC_MSG_ID_ERROR, MQRC_MSG_TOKEN_ERROR
from selectroute.queues.message import TOKEN_BYTES
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import ID_BYTES, id_from_any_text

_HEX: Final = re.compile("(?:[0-9A-Fa-f]{2}){1,24}")


class RestError(SelectRouteError):
    """A header or parameter that cannot be: `place` is its name, `reason` IBM's reason code if it has one."""

    def __init__(self, place: str, sentence: str, reason: int | None = None) -> None:
        super().__init__(f"{place}: {sentence}")
        self.place = place
        self.sentence = sentence
        self.reason = reason


def id_of_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes of ``ID:`` and up to 48 hexadecimal digits, padded with zeros on the right.

    48 digits alone are an id as well. Raises RestError at `place`.
    """
    digits = text.removeprefix("ID:")
    if not _HEX.fullmatch(digits) or (digits == text and len(digits) < 2 * ID_BYTES):
        raise RestError(place, "an id is ID: and up to 48 hexadecimal digits, two for each byte", reason)
    return bytes.fromhex(digits).ljust(ID_BYTES, b"\0")


def message_id_of(text: str, place: str) -> bytes:
    """Return the 24 bytes of a message id, which has all of its 48 digits. Raises RestError."""
    if len(text.removeprefix("ID:")) != 2 * ID_BYTES:
        raise RestError(place, "a message id is ID: and 48 hexadecimal digits", MQRC_MSG_ID_ERROR)
    return id_of_text(text, place, MQRC_MSG_ID_ERROR)


def is_id(text: str) -> bool:
    """Return whether a text is meant as bytes: others are an application's own, and stand for their UTF-8."""
    return text.startswith("ID:") or bool(len(text) == 2 * ID_BYTES and _HEX.fullmatch(text))


def token_of_text(text: str, place: str) -> bytes:
    """Return the 16 bytes of a message token. Raises RestError."""
    if len(text) != 2 * TOKEN_BYTES or not _HEX.fullmatch(text):
        raise RestError(place, "a message token is 32 hexadecimal digits", MQRC_MSG_TOKEN_ERROR)
    return bytes.fromhex(text)


def lookup_of_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes by which a correlation or group id is looked up. Raises RestError.

    A text of an application that is longer than 24 bytes has none: what has it is found by a selector.
    """
    if is_id(text):
        return id_of_text(text, place, reason)
    octets = id_from_any_text(text)
    if octets is None:
        raise RestError(place, "a text of more than 24 bytes is looked up by a selector", reason)
    return octets
