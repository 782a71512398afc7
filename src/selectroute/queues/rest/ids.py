"""Ids as text in IBM MQ's messaging REST API, version 3: ``ID:`` and hex digits, or an application's text."""

from __future__ import annotations

import re
from typing import Final

from selectroute.queues.errors import MQRC_MSG_ID_ERROR, MQRC_MSG_TOKEN_ERROR
from selectroute.queues.message.message import TOKEN_BYTES
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import ID_BYTES, octets_of_text

_HEX: Final = re.compile("(?:[0-9A-Fa-f]{2}){1,24}")


class RestError(SelectRouteError):
    """Invalid header or parameter: `place` is its name, `reason` IBM's reason code if there is one."""

    def __init__(self, place: str, sentence: str, reason: int | None = None) -> None:
        super().__init__(f"{place}: {sentence}")
        self.place = place
        self.sentence = sentence
        self.reason = reason


def id_of_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes of ``ID:`` and up to 48 hexadecimal digits, padded with zeros on the right.

    48 digits without ``ID:`` are also accepted. Raises RestError at `place`.
    """
    digits = text.removeprefix("ID:")
    if not _HEX.fullmatch(digits) or (digits == text and len(digits) < 2 * ID_BYTES):
        raise RestError(place, "an id must be ID: and up to 48 hexadecimal digits, two for each byte", reason)
    return bytes.fromhex(digits).ljust(ID_BYTES, b"\0")


def message_id_of(text: str, place: str) -> bytes:
    """Return the 24 bytes of a message id, given with all 48 digits. Raises RestError."""
    if len(text.removeprefix("ID:")) != 2 * ID_BYTES:
        raise RestError(place, "a message id must be ID: and 48 hexadecimal digits", MQRC_MSG_ID_ERROR)
    return id_of_text(text, place, MQRC_MSG_ID_ERROR)


def is_id(text: str) -> bool:
    """Return whether a text is an id in digits; any other is an application's and means its UTF-8."""
    return text.startswith("ID:") or bool(len(text) == 2 * ID_BYTES and _HEX.fullmatch(text))


def token_of_text(text: str, place: str) -> bytes:
    """Return the 16 bytes of a message token. Raises RestError."""
    if len(text) != 2 * TOKEN_BYTES or not _HEX.fullmatch(text):
        raise RestError(place, "a message token must be 32 hexadecimal digits", MQRC_MSG_TOKEN_ERROR)
    return bytes.fromhex(text)


def id_of_any_text(text: str, place: str, reason: int) -> bytes:
    """Return the 24 bytes of a correlation or group id: of its digits, or of an application's text.

    Raises RestError at `place` for ``ID:`` without digits.
    """
    return id_of_text(text, place, reason) if is_id(text) else octets_of_text(text)
