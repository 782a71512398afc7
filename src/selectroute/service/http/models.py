"""Models of request and response bodies, for the OpenAPI document; the registry checks their values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import InitErrorDetails, PydanticCustomError

from selectroute.registry.model import Backfill, EffectiveFrom, Subscription
from selectroute.selector.dialect import Seltype
from selectroute.selector.errors import did_you_mean
from selectroute.service.http.problems import RequestFault

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must not have control characters")
    return text


Line = Annotated[StrictStr, Field(max_length=2_000), AfterValidator(_printable)]
Dialect = Literal["jms", "ibm-jms", "ibm-mq", "mqe"]
Revision = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Id = Annotated[StrictStr, Field(pattern="^[A-Za-z0-9._-]{1,128}$")]
Limit = Annotated[int, Field(ge=1, le=1_000, description="The most to return.")]
Cursor = Annotated[
    str | None,
    Field(max_length=1_000, pattern="^[A-Za-z0-9_-]+$", description="The next_cursor of the page before."),
]
From = Literal["latest", "last-processed"]


MOST_MEMBERS: Final = 100
"""Members of an object at most; more are refused before any of them is validated."""


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MOST_MEMBERS:
        raise ValueError(f"must not have more than {MOST_MEMBERS:,} members")
    return value


def _suggested(fault: Any, known: list[str]) -> InitErrorDetails:
    """Return the error, with a suggestion for an unknown member."""
    sentence = fault["msg"]
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        advice = did_you_mean(fault["loc"][0], known, "the fields are")
        sentence = f"there is no such field: {advice}"
    # A user's text goes into a value, since braces in a template would be fields.
    kind = PydanticCustomError(fault["type"], "{sentence}", {"sentence": sentence})
    return InitErrorDetails(type=kind, loc=fault["loc"], input=fault["input"])


class Strict(BaseModel):
    """Strict body: unknown members are refused, with a suggestion. Validation of a list ends at its first
    invalid item, so that the report is never much larger than the body.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _suggest(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(_few(data))
        except ValidationError as error:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            raise ValidationError.from_exception_data(
                error.title, [_suggested(fault, known) for fault in error.errors(include_url=False)]
            ) from None


class DestinationBody(Strict):
    """Destination of deliveries in addition to ``deliveries/``. The name of a Kafka topic may be followed by
    ``?grouping=message`` or ``?grouping=delivery``: one record for each message, or for each delivery.
    """

    kind: Literal["none", "queue", "kafka"] = "none"
    name: StrictStr | None = None


class SpecBody(Strict):
    """Body of a subscription as a client sends it."""

    selector: StrictStr | None = None
    topic: StrictStr | None = None
    dialect: Dialect | None = None
    seltype: Seltype | None = None
    name: StrictStr | None = None
    destination: DestinationBody | None = None
    labels: Annotated[dict[StrictStr, StrictStr] | None, BeforeValidator(_few)] = None


class SubscriptionBody(SpecBody):
    """Whole subscription, as it was read; read-only fields are ignored."""

    id: Id | None = None
    status: Any = None
    revision: Any = None
    created: Any = None
    modified: Any = None
    effective_from: Any = None
    warnings: Any = None


class ResumeBody(Strict):
    """Starting point of a resumed subscription's messages."""

    from_: Annotated[From, Field(alias="from")] = "latest"


class OperationBody(SubscriptionBody):
    """Change in a batch of one revision; an add or replace has the fields of a subscription."""

    op: Literal["add", "replace", "remove", "pause", "resume"]
    expected: Revision | None = None
    from_: Annotated[From | None, Field(alias="from")] = None


class BatchBody(Strict):
    """Changes that are applied atomically."""

    operations: Annotated[list[OperationBody], Field(min_length=1, max_length=100_000), FailFast()]


class CheckBody(Strict):
    """Selector to be checked."""

    selector: StrictStr
    dialect: Dialect = "jms"


class MatchBody(Strict):
    """Message in JSON; `near` also asks for the subscriptions that fail only one condition."""

    message: dict[str, Any]
    limit: Annotated[StrictInt, Field(ge=1)] | None = None
    near: StrictBool = False


class ExplainBody(Strict):
    """Message in JSON, and the subscriptions to explain."""

    message: dict[str, Any]
    subscriptions: Annotated[list[StrictStr], Field(min_length=1, max_length=1_000), FailFast()]


class TokenBody(Strict):
    """Token to be created. Without topics it permits all subscriptions. `queues` and `kafka` are patterns,
    with * and ?, of the permitted destinations: without any of the three all, otherwise those that match.
    """

    role: Literal["reader", "writer", "admin"]
    topics: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    queues: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    kafka: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    name: Line | None = None


class QueryBody(Strict):
    """Query that reads the registry."""

    source: Line
    can_replay: StrictBool
    reason: Line | None = None


class BatchNumberBody(Strict):
    """Batch of a query, and the revision that it used."""

    batch: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    revision: Revision


Counted = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
_FIRST_YEAR: Final = 1970
_Word = Annotated[str, Field(min_length=1, max_length=64)]


def _moment(text: str) -> str:
    """Return a time. Raises ValueError for a date that does not exist or is before 1970."""
    if datetime.fromisoformat(text).year < _FIRST_YEAR:
        raise ValueError(f"must not be before {_FIRST_YEAR}")
    return text


class BatchReportBody(Strict):
    """Report of one batch: its revision, when it was committed, its counts, the seconds of each step, and the
    deliveries of its busiest subscriptions.
    """

    batch: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    revision: Revision
    kind: Literal["stream", "backfill", "replay"] = "stream"
    ended: Annotated[
        str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"), AfterValidator(_moment)
    ]
    messages: Counted
    routed: Counted
    unrouted: Counted
    dead_lettered: Counted
    deliveries: Counted
    refused: Counted = 0
    queued: Counted = 0
    sent: Counted = 0
    reasons: Annotated[dict[_Word, Counted], Field(max_length=50)] = {}
    seconds: Annotated[dict[_Word, Seconds], Field(max_length=50)] = {}
    busiest: Annotated[dict[Id, Counted], Field(max_length=100)] = {}


class StreamStateBody(Strict):
    """Stream at the moment: its name, how many destinations of each kind make it wait, and how many messages
    wait in its source, null if it does not know. `ended` is only in its last report: whether it has read all
    input, was stopped, or failed.
    """

    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    waiting: Annotated[dict[_Word, Counted], Field(max_length=10)] = {}
    behind: Counted | None = None
    ended: Literal["ended", "stopped", "failed"] | None = None


class ReportsBody(Strict):
    """Batches of a query since its last report, none for a sign of life, and its state."""

    batches: Annotated[list[BatchReportBody], Field(max_length=1_000), FailFast()] = []
    state: StreamStateBody = StreamStateBody()


class MessagesBody(Strict):
    """Messages in JSON for the sample of recent messages, the oldest first."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=200), FailFast()]


class DryRunBody(Strict):
    """Subscription as it would be after a change, and the id of the one that would be changed."""

    id: Id | None = None
    subscription: SpecBody | None = None


class ReportsAnswer(BaseModel):
    """Reports of batches, the newest first, and the cursor of those before them."""

    batches: list[BatchReportBody]
    next_cursor: str | None


class MessageAnswer(BaseModel):
    """Message of the sample in JSON, with the query that had it and the time of its report."""

    query: str
    time: str
    message: dict[str, Any]


class DryRunKindAnswer(BaseModel):
    """Messages that a change gains, loses or keeps: their count, and the newest ones."""

    count: int
    examples: list[MessageAnswer]


class DryRunAnswer(BaseModel):
    """Outcome of a dry run on so many messages, which were reported between two times; a paused subscription
    is judged as if it were active.
    """

    paused: bool
    messages: int
    oldest: str | None
    newest: str | None
    gained: DryRunKindAnswer
    lost: DryRunKindAnswer
    unchanged: DryRunKindAnswer


@dataclass(frozen=True, slots=True)
class SubscriptionAnswer(Subscription):
    """Subscription, and the first batch of each query that used its last change."""

    effective_from: list[EffectiveFrom] = field(default_factory=list)


class WarningAnswer(BaseModel):
    """Probable mistake in a selector, with its position: as in `/v1/selectors:check`."""

    kind: str
    message: str
    offset: int
    length: int
    line: int
    column: int
    reason: int | None
    """MQ reason code, if there is one."""


@dataclass(frozen=True, slots=True)
class RegisteredAnswer(SubscriptionAnswer):
    """Registered or changed subscription; `warnings` is null if a batch has too many selectors to check."""

    warnings: list[WarningAnswer] | None = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ResumedAnswer(SubscriptionAnswer):
    """Resumed subscription."""

    backfill: list[Backfill] = field(default_factory=list)


class BatchAnswer(BaseModel):
    """Revision, and the subscriptions after the operations, in their order."""

    revision: int
    subscriptions: list[RegisteredAnswer]


class ChangesAnswer(BaseModel):
    """Changes in order, the newest revision, the revision up to which the page is complete, and the cursor of
    the next page.
    """

    changes: list[dict[str, Any]]
    revision: int
    complete: int
    next_cursor: str | None


class HistoryAnswer(BaseModel):
    """Changes of one subscription, the newest first, and the cursor of those before them."""

    changes: list[dict[str, Any]]
    next_cursor: str | None


class CheckAnswer(BaseModel):
    """Facts about a valid selector, or the error of an invalid one."""

    valid: bool
    error: RequestFault | None = None
    dialect: str
    canonical: str | None = None
    identifiers: list[str] | None = None
    access: list[dict[str, Any]] | None = None
    warnings: list[dict[str, Any]] | None = None


class ExplainedAnswer(BaseModel):
    """Explanation why one subscription gets the message or not."""

    id: str
    matched: bool
    reason: str
    topic: dict[str, Any] | None = None
    access: list[dict[str, Any]] = []
    selector: dict[str, Any] | None = None


class ExplainAnswer(BaseModel):
    """Verdicts of a revision."""

    revision: int
    explanations: list[ExplainedAnswer]


class StateAnswer(BaseModel):
    """Readiness of the service, its newest revision and the published one."""

    status: Literal["ok", "ready", "not ready"]
    revision: int | None = None
    published: int | None = None
    reason: str | None = None
