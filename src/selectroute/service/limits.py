"""Limits on what one request may hold and ask for. ``GET /v1/limits`` shows all of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from selectroute.queues.settings import MAX_MESSAGE_LENGTH
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import MAX_NAME_LENGTH, MAX_PROPERTIES
from selectroute.topics.filter import MAX_LENGTH, MAX_LEVELS

Count = Annotated[int, Field(ge=1, le=2**40)]


class ServiceLimits(BaseModel):
    """Limits of a service. Lengths count characters unless they are called bytes.

    >>> ServiceLimits(page=100).page
    100
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    selector_length: Annotated[int, Field(ge=1, le=1 << 20)] = DEFAULT_LIMITS.length
    """A selector; IBM MQ's limit, up to 1 MiB."""

    selector_nesting: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_LIMITS.nesting
    """Parentheses, NOTs and signs inside each other."""

    selector_items: Count = DEFAULT_LIMITS.items
    """Strings in one list of IN."""

    topic_length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] = MAX_LENGTH
    """A topic filter."""

    topic_levels: Annotated[int, Field(ge=1, le=MAX_LEVELS)] = MAX_LEVELS
    """Levels of a topic filter."""

    message_properties: Annotated[int, Field(ge=1, le=MAX_PROPERTIES)] = MAX_PROPERTIES
    """Properties of a message."""

    property_name_length: Annotated[int, Field(ge=1, le=1 << 20)] = MAX_NAME_LENGTH
    """The name of a property of a message that is matched or explained; one on a queue has IBM MQ's limit."""

    body_bytes: Count = 1 << 20
    """The body of any request but an import and a message."""

    message_bytes: Count = MAX_MESSAGE_LENGTH
    """The body of a message that is put; a queue may have a lower limit."""

    message_header_bytes: Annotated[int, Field(ge=4_096, le=1 << 20)] = 1 << 15
    """The headers of an answer that is a message; properties beyond them are left out, and counted."""

    import_bytes: Count = 4 << 30
    """The body of an import."""

    import_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000_000
    """Subscriptions in an import."""

    imports: Annotated[int, Field(ge=1, le=100)] = 8
    """Imports that are read at the same time; one more is told to come back."""

    exports: Annotated[int, Field(ge=1, le=32)] = 8
    """Exports that are sent at the same time; one more is told to come back."""

    stall_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    """How long an import may send nothing, and the client of an export take nothing."""

    connections: Annotated[int, Field(ge=1, le=2**20)] = 2_000
    """Connections that are open at the same time; one more is told so, and closed."""

    header_seconds: Annotated[float, Field(gt=0, le=3_600)] = 15.0
    """How long the head of a request may take, from the connection or the answer before it on."""

    body_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    """How long a body may take, and a second more for each `body_rate` bytes of it that came."""

    body_rate: Annotated[int, Field(ge=1, le=2**40)] = 8_192
    """Bytes a second: what a body that takes longer must come at."""

    imports_of_one: Annotated[int, Field(ge=1, le=100)] = 4
    """Imports of one token that are read at the same time."""

    batch_operations: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Operations that share a revision."""

    expanded_literals: Count = 200_000
    """What the selectors of one import or batch multiply out to: literals of their clauses beyond those that
    are written, and beyond 32 of each.
    """

    page: Annotated[int, Field(ge=1, le=1_000)] = 1_000
    """Subscriptions on one page of a list, changes in one answer, messages in one list."""

    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 30.0
    """How long a request may wait for a change, a message or a batch."""

    waiting: Count = 1_000
    """Requests that wait for a change at the same time, as many for messages and as many for batches; one
    more is told to come back.
    """

    explained: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Subscriptions that one request has explained."""

    explanation_bytes: Count = 16 << 20
    """What one request has explained, in all; each part of a selector shows the value that it saw."""

    explain_seconds: Annotated[float, Field(gt=0, le=3_600)] = 5.0
    """How long one request may explain; what it then has begun is completed, and more is refused."""

    matches: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ids that one answer to a match holds."""

    requests_per_second: Annotated[float, Field(gt=0)] | None = None
    """Requests of one caller, on average; none by default."""

    burst: Count = 100
    """Requests that a caller may send at once where `requests_per_second` is set."""

    @property
    def of_selectors(self) -> Limits:
        """Largest selector that is registered."""
        return Limits(self.selector_length, self.selector_nesting, self.selector_items)
