"""Models of request and response bodies of queues, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt

from selectroute.queues.bulk import BulkPosition
from selectroute.queues.message.field_checks import MAX_NUMBER
from selectroute.queues.rest.lookup import LookupParams
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.service.http.models import Dialect, Strict


class QueueBody(Strict):
    """Settings of a queue; a missing one is IBM MQ's default."""

    order: Literal["priority", "fifo"] = "priority"
    default_priority: Annotated[StrictInt, Field(ge=0, le=9)] = 4
    default_persistence: StrictBool = False
    max_depth: Annotated[StrictInt, Field(ge=0, lt=2**53)] | None = None
    max_message_length: Annotated[StrictInt, Field(ge=0, lt=2**31)] = MAX_MESSAGE_LENGTH
    dialect: Dialect = "ibm-jms"

    def settings(self) -> QueueSettings:
        """Return the settings as a `QueueSettings`."""
        return QueueSettings(**self.model_dump())


class QueueAnswer(BaseModel):
    """Queue, and its state now."""

    name: str
    order: Literal["priority", "fifo"]
    default_priority: int
    default_persistence: bool
    max_depth: int | None
    max_message_length: int
    dialect: str
    depth: int
    """Number of messages available to a get."""
    oldest: str | None
    """Time of the put, RFC 3339 in UTC, of the available message that has been on the queue longest; null
    without messages. A moved message keeps the time of its put.
    """
    waiting: int
    """Number of gets that wait for a message now, of this process of the service alone."""


class QueueNameAnswer(BaseModel):
    """Name of a queue."""

    name: str


class QueuesAnswer(BaseModel):
    """All queues, ordered by name."""

    items: list[QueueNameAnswer]


class ListedMessageAnswer(BaseModel):
    """Message without its body."""

    messageId: str
    correlationId: str | None
    groupId: str | None
    msgSeqNumber: int
    offset: int
    lastInGroup: bool
    priority: int
    persistence: Literal["persistent", "nonPersistent"]
    expiry: int | Literal["unlimited"]
    """Remaining time in milliseconds."""
    timestamp: int
    """Time of the put, in milliseconds since 1970 (UTC)."""
    backoutCount: int
    expiration: int
    """Time of expiry, in milliseconds since 1970 (UTC); 0 for never."""
    msgToken: str
    properties: dict[str, Any]


class MessageListAnswer(BaseModel):
    """First matching messages, in the order of delivery."""

    messages: list[ListedMessageAnswer]
    next: str | None
    """Token to send as `after` for the messages that follow; null at the end."""


# ---- many messages

_Text = Annotated[str, Field(max_length=2_000)]
_Number = Annotated[StrictInt, Field(ge=0, le=MAX_NUMBER)]
_Count = Annotated[StrictInt, Field(ge=0, lt=2**63)]


class LookupBody(Strict):
    """Conditions on messages, as of a get: all that are given must agree; without any, every message does."""

    messageId: _Text | None = None
    correlationId: _Text | None = None
    groupId: _Text | None = None
    msgSeqNumber: _Number | None = None
    offset: _Number | None = None
    msgToken: _Text | None = None
    selector: str | None = None
    dialect: Dialect | None = None
    """Dialect of the selector; the queue's by default."""

    def lookup(self) -> LookupParams:
        """Return the conditions."""
        return LookupParams(
            self.messageId,
            self.correlationId,
            self.groupId,
            self.msgSeqNumber,
            self.offset,
            self.msgToken,
            self.selector,
            self.dialect,
        )


class PurgeBody(LookupBody):
    """Messages to be removed."""

    expected: _Count | None = None
    """Number of matching messages that the caller has seen: with another one nothing is done."""
    position: Annotated[str, Field(pattern="^[0-9]{1,18}-[0-9]{1,18}$")] | None = None
    """As of the answer before, to go on with the same messages: those that arrived later are not touched."""

    def begin(self) -> BulkPosition:
        """Return the position at which to begin."""
        return BulkPosition(*map(int, self.position.split("-"))) if self.position else BulkPosition()


class MoveBody(PurgeBody):
    """Messages to be moved, and the queue to which."""

    to: Annotated[str, Field(max_length=1_000)]


class CountAnswer(BaseModel):
    """Number of messages that match; if it is not exact, there are at least so many."""

    count: int
    exact: bool


class StayedAnswer(BaseModel):
    """Numbers of matching messages that stayed on their queue, by reason."""

    full: int
    """The other queue has no room for them."""
    too_long: int
    """Their bodies are longer than the other queue permits."""
    in_use: int
    """Others got them in the meantime, or were getting them."""


class BulkAnswer(BaseModel):
    """Outcome of a purge or a move."""

    matched: CountAnswer
    """What matched when the call began."""
    done: int
    """Number of messages that were removed or moved."""
    stayed: StayedAnswer
    position: str | None
    """Position at which to go on, if the time was over: call again with it. None if all is done."""
