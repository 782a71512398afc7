"""Bodies and answers of the calls on jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, FailFast, Field, StrictInt, StrictStr

from selectroute.service.http.models import Strict

_Numbers = Annotated[
    list[Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]], Field(max_length=1_000), FailFast()
]
_Texts = Annotated[list[Annotated[StrictStr, Field(max_length=4_096)]], Field(max_length=1_000), FailFast()]


class FilterBody(Strict):
    """Filter of dead letters; empty is any. Source, partition and offset name one letter."""

    batches: _Numbers = Field(default_factory=list)
    stages: _Texts = Field(default_factory=list)
    reasons: _Texts = Field(default_factory=list)
    subscriptions: _Texts = Field(default_factory=list)
    sources: _Texts = Field(default_factory=list)
    partitions: _Numbers = Field(default_factory=list)
    offsets: _Numbers = Field(default_factory=list)


class ReplayBody(FilterBody):
    """Dead letters to be replayed, and how many a preview said they are."""

    expected: Annotated[StrictInt, Field(ge=1)]


class ByBatchAnswer(BaseModel):
    """Number of dead letters of a batch and reason that no replay took."""

    batch: int
    stage: str
    reason: str
    letters: int


class JobAnswer(BaseModel):
    """Job with its dead letters that no replay took, and the requests that wait for it. `problem` says why
    its output folder can't be read, for instance because the job has not run yet; null if it can.
    """

    name: str
    left: int
    by_batch: list[ByBatchAnswer]
    waiting: list[str]
    problem: str | None


class JobsAnswer(BaseModel):
    """Jobs whose dead letters the service shows, ordered by name."""

    items: list[JobAnswer]


class DeadLetterAnswer(BaseModel):
    """Dead letter: where it comes from, why it failed, and at most 10,000 of its bytes: as text if they are
    UTF-8, else in base64, null if they are still in the source.
    """

    batch: int
    stage: str
    reason: str
    message: str
    source: str
    partition: int
    offset: int | None
    revision: int
    subscription: str | None
    raw: str | None
    raw_base64: str | None
    bytes: int | None


class DeadLettersAnswer(BaseModel):
    """Dead letters, those of the newest batch first, and whether there are more."""

    items: list[DeadLetterAnswer]
    more: bool


class JudgedAnswer(DeadLetterAnswer):
    """Dead letter, and who gets it by the newest revision; null, and why, if that is not known."""

    total: int | None
    ids: list[str]
    why_not: str | None


class ReasonAnswer(BaseModel):
    """Number of dead letters of a reason."""

    stage: str
    reason: str
    letters: int


class PreviewAnswer(BaseModel):
    """Dead letters that a replay would take, and the newest ones judged."""

    letters: int
    reasons: list[ReasonAnswer]
    examples: list[JudgedAnswer]


class RequestedAnswer(BaseModel):
    """Request for a replay, and the number of its dead letters."""

    request: str
    letters: int


class ReplayedBatchAnswer(BaseModel):
    """Batch of a replay."""

    batch: int
    revision: int
    letters: int
    messages: int
    routed: int
    unrouted: int
    dead_lettered: int
    deliveries: int
    refused: int


class ReplayAnswer(BaseModel):
    """Request for a replay, and once it is done its batches."""

    request: str
    done: bool
    batches: list[ReplayedBatchAnswer]


class FindingAnswer(BaseModel):
    """Inconsistency found by an audit; the batch is null if it concerns no particular one."""

    batch: int | None
    sentence: str


class AuditAnswer(BaseModel):
    """Outcome of an audit: totals of the batches of the stream, batches to come, and findings; with `more`
    there are further ones.
    """

    batches: int
    backfills: int
    replays: int
    messages: int
    routed: int
    unrouted: int
    dead_lettered: int
    deliveries: int
    files: int
    bytes: int
    pending: list[int]
    findings: list[FindingAnswer]
    more: bool
