"""Lookups, including logical order: the messages of a group one after the other, wherever on the queue.

"If there is no current group or logical message, only messages that have MsgSeqNumber equal to 1 and Offset
equal to 0 are eligible for return. … If there is a current group or logical message, only the next message in
the group or next segment in the logical message is eligible" (IBM MQ, MatchOptions). The position of
a group is that of its first message.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from selectroute.queues.errors import MQRC_MATCH_OPTIONS_ERROR, failed
from selectroute.queues.lookup.finding import has_token
from selectroute.queues.lookup.match import Match
from selectroute.queues.message.record import Field, StoredMessage
from selectroute.selector.fields import NO_ID

ID_FIELDS: Final = (Field.MSG_ID, Field.CORREL_ID, Field.GROUP_ID)


class MessageSearch(Protocol):
    """Messages of a queue, to be searched."""

    def find(self, match: Match, after: int = -1) -> StoredMessage | None:
        """Return the first message that matches after a key."""

    @property
    def token_prefix(self) -> bytes:
        """Prefix of the queue's tokens."""


class GroupPosition(NamedTuple):
    """Position in an unfinished group: after one of its messages."""

    group_id: bytes
    msg_seq_number: int
    end: int
    """Offset of the next segment of the same logical message, in bytes."""

    begun: int
    """Key of the first message of the group."""

    def is_next(self, record: StoredMessage) -> bool:
        """Return whether a message is the next segment or the first of the next logical message."""
        numbers = record.msg_seq_number, record.offset
        return record.group_id == self.group_id and numbers in (self._segment, self._successor)

    def find(self, messages: MessageSearch) -> StoredMessage | None:
        """Return the next message of the group: a further segment before the next logical message."""
        for msg_seq_number, offset in (self._segment, self._successor):
            record = messages.find(
                Match(group_id=self.group_id, msg_seq_number=msg_seq_number, offset=offset)
            )
            if record is not None:
                return record
        return None

    @property
    def _segment(self) -> tuple[int, int]:
        return self.msg_seq_number, self.end or -1  # an empty message has no further segment

    @property
    def _successor(self) -> tuple[int, int]:
        return self.msg_seq_number + 1, 0


class Handle:
    """Current group of a thread or cursor that gets or browses in logical order."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: GroupPosition | None = None


def position_after(record: StoredMessage, before: GroupPosition | None) -> GroupPosition | None:
    """Return the position in logical order after a message; None at the end of a group or outside a group."""
    if record.group_id == NO_ID or record.last_in_group:
        return None
    end = record.offset + len(record.body)
    begun = record.queue_key if before is None else before.begun
    return GroupPosition(record.group_id, record.msg_seq_number, end, begun)


class Lookup(NamedTuple):
    """Lookup of a get or browse: its conditions, the key after which to begin, a handle for logical order."""

    match: Match
    after: int = -1
    handle: Handle | None = None

    def find(self, messages: MessageSearch) -> StoredMessage | None:
        """Return the first match.

        Raises MQError 2247 if options that do not apply disagree with the match: "the value of the relevant
        field in the MsgDesc parameter must match the value of the corresponding field in the message".
        """
        match, after, handle = self
        if handle is None:
            return messages.find(match, after)
        if handle.position is None:
            begins = match._replace(msg_seq_number=1, offset=0, msg_token=None)
            record = messages.find(begins, after)
        else:
            record = handle.position.find(messages)
            if record is not None and not match.is_selected(record):
                return None
        if record is None:
            return None
        token = match.msg_token
        same_token = token is None or has_token(record, token, messages.token_prefix)
        if not same_token or not match.agrees(record):
            raise failed(MQRC_MATCH_OPTIONS_ERROR, "options that do not apply in logical order disagree")
        return record

    def wants(self, record: StoredMessage) -> bool:
        """Return whether an arriving message matches."""
        match, after, handle = self
        if not match.is_satisfied(record):
            return False
        if handle is not None and handle.position is not None:
            return handle.position.is_next(record)
        begins = handle is None or (record.msg_seq_number == 1 and record.offset == 0)
        return begins and after < record.queue_key

    @property
    def ids(self) -> tuple[tuple[Field, bytes], ...]:
        """Ids, as field and value, that every match has."""
        group_id = self.match.group_id
        if self.handle is not None and self.handle.position is not None:
            group_id = self.handle.position.group_id
        ids = (self.match.msg_id, self.match.correl_id, group_id)
        return tuple((field, value) for field, value in zip(ID_FIELDS, ids, strict=True) if value is not None)
