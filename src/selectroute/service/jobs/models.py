"""Bodies and answers of the calls on jobs."""

from __future__ import annotations

from typing import Annotated, Literal

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
    """Job with its dead letters that no replay took, and the requests that wait for it.

    `by_batch` has at most 1,000 lines, those of the newest commits; `more` says whether there are others.
    `problem` says why its output folder can't be read, for instance because the job has not run yet; null if
    it can.
    """

    name: str
    left: int
    by_batch: list[ByBatchAnswer]
    more: bool
    waiting: list[str]
    problem: str | None


class JobsAnswer(BaseModel):
    """Jobs whose dead letters the service shows, ordered by name."""

    items: list[JobAnswer]


class HeaderAnswer(BaseModel):
    """Header of a Kafka record, and at most 1,000 characters of its value, or of its bytes in base64 if they
    are not UTF-8; `bytes` is the whole number.
    """

    name: str
    value: str | None
    value_base64: str | None
    bytes: int | None


class DeadLetterAnswer(BaseModel):
    """Dead letter: where it comes from, why it failed, and at most 10,000 characters of its bytes: as text if
    they are UTF-8, else 10,000 bytes in base64, null if they are still in the source. `bytes` is the number
    that `:bytes` returns. A Kafka record has a key, or null, and its first 100 headers; of others they are
    null. `replay` is the batch of the replay that took it, null if none did.
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
    key: str | None
    key_base64: str | None
    key_bytes: int | None
    headers: list[HeaderAnswer] | None
    header_count: int | None
    replay: int | None


class DeadLettersAnswer(BaseModel):
    """Dead letters, those of the newest commit first, whether there are more, and the cursor of those."""

    items: list[DeadLetterAnswer]
    more: bool
    next_cursor: str | None


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
    """Dead letters that a replay would take, and the newest ones judged. `waiting` is the number of others
    that the filter finds: requests ask for them which wait for the job.
    """

    letters: int
    waiting: int
    reasons: list[ReasonAnswer]
    examples: list[JudgedAnswer]


class RequestedAnswer(BaseModel):
    """Request for a replay, and the number of its dead letters."""

    request: str
    letters: int


class ReplayedBatchAnswer(BaseModel):
    """Batch of a replay; `missing` says which of its inputs were gone, and not replayed."""

    batch: int
    revision: int
    letters: int
    messages: int
    routed: int
    unrouted: int
    dead_lettered: int
    deliveries: int
    refused: int
    missing: list[str]


class ReplayAnswer(BaseModel):
    """Request for a replay, and its batches so far.

    It is `running` while the job makes a batch of it, `batch`, or will finish one that was interrupted at its
    next start. `letters` is the number that was asked for; `taken` is the number of those that its batches
    took.
    """

    request: str
    done: bool
    state: Literal["waiting", "running", "done"]
    letters: int
    taken: int
    batch: int | None
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
