"""Limits of requests to the service. ``GET /v1/limits`` shows all of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from selectroute.queues.settings import MAX_MESSAGE_LENGTH
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import MAX_NAME_LENGTH, MAX_PROPERTIES

Count = Annotated[int, Field(ge=1, le=2**40)]


class ServiceLimits(BaseModel):
    """Limits of a service. Lengths count characters; fields in bytes are named so.

    >>> ServiceLimits(page=100).page
    100
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    selector_length: Annotated[int, Field(ge=1, le=1 << 20)] = DEFAULT_LIMITS.length
    """Length of a selector; IBM MQ's limit by default, up to 1 MiB."""

    selector_nesting: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_LIMITS.nesting
    """Nesting of parentheses, NOTs and signs."""

    selector_items: Count = DEFAULT_LIMITS.items
    """Strings in one IN list."""

    message_properties: Annotated[int, Field(ge=1, le=MAX_PROPERTIES)] = MAX_PROPERTIES
    """Properties of a message."""

    property_name_length: Annotated[int, Field(ge=1, le=1 << 20)] = MAX_NAME_LENGTH
    """Length of a property name in a match or explain request; queues have IBM MQ's limit."""

    body_bytes: Count = 1 << 20
    """Bytes of the body of any request but an import or a message."""

    message_bytes: Count = MAX_MESSAGE_LENGTH
    """Bytes of the body of a message that is put; a queue may have a lower limit."""

    open_body_bytes: Count = 256 << 20
    """Bytes of the bodies of all requests in progress but imports, without the first 64 KiB of each; one
    token may have half of them, and one more gets a 503.
    """

    message_header_bytes: Annotated[int, Field(ge=4_096, le=1 << 20)] = 1 << 15
    """Bytes of the headers of a response with a message; further properties are left out and counted."""

    import_bytes: Count = 4 << 30
    """Bytes of the body of an import."""

    import_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000_000
    """Subscriptions in an import."""

    imports: Annotated[int, Field(ge=1, le=100)] = 8
    """Concurrent imports; one more gets a 429."""

    exports: Annotated[int, Field(ge=1, le=32)] = 8
    """Concurrent exports; one more gets a 429."""

    stall_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    """Longest time that an import may send nothing, or the client of an export may read nothing."""

    connections: Annotated[int, Field(ge=1, le=2**20)] = 2_000
    """Open connections; one more gets a 503 and is closed."""

    header_seconds: Annotated[float, Field(gt=0, le=3_600)] = 15.0
    """Longest time of a request's head, from the connection or the previous response on."""

    body_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    """Longest time of a body, plus a second for each `body_rate` bytes received."""

    body_rate: Annotated[int, Field(ge=1, le=2**40)] = 8_192
    """Bytes a second that a body must reach if it takes longer than `body_seconds`."""

    imports_of_one: Annotated[int, Field(ge=1, le=100)] = 4
    """Concurrent imports of one token."""

    subscriptions_of_one: Count | None = None
    """Subscriptions that one token may have added while this limit was set; any number by default."""

    batch_operations: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Operations in one batch, which is one revision."""

    expanded_literals: Count = 200_000
    """Literals that the selectors of one import or batch may expand to, not counting the written ones and 32
    free ones of each selector.
    """

    page: Annotated[int, Field(ge=1, le=1_000)] = 1_000
    """Subscriptions on one page, changes in one response, messages in one list."""

    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 30.0
    """Longest time that a request may wait for a change, a message or a batch."""

    waiting: Count = 1_000
    """Requests that wait for changes at the same time, and as many each for messages and batches; one more
    gets a 429.
    """

    explained: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Subscriptions in one explain request."""

    explanation_bytes: Count = 16 << 20
    """Bytes of all explanations of one request; each part of a selector shows the value that it read."""

    explain_seconds: Annotated[float, Field(gt=0, le=3_600)] = 5.0
    """Longest time of one explain request; the request is refused after the current explanation."""

    matches: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Ids in the response to one match request."""

    scan_seconds: Annotated[float, Field(gt=0, le=3_600)] = 5.0
    """Longest time for which one request may compare messages of a queue with a selector."""

    bulk_seconds: Annotated[float, Field(gt=0, le=3_600)] = 10.0
    """Time after which a purge or a move of messages begins no further transaction; its answer says so."""

    requests_per_second: Annotated[float, Field(gt=0)] | None = None
    """Average requests a second of one caller; unlimited by default."""

    burst: Count = 100
    """Requests that a caller may send at once if `requests_per_second` is set."""

    @property
    def of_selectors(self) -> Limits:
        """Limits of registered selectors."""
        return Limits(self.selector_length, self.selector_nesting, self.selector_items)
