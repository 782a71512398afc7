"""Bodies and answers, for the OpenAPI document; the registry itself checks what they say."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ModelWrapValidatorHandler,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from selectroute.selector.selector_type import Seltype
from selectroute.selector.suggestion import did_you_mean
from selectroute.service.http.problems import Fault

_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("it has a control character")
    return text


Line = Annotated[StrictStr, Field(max_length=2_000), AfterValidator(_printable)]
Dialect = Literal["jms", "ibm-jms", "ibm-mq", "mqe"]
Revision = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Id = Annotated[StrictStr, Field(pattern="^[A-Za-z0-9._-]{1,128}$")]
From = Literal["latest", "last-processed"]


MOST_MEMBERS: Final = 100
"""Members of an object of a body; more are refused before each of them is looked at."""


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MOST_MEMBERS:
        raise ValueError(f"it has more than {MOST_MEMBERS:,} members")
    return value


def _suggested(fault: Any, known: list[str]) -> InitErrorDetails:
    """Return the same error of a body; of an unknown member of its own with a suggestion."""
    sentence = fault["msg"]
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        advice = did_you_mean(fault["loc"][0], known, "the fields are")
        sentence = f"there is no such field: {advice}"
    # Braces would be fields of a template; what a user wrote is a value of it.
    kind = PydanticCustomError(fault["type"], "{sentence}", {"sentence": sentence})
    return InitErrorDetails(type=kind, loc=fault["loc"], input=fault["input"])


class Strict(BaseModel):
    """A body; members that it does not have are refused, with the one that was probably meant. A list ends at
    the first item that is wrong, so that what is said of a body is never much more than the body.
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
                error.title, [_suggested(one, known) for one in error.errors(include_url=False)]
            ) from None


class DestinationBody(Strict):
    """Where deliveries go besides ``deliveries/``."""

    # `files` gets as far as the registry, which says what to write instead; nobody is offered it.
    kind: Annotated[
        Literal["none", "files", "queue", "kafka"],
        WithJsonSchema({"type": "string", "enum": ["none", "queue", "kafka"]}),
    ] = "none"
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
    """A whole subscription, as it was read: what only the registry changes is left alone."""

    id: Id | None = None
    status: Any = None
    revision: Any = None
    created: Any = None
    modified: Any = None
    effective_from: Any = None
    warnings: Any = None


class ResumeBody(Strict):
    """From where on a subscription gets messages again."""

    from_: Annotated[From, Field(alias="from")] = "latest"


class OperationBody(SubscriptionBody):
    """Change among several that share a revision; a subscription's fields belong to an add or a replace."""

    op: Literal["add", "replace", "remove", "pause", "resume"]
    expected: Revision | None = None
    from_: Annotated[From | None, Field(alias="from")] = None


class BatchBody(Strict):
    """Changes that become true together."""

    operations: Annotated[list[OperationBody], Field(min_length=1, max_length=100_000), FailFast()]


class CheckBody(Strict):
    """A selector to be checked."""

    selector: StrictStr
    dialect: Dialect = "jms"


class MatchBody(Strict):
    """A message in the wire form; `near` asks for the subscriptions that one condition keeps from it, too."""

    message: dict[str, Any]
    limit: Annotated[StrictInt, Field(ge=1)] | None = None
    near: StrictBool = False


class ExplainBody(Strict):
    """A message in the wire form, and the subscriptions that are to be explained."""

    message: dict[str, Any]
    subscriptions: Annotated[list[StrictStr], Field(min_length=1, max_length=1_000), FailFast()]


class TokenBody(Strict):
    """A token that is to be made. Without topics it permits all; `queues` and `kafka` are patterns, with *
    and ?, of the destinations that it permits: with topics and without patterns none.
    """

    role: Literal["reader", "writer", "admin"]
    topics: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    queues: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    kafka: Annotated[list[StrictStr], Field(max_length=100), FailFast()] = []
    name: Line | None = None


class QueryBody(Strict):
    """A query that reads the registry."""

    source: Line
    can_replay: StrictBool
    reason: Line | None = None


class BatchNumberBody(Strict):
    """A batch of a query, and the revision that it used."""

    batch: Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    revision: Revision


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    name: str
    role: Literal["reader", "writer", "admin"]
    topics: list[str]
    queues: list[str]
    kafka: list[str]
    created: str


class NewTokenAnswer(TokenAnswer):
    """A token that was made, and its secret, which is told this once."""

    secret: str


class TokensAnswer(BaseModel):
    """All tokens, the oldest first."""

    items: list[TokenAnswer]


class EffectiveAnswer(BaseModel):
    """First batch of a query that used the revision. To a caller who may not see all subscriptions,
    `query` is a number.
    """

    query: str
    batch: int


class SubscriptionAnswer(BaseModel):
    """A subscription."""

    id: str
    name: str
    topic: str | None
    selector: str
    dialect: str
    seltype: str
    destination: dict[str, Any]
    status: Literal["active", "paused"]
    labels: dict[str, str]
    revision: int
    created: str
    modified: str
    effective_from: list[EffectiveAnswer] = []


class WarningAnswer(BaseModel):
    """Probable mistake in a selector, and where: as `/v1/selectors:check` has it."""

    kind: str
    message: str
    offset: int
    length: int
    line: int
    column: int
    reason: int | None
    """The MQ reason code, if there is one."""


class RegisteredAnswer(SubscriptionAnswer):
    """A subscription as it was registered or changed; `warnings` is null where a batch has too many selectors
    to look at each of them.
    """

    warnings: list[WarningAnswer] | None = []


class BackfillAnswer(BaseModel):
    """Part that a query can deliver of the time that the subscription was paused. To a caller who may not see
    all subscriptions, `query` is a number, and there is no reason.
    """

    query: str
    can_replay: bool
    reason: str | None


class QueriesAnswer(BaseModel):
    """Queries that are known, by their names."""

    items: list[BackfillAnswer]


class ResumedAnswer(SubscriptionAnswer):
    """A subscription that gets messages again."""

    backfill: list[BackfillAnswer]


class PageAnswer(BaseModel):
    """Some subscriptions; the cursor of those that follow."""

    items: list[SubscriptionAnswer]
    next_cursor: str | None


class BatchAnswer(BaseModel):
    """Revision, and the subscriptions after it in the order of the operations."""

    revision: int
    subscriptions: list[RegisteredAnswer]


class ImportAnswer(BaseModel):
    """Count of the subscriptions that an import changed, and their revision."""

    rows: int
    revision: int


class ChangesAnswer(BaseModel):
    """Changes in their order, the newest revision, up to which none is missing, and the cursor of those
    that follow.
    """

    changes: list[dict[str, Any]]
    revision: int
    complete: int
    next_cursor: str | None


class CheckAnswer(BaseModel):
    """Facts about a selector, or what is wrong with it."""

    valid: bool
    error: Fault | None = None
    dialect: str
    canonical: str | None = None
    identifiers: list[str] | None = None
    access: list[dict[str, Any]] | None = None
    warnings: list[dict[str, Any]] | None = None


class ConditionAnswer(BaseModel):
    """A condition of a selector as it stands there, its truth, and the values that it saw. `void` makes the
    whole selector false.
    """

    text: str
    truth: Literal["true", "false", "unknown", "void"]
    saw: list[str]


class NearAnswer(BaseModel):
    """A subscription that does not get the message; had one of these conditions another truth, it would."""

    id: str
    topic: str | None
    selector: str
    conditions: list[ConditionAnswer]


class MatchAnswer(BaseModel):
    """Subscriptions that a message reaches at a revision, `total` of them; `refused` were not judged.

    `near` and `near_complete` are there if they were asked for: the subscriptions that one condition keeps
    from the message, and whether these are all.
    """

    revision: int
    total: int
    ids: list[str]
    refused: list[str]
    near: list[NearAnswer] | None = None
    near_complete: bool | None = None


class ExplainedAnswer(BaseModel):
    """Why one subscription gets the message or does not."""

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
    """Readiness of the service, and how far it is."""

    status: Literal["ok", "ready", "not ready"]
    revision: int | None = None
    published: int | None = None
    reason: str | None = None
