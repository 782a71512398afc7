"""Calls on the dead letters of jobs, with their bodies and answers: read, preview a replay, ask for one."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, FailFast, Field, StrictInt, StrictStr
from starlette.responses import Response

from selectroute.index.match_report import judged
from selectroute.job_output import AuditTotals, DeadLetter, JobOutput, LetterFacts, ReplayProgress
from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.record import Record, message_of
from selectroute.registry.model import Items
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.message import Message, MessageError
from selectroute.selector.sentences import counted
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.service.context import Service
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import Limit, Strict
from selectroute.service.http.problems import ProblemError
from selectroute.service.subscriptions.messages import newest_snapshot

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


RAW_CHARACTERS: Final = 10_000
"""Characters of a dead letter that are shown, or bytes if they are not UTF-8."""

KEY_CHARACTERS: Final = 1_000
"""Characters of a key, and of the value of a header, that are shown."""

HEADERS: Final = 100
"""Headers of a dead letter that are shown."""

EXAMPLES: Final = 10
"""Dead letters of a preview that are judged by the newest revision."""

IDS: Final = 20
"""Subscriptions of a judged letter that are named."""

_BATCHES: Final = 1_000
"""Lines of counts by batch and reason of one job."""

_FINDINGS: Final = 1_000

_CUT: Final = ("too-large",)
"""Reasons of letters that do not keep all of their bytes."""

_ALL: Final = "dead letters are of all topics, and this needs a token"

Result = TypeVar("Result")

Job = Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="A job's name.")]
One = Field(max_length=4_096)


async def listed(service: Service, by: Caller) -> Items[JobSummary]:
    """Return the jobs whose dead letters this service shows, each with the number of those that no replay
    took. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    return Items([await _off(service.reading_jobs, _summary, *named) for named in service.jobs.items()])


def _summary(name: str, job: JobOutput) -> JobSummary:
    left, waiting, problem = [], [], None
    try:
        left, waiting = [*job.all_left()], [*job.waiting()]
    except (SelectRouteError, OSError) as error:  # the other jobs are shown all the same
        problem = _unreadable(error)
    shown = left[:_BATCHES]
    by_batch = [LettersOfBatch(count.stage, count.reason, count.letters, count.batch) for count in shown]
    number, more = sum(count.letters for count in left), len(left) > _BATCHES
    return JobSummary(name, number, by_batch, more, waiting, problem)


async def dead_letters(
    service: Service,
    by: Caller,
    job: Job,
    wanted: FilterQuery,
    left: Annotated[bool, Field(description="Only those that no replay took.")] = False,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, Field(max_length=40, description="The next_cursor of the page before.")
    ] = None,
) -> LetterPage:
    """Return dead letters of a job, those of the newest commit first, replayed or not. Needs a token for all
    topics.
    """
    limit, folder = min(limit, service.limits.page), _job(service, by, job)

    def read() -> LetterPage:
        try:
            placed = folder.letters(wanted.model_dump(), limit + 1, left_only=left, after=cursor)
        except ValueError:
            if cursor is None:
                raise
            raise ProblemError(
                "invalid-request", "the cursor is not one of this list: begin without it", place="cursor"
            ) from None
        more = len(placed) > limit
        items = [ShownLetter(**_shown(letter)) for _, letter in placed[:limit]]
        return LetterPage(items, more, placed[limit - 1][0] if more else None)

    return await _off(service.reading_jobs, read)


async def raw_bytes(
    service: Service,
    by: Caller,
    job: Job,
    batch: Integer,
    source: Annotated[str, One],
    partition: Integer,
    offset: Integer | None = None,
    stage: Annotated[str | None, One] = None,
    reason: Annotated[str | None, One] = None,
    subscription: Annotated[str | None, One] = None,
    part: Annotated[
        Literal["value", "key"], Field(description="Of a Kafka record the value, or the key.")
    ] = "value",
) -> Response:
    """Return the bytes of one dead letter, as they are kept: all of them, except of one that was too large.
    Needs a token for all topics.
    """
    folder = _job(service, by, job)
    filters = {"batches": batch, "sources": source, "partitions": partition, "offsets": offset}
    filters |= {"stages": stage, "reasons": reason, "subscriptions": subscription}
    wanted = {name: [value] for name, value in filters.items() if value is not None}
    placed = await _off(service.reading_jobs, folder.letters, wanted, 1)
    if not placed:
        raise ProblemError("not-found", "the job has no such dead letter")
    (_, letter), *_ = placed
    data = letter.raw if part == "value" else letter.key
    if data is None:
        why = "the dead letter has no key" if part == "key" else "its bytes are still in the source"
        raise ProblemError("not-found", why)
    at = "" if offset is None else f"-{offset}"
    name = f"{job}-batch{batch}-{partition}{at}{'-key' if part == 'key' else ''}.bin"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def preview(service: Service, by: Caller, job: Job, body: FilterBody) -> Preview:
    """Show what a replay would do: how many dead letters it would take, and which subscriptions get the
    newest ten of them by the newest revision. The latter is known of a letter whose bytes are a message in
    JSON, or a Kafka record of a job that recorded its binding. Needs a token for all topics.
    """
    folder = _job(service, by, job)
    shown, letters, binding = await _off(service.reading_jobs, _previewed, folder, body.model_dump())
    examples = await to_thread.run_sync(
        lambda: [_judged(service, letter, binding) for letter in letters], limiter=service.explaining
    )
    return replace(shown, examples=examples)


def _previewed(
    folder: JobOutput, wanted: Mapping[str, Any]
) -> tuple[Preview, list[DeadLetter], KafkaBinding | str]:
    """Return the preview without examples, the example letters, and the binding of Kafka records."""
    reasons: Counter[tuple[str, str]] = Counter()
    asked = 0
    for count in folder.left(wanted):
        asked += count.asked
        if count.letters > count.asked:
            reasons[count.stage, count.reason] += count.letters - count.asked
    rows = [LettersOfReason(stage, reason, number) for (stage, reason), number in reasons.most_common()]
    placed = folder.letters(wanted, EXAMPLES, left_only=True, unasked_only=True) if rows else []
    letters = [letter for _, letter in placed]
    binding = _binding(folder) if any(letter.headers is not None for letter in letters) else ""
    return Preview(reasons.total(), asked, rows, []), letters, binding


async def replay(service: Service, by: Caller, job: Job, body: ReplayBody) -> Requested:
    """Have the job process dead letters again, between two of its batches or at its next start; each at most
    once. `expected` is the number that a preview showed, without those that a waiting request asks for: if
    it has changed, nothing is requested. Needs a token for all topics and destinations.
    """
    by.check_unlimited(_ALL)
    folder, wanted = _job(service, by, job), body.model_dump(exclude={"expected"})
    request, left = await _off(service.reading_jobs, folder.replay, wanted, body.expected)
    if request is None:
        detail = f"{counted(left, 'dead letter')} can be replayed now, and not {body.expected:,}"
        raise ProblemError("letters-changed", detail, expected=body.expected, found=left)
    return Requested(request, left)


async def replayed(
    service: Service,
    by: Caller,
    job: Job,
    request: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="The id of a request.")],
) -> ReplayProgress:
    """Return how far a replay is, and the batches that came of it. Needs a token for all topics."""
    folder = _job(service, by, job)
    try:
        return await _off(service.reading_jobs, folder.replayed, request)
    except KeyError:
        raise ProblemError("not-found", "the job has no such request") from None


async def _off(limiter: CapacityLimiter, function: Callable[..., Result], *args: Any) -> Result:
    """Run a function that reads a job's folder in a thread of a separate limit, and return its result.
    Raises a problem, 503, for a folder that can't be read.
    """
    try:
        return await to_thread.run_sync(function, *args, limiter=limiter)
    except ProblemError:
        raise
    except (SelectRouteError, OSError) as error:
        raise ProblemError("unavailable", _unreadable(error)) from error


def _unreadable(error: Exception) -> str:
    return f"the output folder of the job can't be read: {error}"


async def audit(service: Service, by: Caller, job: Job) -> AuditTotals:
    """Check that the accounts of a job balance: messages in = routed + unrouted + dead letters, in every
    batch; each input in exactly one batch; each published file there with its size and rows. At most 1,000
    findings are returned. Needs a token for all topics.
    """
    totals = await _off(service.auditing, _job(service, by, job).audit)
    return replace(totals, findings=totals.findings[:_FINDINGS], more=len(totals.findings) > _FINDINGS)


def _job(service: Service, by: Caller, name: str) -> JobOutput:
    """Return the output folder of a job. Raises a problem: 403 for a token for some topics, 404."""
    by.check_all_topics(_ALL)
    try:
        return service.jobs[name]
    except KeyError:
        raise ProblemError("job-not-found", "this service was not told of such a job") from None


def _shown(letter: DeadLetter) -> dict[str, Any]:
    """Return the fields of a `ShownLetter`: the beginning of each text or bytes."""
    raw, raw_base64 = _beginning(letter.raw, RAW_CHARACTERS)
    key, key_base64 = _beginning(letter.key, KEY_CHARACTERS)
    headers = letter.headers
    return {
        **{field.name: getattr(letter, field.name) for field in fields(LetterFacts)},
        "raw": raw,
        "raw_base64": raw_base64,
        "bytes": _size(letter.raw),
        "key": key,
        "key_base64": key_base64,
        "key_bytes": _size(letter.key),
        "headers": None if headers is None else [_shown_header(*header) for header in headers[:HEADERS]],
        "header_count": None if headers is None else len(headers),
    }


def _shown_header(name: str, value: bytes | None) -> ShownHeader:
    return ShownHeader(name[:KEY_CHARACTERS], *_beginning(value, KEY_CHARACTERS), _size(value))


def _beginning(data: bytes | None, most: int) -> tuple[str | None, str | None]:
    """Return the beginning of bytes as text, if all of them are UTF-8, else in base64."""
    if data is None:
        return None, None
    try:
        return data.decode("utf-8")[:most], None
    except UnicodeDecodeError:
        return None, base64.b64encode(data[:most]).decode()


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)


def _binding(folder: JobOutput) -> KafkaBinding | str:
    """Return the binding of the Kafka records of a job, or the reason why there is none."""
    try:
        binding = KafkaBinding.recorded(folder.binding())
    except KafkaBindingError as error:
        return f"it is a Kafka record, and {error}"
    if any(field_binding.source.kind == "timestamp" for field_binding in binding.bound.values()):
        return "the job binds the time of a record, which is not kept with a dead letter"
    return binding


def _judged(service: Service, letter: DeadLetter, binding: KafkaBinding | str) -> JudgedLetter:
    """Return a dead letter, and who gets it now, if its bytes are a message."""
    message = _message(letter, binding, service.limits.property_name_length)
    if isinstance(message, str):
        return JudgedLetter(**_shown(letter), why_not=message)
    snapshot = newest_snapshot(service)
    matched = judged(snapshot, message).matched
    ids = snapshot.ids.take(matched[:IDS]).to_pylist()
    return JudgedLetter(**_shown(letter), total=len(matched), ids=ids)


def _message(letter: DeadLetter, binding: KafkaBinding | str, name_length: int) -> Message | str:
    """Return the message of a dead letter, or the reason why it is unknown."""
    if letter.subscription is not None:
        return "its message was read: only this delivery was refused"
    if letter.raw is None and letter.headers is None:
        return "its bytes are still in the source"
    if letter.reason in _CUT:
        return "only the beginning of its bytes is kept, and a replay reads all of them"
    try:
        if letter.headers is None:
            return Message.from_json(parse_json(letter.raw or b""), name_length=name_length)
        if isinstance(binding, str):
            return binding
        place = letter.source, letter.partition, letter.offset or 0
        record = Record(*place, key=letter.key, value=letter.raw, headers=letter.headers)
        return message_of(record, binding)
    except JsonError as error:
        return f"its bytes are {error}"
    except (MessageError, RecordError) as error:
        return str(error)
