"""Checks of single fields of a message, common to puts and gets."""

from __future__ import annotations

from typing import Final

from selectroute.queues.errors import MQRC_MSG_SEQ_NUMBER_ERROR, MQRC_OFFSET_ERROR, failed
from selectroute.selector.fields import ID_BYTES, NO_ID

MAX_NUMBER: Final = 999_999_999
"""Largest MsgSeqNumber, Offset and Expiry of a put."""

MAX_EXPIRY: Final = (1 << 31) - 1
"""Largest Expiry that an MQMD can say, an MQLONG."""


def id_of(given: bytes, reason: int) -> bytes | None:
    """Return an id of 24 bytes, None for 24 zero bytes. Raises MQError with the reason for anything else."""
    if type(given) is not bytes:
        given = bytes_of(given, reason)
    if len(given) != ID_BYTES:
        raise failed(reason, f"an id must be {ID_BYTES} bytes, not {len(given)}")
    return None if given == NO_ID else given


def bytes_of(given: object, reason: int) -> bytes:
    """Return a copy of bytes, so that a later change of a bytearray does not reach the queue."""
    if not isinstance(given, bytes | bytearray | memoryview):
        raise failed(reason, f"expected bytes, not a {type(given).__name__}")
    return bytes(given)


def sequence_of(given: int) -> int:
    """Return a MsgSeqNumber. Raises MQError 2250."""
    return number_of(given, 1, MQRC_MSG_SEQ_NUMBER_ERROR)


def offset_of(given: int) -> int:
    """Return an Offset. Raises MQError 2251."""
    return number_of(given, 0, MQRC_OFFSET_ERROR)


def number_of(given: object, least: int, reason: int, most: int = MAX_NUMBER) -> int:
    """Return an integer within bounds. Raises MQError with the reason."""
    if type(given) is not int:
        # An int of a subclass is accepted, a bool is not.
        if not isinstance(given, int) or isinstance(given, bool):
            raise failed(reason, f"expected an integer, not a {type(given).__name__}")
        given = int(given)
    if not least <= given <= most:
        raise failed(reason, f"must be {least:,} to {most:,}")
    return given
