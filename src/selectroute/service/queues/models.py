"""Models of request and response bodies of queues, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt

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
    """Queue; its depth is the count of messages available to a get."""

    name: str
    order: Literal["priority", "fifo"]
    default_priority: int
    default_persistence: bool
    max_depth: int | None
    max_message_length: int
    dialect: str
    depth: int


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
