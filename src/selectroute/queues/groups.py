"""Logical order: the messages of a group one after the other, wherever they stand on the queue.

"If there is no current group or logical message, only messages that have MsgSeqNumber equal to 1 and Offset
equal to 0 are eligible for return. … If there is a current group or logical message, only the next message in
the group or next segment in the logical message is eligible" (IBM MQ, MatchOptions). A group stands where its
first message does.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from selectroute.queues.errors import MQRC_MATCH_OPTIONS_ERROR, failed
from selectroute.queues.message import NO_ID
from selectroute.queues.positions import GROUP_ID, LAST_IN_GROUP, MSG_SEQ_NUMBER, OFFSET
from selectroute.queues.record import BODY, PLACE, Record, seen
from selectroute.queues.request import Request


class Messages(Protocol):
    """Messages among which some are looked for."""

    def find(self, request: Request, after: int = -1) -> Record | None:
        """Return the first message behind a place that the request is for."""

    def has_token(self, record: Record, msg_token: bytes) -> bool:
        """Return whether a message has this token."""


class Position(NamedTuple):
    """Where somebody is in a group that has not ended: behind one of its messages."""

    group_id: bytes
    msg_seq_number: int
    end: int
    """Where the next segment of the same logical message would begin, in bytes."""

    begun: int
    """The place of the first message of the group."""

    def is_next(self, record: Record) -> bool:
        """Return whether a message is the next segment or the first of the next logical message."""
        numbers = record[MSG_SEQ_NUMBER], record[OFFSET]
        return record[GROUP_ID] == self.group_id and numbers in (self._segment, self._successor)

    def find(self, messages: Messages) -> Record | None:
        """Return the next message of the group: a further segment before the next logical message."""
        for msg_seq_number, offset in (self._segment, self._successor):
            found = messages.find(
                Request(group_id=self.group_id, msg_seq_number=msg_seq_number, offset=offset)
            )
            if found is not None:
                return found
        return None

    @property
    def _segment(self) -> tuple[int, int]:
        return self.msg_seq_number, self.end or -1  # a message without bytes has no segment behind it

    @property
    def _successor(self) -> tuple[int, int]:
        return self.msg_seq_number + 1, 0


class Handle:
    """Who gets or browses in logical order: a thread, or a cursor."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: Position | None = None


def position_after(record: Record, before: Position | None) -> Position | None:
    """Return where a handle is after a message in logical order; None at the end of a group, or in none."""
    if record[GROUP_ID] == NO_ID or record[LAST_IN_GROUP]:
        return None
    end = record[OFFSET] + len(record[BODY])
    begun = record[PLACE] if before is None else before.begun
    return Position(record[GROUP_ID], record[MSG_SEQ_NUMBER], end, begun)


class Wanted(NamedTuple):
    """What a get or browse is for: a request, behind a place, and for a handle if in logical order."""

    request: Request
    after: int = -1
    handle: Handle | None = None

    def find(self, messages: Messages) -> Record | None:
        """Return the first message that is wanted.

        Raises MQError 2247 if options that do not apply disagree with it: "the value of the relevant field
        in the MsgDesc parameter must match the value of the corresponding field in the message".
        """
        request, after, handle = self
        if handle is None:
            return messages.find(request, after)
        if handle.position is None:
            begins = request._replace(msg_seq_number=1, offset=0, msg_token=None)
            record = messages.find(begins, after)
        else:
            record = handle.position.find(messages)
            if record is not None and not _selected(request, record):
                return None
        if record is None:
            return None
        token = request.msg_token
        if not request.agrees(record) or (token is not None and not messages.has_token(record, token)):
            raise failed(MQRC_MATCH_OPTIONS_ERROR, "options that do not apply in logical order disagree")
        return record

    def wants(self, record: Record) -> bool:
        """Return whether a message that arrives is wanted."""
        request, after, handle = self
        if not request.agrees(record) or not _selected(request, record):
            return False
        if handle is not None and handle.position is not None:
            return handle.position.is_next(record)
        begins = handle is None or (record[MSG_SEQ_NUMBER] == 1 and record[OFFSET] == 0)
        return begins and bool(after < record[PLACE])

    @property
    def ids(self) -> tuple[tuple[int, bytes], ...]:
        """The ids, as field and value, that whatever is wanted has."""
        group_id = self.request.group_id
        if self.handle is not None and self.handle.position is not None:
            group_id = self.handle.position.group_id
        ids = (self.request.msg_id, self.request.correl_id, group_id)
        return tuple((field, value) for field, value in enumerate(ids) if value is not None)


def _selected(request: Request, record: Record) -> bool:
    return request.selection is None or request.selection.selects(seen(record))
