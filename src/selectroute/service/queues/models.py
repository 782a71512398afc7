"""Models of request and response bodies of queues, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from selectroute.queues.lookup import MatchOptions
from selectroute.queues.message.put_validation import MAX_NUMBER
from selectroute.queues.rest.lookup import LookupParams
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.selector.limits import Limits
from selectroute.service.http.models import Dialect, Strict

Name = Annotated[str, Field(description="A queue's name; encode a slash as %2F, a percent sign as %25.")]


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


# ---- lookups, and what is done to many messages

ID_HELP: Final = "ID: followed by 48 hexadecimal digits."
TEXT_HELP: Final = (
    "ID: followed by up to 48 hexadecimal digits, zero-padded on the right; or an application's text, of "
    "which the first 24 bytes of UTF-8 are the id."
)

Text = Annotated[str, Field(max_length=2_000)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class LookupBody(Strict):
    """Conditions on messages, as of a get: all that are given must agree; without any, every message does."""

    model_config = ConfigDict(strict=True)  # a body; parameters of a query, which are texts, are converted

    messageId: Annotated[Text | None, Field(description=ID_HELP)] = None
    correlationId: Annotated[Text | None, Field(description=TEXT_HELP)] = None
    groupId: Annotated[Text | None, Field(description=TEXT_HELP)] = None
    msgSeqNumber: Annotated[int | None, Field(ge=1, le=MAX_NUMBER, description="The place in the group.")] = (
        None
    )
    offset: Annotated[int | None, Field(ge=0, le=MAX_NUMBER, description="The offset of a segment.")] = None
    msgToken: Annotated[Text | None, Field(description="32 hexadecimal digits.")] = None
    selector: Annotated[str | None, Field(description="A selector that the message must match.")] = None
    dialect: Annotated[Dialect | None, Field(description="The selector's; the queue's by default.")] = None

    def options(self, dialect: str, limits: Limits) -> MatchOptions:
        """Return the match options, see `LookupParams.options`."""
        params = LookupParams(*(getattr(self, name) for name in LookupParams._fields))
        return params.options(dialect, limits)


class PurgeBody(LookupBody):
    """Messages to be removed."""

    expected: _Count | None = None
    """Number of matching messages that the caller has seen: with another one nothing is done."""
    position: Annotated[str, Field(pattern="^[0-9]{1,18}-(-1|[0-9]{1,18})$")] | None = None
    """As of the answer before, to go on with the same messages: those that arrived later are not touched."""


class MoveBody(PurgeBody):
    """Messages to be moved, and the queue to which."""

    to: Annotated[str, Field(max_length=1_000)]
