"""Logical order: the messages of a group one after the other, wherever they stand on the queue.

"If there is no current group or logical message, only messages that have MsgSeqNumber equal to 1 and Offset
equal to 0 are eligible for return. … If there is a current group or logical message, only the next message in
the group or next segment in the logical message is eligible" (IBM MQ, MatchOptions). A group stands where its
first message does.
"""

from __future__ import annotations

from typing import NamedTuple

from selectroute.queues.catalogue import Catalogue
from selectroute.queues.errors import MQRC_MATCH_OPTIONS_ERROR, failed
from selectroute.queues.message import NO_ID, Message
from selectroute.queues.request import Request


class Position(NamedTuple):
    """Where somebody is in a group that has not ended: behind one of its messages."""

    group_id: bytes
    msg_seq_number: int
    end: int
    """Where the next segment of the same logical message would begin, in bytes."""

    begun: int
    """The place of the first message of the group."""

    def is_next(self, message: Message) -> bool:
        """Return whether a message is the next segment or the first of the next logical message."""
        descriptor = message.descriptor
        return descriptor.group_id == self.group_id and (
            (descriptor.msg_seq_number, descriptor.offset) in (self._segment, self._successor)
        )

    def find(self, catalogue: Catalogue) -> Message | None:
        """Return the next message of the group: a further segment before the next logical message."""
        for msg_seq_number, offset in (self._segment, self._successor):
            found = catalogue.find(
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


def position_after(message: Message, before: Position | None) -> Position | None:
    """Return where a handle is after a message in logical order; None at the end of a group, or in none."""
    descriptor = message.descriptor
    if descriptor.group_id == NO_ID or descriptor.last_in_group:
        return None
    end = descriptor.offset + len(message.body)
    begun = message.place if before is None else before.begun
    return Position(descriptor.group_id, descriptor.msg_seq_number, end, begun)


class Wanted(NamedTuple):
    """What a get or browse is for: a request, behind a place, and for a handle if in logical order."""

    request: Request
    after: int = -1
    handle: Handle | None = None

    def find(self, catalogue: Catalogue) -> Message | None:
        """Return the first message that is wanted.

        Raises MQError 2247 if options that do not apply disagree with it: "the value of the relevant field
        in the MsgDesc parameter must match the value of the corresponding field in the message".
        """
        request, after, handle = self
        if handle is None:
            return catalogue.find(request, after)
        if handle.position is None:
            begins = request._replace(msg_seq_number=1, offset=0, msg_token=None)
            message = catalogue.find(begins, after)
        else:
            message = handle.position.find(catalogue)
            if message is not None and not _selected(request, message):
                return None
        if message is not None and not request.agrees(message.descriptor):
            raise failed(MQRC_MATCH_OPTIONS_ERROR, "options that do not apply in logical order disagree")
        return message

    def wants(self, message: Message) -> bool:
        """Return whether a message that arrives is wanted."""
        request, after, handle = self
        if not request.agrees(message.descriptor) or not _selected(request, message):
            return False
        if handle is None:
            return message.place > after
        if handle.position is not None:
            return handle.position.is_next(message)
        descriptor = message.descriptor
        return descriptor.msg_seq_number == 1 and descriptor.offset == 0 and message.place > after

    @property
    def ids(self) -> tuple[tuple[int, bytes], ...]:
        """The ids, as field and value, that whatever is wanted has."""
        group_id = self.request.group_id
        if self.handle is not None and self.handle.position is not None:
            group_id = self.handle.position.group_id
        ids = (self.request.msg_id, self.request.correl_id, group_id)
        return tuple((field, value) for field, value in enumerate(ids) if value is not None)


def _selected(request: Request, message: Message) -> bool:
    return request.selection is None or request.selection.selects(message)
