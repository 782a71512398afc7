"""Bodies, parameters and answers of the calls on jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, FailFast, Field, StrictInt, StrictStr

from selectroute.job_output import LetterFacts
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


Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]


def _many(name: str, description: str) -> Any:
    return Field(alias=name, max_length=100, description=description)


class FilterQuery(BaseModel):
    """Filter of dead letters, as `FilterBody`."""

    batches: Annotated[list[Integer], _many("batch", "Only of these batches.")] = []
    stages: Annotated[list[str], _many("stage", "Only of these stages: read, parse, judge, deliver.")] = []
    reasons: Annotated[list[str], _many("reason", "Only for these reasons, such as not-json.")] = []
    subscriptions: Annotated[
        list[str], _many("subscription", "Only refused deliveries to these subscriptions.")
    ] = []
    sources: Annotated[list[str], _many("source", "Only of these files or Kafka topics.")] = []
    partitions: Annotated[list[Integer], _many("partition", "Only of these partitions.")] = []
    offsets: Annotated[list[Integer], _many("offset", "Only at these lines, rows or records.")] = []


class ReplayBody(FilterBody):
    """Dead letters to be replayed, and how many a preview said they are."""

    expected: Annotated[StrictInt, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class LettersOfReason:
    """Number of dead letters of a reason that no replay took."""

    stage: str
    reason: str
    letters: int


@dataclass(frozen=True, slots=True)
class LettersOfBatch(LettersOfReason):
    """Number of dead letters of a batch and reason that no replay took."""

    batch: int


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Job with its dead letters that no replay took, and the requests that wait for it.

    `by_batch` has at most 1,000 lines, those of the newest commits; `more` says whether there are others.
    `problem` says why its output folder can't be read, for instance because the job has not run yet; null if
    it can.
    """

    name: str
    left: int
    by_batch: list[LettersOfBatch]
    more: bool
    waiting: list[str]
    problem: str | None


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """Header of a Kafka record, and at most 1,000 characters of its value, or of its bytes in base64 if they
    are not UTF-8; `bytes` is the whole number.
    """

    name: str
    value: str | None
    value_base64: str | None
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLetter(LetterFacts):
    """Dead letter: where it comes from, why it failed, and at most 10,000 characters of its bytes: as text if
    they are UTF-8, else 10,000 bytes in base64, null if they are still in the source. `bytes` is the number
    that `:bytes` returns. A Kafka record has a key, or null, and its first 100 headers; of others they are
    null. `replay` is the batch of the replay that took it, null if none did.
    """

    raw: str | None
    raw_base64: str | None
    bytes: int | None
    key: str | None
    key_base64: str | None
    key_bytes: int | None
    headers: list[ShownHeader] | None
    header_count: int | None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Dead letters, those of the newest commit first, whether there are more, and the cursor of those."""

    items: list[ShownLetter]
    more: bool
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLetter(ShownLetter):
    """Dead letter, and who gets it by the newest revision; null, and why, if that is not known."""

    total: int | None = None
    ids: list[str] = field(default_factory=list)
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """Dead letters that a replay would take, and the newest ones judged. `waiting` is the number of others
    that the filter finds: requests ask for them which wait for the job.
    """

    letters: int
    waiting: int
    reasons: list[LettersOfReason]
    examples: list[JudgedLetter]


@dataclass(frozen=True, slots=True)
class Requested:
    """Request for a replay, and the number of its dead letters."""

    request: str
    letters: int
