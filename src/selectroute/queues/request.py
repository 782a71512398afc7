"""What one get or browse asks for, checked: the fields that must agree, and the selector."""

from __future__ import annotations

from typing import Any, NamedTuple

from selectroute.queues import positions
from selectroute.queues.errors import (
    MQRC_CORREL_ID_ERROR,
    MQRC_GROUP_ID_ERROR,
    MQRC_MSG_ID_ERROR,
    MQRC_MSG_SEQ_NUMBER_ERROR,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_OFFSET_ERROR,
    failed,
)
from selectroute.queues.message import ID_BYTES, NO_ID, TOKEN_BYTES
from selectroute.queues.options import (
    CORREL_ID,
    GROUP_ID,
    MSG_ID,
    MSG_SEQ_NUMBER,
    MSG_TOKEN,
    OFFSET,
    mask_of,
)
from selectroute.queues.selection import Selection, selection_of
from selectroute.selector.selector import Selector

MAX_NUMBER = 999_999_999
"""The largest MsgSeqNumber, Offset and Expiry."""


_MSG_ID, _CORREL_ID, _GROUP_ID, _MSG_SEQ_NUMBER, _OFFSET = (
    positions.MSG_ID,
    positions.CORREL_ID,
    positions.GROUP_ID,
    positions.MSG_SEQ_NUMBER,
    positions.OFFSET,
)
_made = tuple.__new__  # a NamedTuple's own way takes twice as long


class Request(NamedTuple):
    """The fields that must agree, None for those that need not, and the selector that must be satisfied."""

    msg_id: bytes | None = None
    correl_id: bytes | None = None
    group_id: bytes | None = None
    msg_seq_number: int | None = None
    offset: int | None = None
    msg_token: bytes | None = None
    selection: Selection | None = None

    def agrees(self, fields: tuple[Any, ...]) -> bool:
        """Return whether all the fields of a descriptor agree, but for the token; O(1).

        `fields` may be anything that has them in their positions. The selector is not looked at.
        """
        msg_id, correl_id, group_id, msg_seq_number, offset, _, _ = self
        return (
            (msg_id is None or fields[_MSG_ID] == msg_id)
            and (correl_id is None or fields[_CORREL_ID] == correl_id)
            and (group_id is None or fields[_GROUP_ID] == group_id)
            and (msg_seq_number is None or fields[_MSG_SEQ_NUMBER] == msg_seq_number)
            and (offset is None or fields[_OFFSET] == offset)
        )


def request_of(
    match: int,
    msg_id: bytes,
    correl_id: bytes,
    group_id: bytes,
    msg_seq_number: int,
    offset: int,
    msg_token: bytes,
    selector: str | Selector | None,
    dialect: str,
) -> Request:
    """Return what is asked for. Raises MQError as `Queue.get` does.

    "Fields for which the corresponding match option is not specified are ignored": they may hold anything.
    """
    mask = mask_of(match)
    request = _made(
        Request,
        (
            id_of(msg_id, MQRC_MSG_ID_ERROR) if mask & MSG_ID and msg_id is not NO_ID else None,
            id_of(correl_id, MQRC_CORREL_ID_ERROR) if mask & CORREL_ID and correl_id is not NO_ID else None,
            id_of(group_id, MQRC_GROUP_ID_ERROR) if mask & GROUP_ID and group_id is not NO_ID else None,
            sequence_of(msg_seq_number) if mask & MSG_SEQ_NUMBER else None,
            offset_of(offset) if mask & OFFSET else None,
            _token_of(msg_token) if mask & MSG_TOKEN else None,
            None,
        ),
    )
    return request if selector is None else _selecting(request, selection_of(selector, dialect))


def _selecting(request: Request, selection: Selection | None) -> Request:
    """A request with a selector; one that only says what an id is, is that id's match option (seed 000)."""
    if selection is None:
        return request
    if selection.only_id is not None:
        field, value = selection.only_id
        if request[field] in (None, value):
            return Request._make((*request[:field], value, *request[field + 1 :]))
    return request._replace(selection=selection)


def id_of(given: bytes, reason: int) -> bytes | None:
    """Return an id as 24 bytes of its own, None for 24 zero bytes. Raises MQError for any other thing."""
    if type(given) is not bytes:
        given = bytes_of(given, reason)
    if len(given) != ID_BYTES:
        raise failed(reason, f"an id is {ID_BYTES} bytes, not {len(given)}")
    return None if given == NO_ID else given


def bytes_of(given: object, reason: int) -> bytes:
    """Return a copy of what is bytes in any form; nobody's later change of it reaches the queue."""
    if not isinstance(given, bytes | bytearray | memoryview):
        raise failed(reason, f"bytes are wanted, not a {type(given).__name__}")
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
        # An int of a subclass is one, but a bool is no number.
        if not isinstance(given, int) or isinstance(given, bool):
            raise failed(reason, f"an integer is wanted, not a {type(given).__name__}")
        given = int(given)
    if not least <= given <= most:
        raise failed(reason, f"it is {least:,} to {most:,}")
    return given


def _token_of(given: bytes) -> bytes:
    token = bytes_of(given, MQRC_MSG_TOKEN_ERROR)
    if len(token) != TOKEN_BYTES:
        raise failed(MQRC_MSG_TOKEN_ERROR, f"a message token is {TOKEN_BYTES} bytes, not {len(token)}")
    return token
