"""Calls on the dead letters of jobs: read, look at what a replay would do, have them replayed."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import Field
from starlette.responses import Response

from selectroute.index.verdicts import judged
from selectroute.kafka.binding import KafkaBinding, KafkaBindingError
from selectroute.kafka.errors import RecordError
from selectroute.kafka.record import Record, message_of
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.selector.message import Message, MessageError
from selectroute.selector.strict_json import JsonError, parse_json
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import Limit
from selectroute.service.http.problems import ProblemError
from selectroute.service.jobs.job_output import JobOutput
from selectroute.service.jobs.models import (
    AuditAnswer,
    DeadLettersAnswer,
    FilterBody,
    JobsAnswer,
    PreviewAnswer,
    ReplayAnswer,
    ReplayBody,
    RequestedAnswer,
)
from selectroute.service.subscriptions.messages import newest_snapshot

RAW_CHARACTERS: Final = 10_000
"""Characters of a dead letter that are shown, or bytes if they are not UTF-8."""

KEY_CHARACTERS: Final = 1_000
"""The same of a key and of the value of a header."""

HEADERS: Final = 100
"""Headers of a dead letter that are shown."""

EXAMPLES: Final = 10
"""Dead letters of a preview that are judged by the newest revision."""

IDS: Final = 20
"""Subscriptions of such a letter that are named."""

_BATCHES: Final = 1_000
"""Lines of counts by batch and reason of one job."""

_FINDINGS: Final = 1_000

_CUT: Final = ("too-large",)
"""Reasons of letters that do not keep all of their bytes."""

_LEFT: Final = ("batch", "stage", "reason", "letters")
_SHOWN: Final = (*_LEFT[:3], "message", "source", "partition", "offset", "revision", "subscription", "replay")
_ALL: Final = "dead letters are of all topics, and this needs a token"

Result = TypeVar("Result")

Job = Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="A job's name.")]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
One = Field(max_length=4_096)


def _many(description: str) -> Any:
    return Field(max_length=100, description=description)


async def listed(service: Service, by: Caller) -> Annotated[Response, JobsAnswer]:
    """Return the jobs whose dead letters this service shows, each with the number of those that no replay
    took. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    items = [await _off(service.reading_jobs, _summary, name, job) for name, job in service.jobs.items()]
    return JsonAnswer({"items": items})


def _summary(name: str, job: JobOutput) -> dict[str, Any]:
    left, waiting, problem = [], [], None
    try:
        left, waiting = [*job.all_left()], [*job.waiting()]
    except (SelectRouteError, OSError) as error:  # the other jobs are shown all the same
        problem = _unreadable(error)
    by_batch = [{field: getattr(one, field) for field in _LEFT} for one in left[:_BATCHES]]
    number, more = sum(one.letters for one in left), len(left) > _BATCHES
    found = {"name": name, "left": number, "by_batch": by_batch, "more": more}
    return found | {"waiting": waiting, "problem": problem}


async def dead_letters(
    service: Service,
    by: Caller,
    job: Job,
    batch: Annotated[list[Integer] | None, _many("Only of these batches.")] = None,
    stage: Annotated[list[str] | None, _many("Only of these stages: read, parse, judge, deliver.")] = None,
    reason: Annotated[list[str] | None, _many("Only for these reasons, such as not-json.")] = None,
    subscription: Annotated[
        list[str] | None, _many("Only refused deliveries to these subscriptions.")
    ] = None,
    source: Annotated[list[str] | None, _many("Only of these files or Kafka topics.")] = None,
    partition: Annotated[list[Integer] | None, _many("Only of these partitions.")] = None,
    offset: Annotated[list[Integer] | None, _many("Only at these lines, rows or records.")] = None,
    left: Annotated[bool, Field(description="Only those that no replay took.")] = False,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, Field(max_length=40, description="The next_cursor of the page before.")
    ] = None,
) -> Annotated[Response, DeadLettersAnswer]:
    """Return dead letters of a job, those of the newest commit first, replayed or not. Needs a token for all
    topics.
    """
    by.check_all_topics(_ALL)
    given = (batch, stage, reason, subscription, source, partition, offset)
    names = ("batches", "stages", "reasons", "subscriptions", "sources", "partitions", "offsets")
    wanted = {name: values or [] for name, values in zip(names, given, strict=True)}
    limit, folder = min(limit, service.limits.page), _job(service, job)

    def read() -> dict[str, Any]:
        try:
            found = folder.letters(wanted, limit + 1, left_only=left, after=cursor)
        except ValueError:
            if cursor is None:
                raise
            raise ProblemError(
                "invalid-request", "the cursor is not one of this list: begin without it", place="cursor"
            ) from None
        more = len(found) > limit
        items = [_letter(one) for one in found[:limit]]
        return {"items": items, "more": more, "next_cursor": found[limit - 1]["place"] if more else None}

    return JsonAnswer(await _off(service.reading_jobs, read))


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
    by.check_all_topics(_ALL)
    folder = _job(service, job)
    wanted = {"batches": [batch], "sources": [source], "partitions": [partition]}
    given = {"offsets": offset, "stages": stage, "reasons": reason, "subscriptions": subscription}
    wanted |= {name: [value] for name, value in given.items() if value is not None}
    found = await _off(service.reading_jobs, folder.letters, wanted, 1)
    if not found:
        raise ProblemError("not-found", "the job has no such dead letter")
    data = found[0]["raw" if part == "value" else "key"]
    if data is None:
        why = "the dead letter has no key" if part == "key" else "its bytes are still in the source"
        raise ProblemError("not-found", why)
    at = "" if offset is None else f"-{offset}"
    name = f"{job}-batch{batch}-{partition}{at}{'-key' if part == 'key' else ''}.bin"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def preview(
    service: Service, by: Caller, job: Job, body: FilterBody
) -> Annotated[Response, PreviewAnswer]:
    """Show what a replay would do: how many dead letters it would take, and which subscriptions get the
    newest ten of them by the newest revision. The latter is known of a letter whose bytes are a message in
    JSON, or a Kafka record of a job that recorded its binding. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    found, letters, binding = await _off(
        service.reading_jobs, _previewed, _job(service, job), body.model_dump()
    )
    examples = await to_thread.run_sync(
        lambda: [_judged(service, one, binding) for one in letters], limiter=service.explaining
    )
    return JsonAnswer({**found, "examples": examples})


def _previewed(
    folder: JobOutput, wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]], _Binding | None]:
    """Return the counts, the newest letters, and the binding of these if they are records."""
    reasons: Counter[tuple[str, str]] = Counter()
    asked = 0
    for one in folder.left(wanted):
        asked += one.asked
        if one.letters > one.asked:
            reasons[one.stage, one.reason] += one.letters - one.asked
    rows = [
        {"stage": stage, "reason": reason, "letters": number}
        for (stage, reason), number in reasons.most_common()
    ]
    letters = folder.letters(wanted, EXAMPLES, left_only=True, unasked_only=True) if rows else []
    binding = _binding(folder) if any(one.get("headers") is not None for one in letters) else None
    return {"letters": reasons.total(), "waiting": asked, "reasons": rows}, letters, binding


async def replay(
    service: Service, by: Caller, job: Job, body: ReplayBody
) -> Annotated[Response, RequestedAnswer]:
    """Have the job process dead letters again, between two of its batches or at its next start; each at most
    once. `expected` is the number that a preview showed, without those that a waiting request asks for: if
    it has changed, nothing is requested. Needs a token for all topics and destinations.
    """
    by.check_unlimited(_ALL)
    folder, wanted = _job(service, job), body.model_dump(exclude={"expected"})
    request, left = await _off(service.reading_jobs, folder.replay, wanted, body.expected)
    if request is None:
        detail = f"{counted(left, 'dead letter')} can be replayed now, and not {body.expected:,}"
        raise ProblemError("letters-changed", detail, expected=body.expected, found=left)
    return JsonAnswer({"request": request, "letters": left}, 202)


async def replayed(
    service: Service,
    by: Caller,
    job: Job,
    request: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="The id of a request.")],
) -> Annotated[Response, ReplayAnswer]:
    """Return how far a replay is, and the batches that came of it. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    folder = _job(service, job)
    try:
        found = await _off(service.reading_jobs, folder.replayed, request)
    except KeyError:
        raise ProblemError("not-found", "the job has no such request") from None
    return JsonAnswer({"request": request, "done": found["state"] == "done", **found})


async def _off(limiter: CapacityLimiter, function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function that reads a job's folder, in a thread beside those of other calls."""

    def run() -> Result:
        with _read():
            return function(*args)

    return await to_thread.run_sync(run, limiter=limiter)


@contextmanager
def _read() -> Iterator[None]:
    """Turn a folder of a job that can't be read into a problem, 503."""
    try:
        yield
    except ProblemError:
        raise
    except (SelectRouteError, OSError) as error:
        raise ProblemError("unavailable", _unreadable(error)) from error


def _unreadable(error: Exception) -> str:
    return f"the output folder of the job can't be read: {error}"


async def audit(service: Service, by: Caller, job: Job) -> Annotated[Response, AuditAnswer]:
    """Check that the accounts of a job balance: messages in = routed + unrouted + dead letters, in every
    batch; each input in exactly one batch; each published file there with its size and rows. At most 1,000
    findings are returned. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    return JsonAnswer(await _off(service.auditing, _audited, _job(service, job)))


def _audited(folder: JobOutput) -> dict[str, Any]:
    found = dict(folder.audit())
    findings = found.pop("findings")
    return {**found, "findings": findings[:_FINDINGS], "more": len(findings) > _FINDINGS}


def _job(service: Service, name: str) -> JobOutput:
    try:
        return service.jobs[name]
    except KeyError:
        raise ProblemError("job-not-found", "this service was not told of such a job") from None


def _letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter as plain data, with the beginning of its bytes."""
    found: dict[str, Any] = {name: letter[name] for name in _SHOWN}
    raw, key, headers = (letter.get(name) for name in ("raw", "key", "headers"))
    found |= _part("raw", raw, RAW_CHARACTERS) | {"bytes": None if raw is None else len(raw)}
    found |= _part("key", key, KEY_CHARACTERS) | {"key_bytes": None if key is None else len(key)}
    if headers is None:
        return found | {"headers": None, "header_count": None}
    some = [
        {
            "name": name[:KEY_CHARACTERS],
            **_part("value", value, KEY_CHARACTERS),
            "bytes": None if value is None else len(value),
        }
        for name, value in headers[:HEADERS]
    ]
    return found | {"headers": some, "header_count": len(headers)}


def _part(name: str, data: bytes | None, most: int) -> dict[str, Any]:
    """Return the beginning of bytes: as text if all of them are UTF-8, else in base64."""
    if data is None:
        return {name: None, f"{name}_base64": None}
    try:
        return {name: data.decode("utf-8")[:most], f"{name}_base64": None}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(data[:most]).decode()}


class _Binding(NamedTuple):
    """Binding of the Kafka records of a job, or why there is none."""

    found: KafkaBinding | None
    why_not: str = ""


def _binding(folder: JobOutput) -> _Binding:
    try:
        found = KafkaBinding.recorded(folder.binding())
    except KafkaBindingError as error:
        return _Binding(None, f"it is a Kafka record, and {error}")
    if any(one.source.kind == "timestamp" for one in found.bound.values()):
        return _Binding(None, "the job binds the time of a record, which is not kept with a dead letter")
    return _Binding(found)


def _judged(service: Service, letter: Mapping[str, Any], binding: _Binding | None) -> dict[str, Any]:
    """Return a dead letter, and who gets it now, if its bytes are a message."""
    data = _letter(letter) | {"total": None, "ids": [], "why_not": None}
    if letter["subscription"] is not None:
        return data | {"why_not": "its message was read: only this delivery was refused"}
    is_record = letter.get("headers") is not None
    if letter["raw"] is None and not is_record:
        return data | {"why_not": "its bytes are still in the source"}
    if letter["reason"] in _CUT:
        return data | {"why_not": "only the beginning of its bytes is kept, and a replay reads all of them"}
    try:
        if is_record:
            assert binding is not None
            if binding.found is None:
                return data | {"why_not": binding.why_not}
            message = message_of(_record(letter), binding.found)
        else:
            parsed = parse_json(letter["raw"])
            message = Message.from_json(parsed, name_length=service.limits.property_name_length)
    except JsonError as error:
        return data | {"why_not": f"its bytes are {error}"}
    except (MessageError, RecordError) as error:
        return data | {"why_not": str(error)}
    snapshot = newest_snapshot(service)
    matched = judged(snapshot, message).matched
    return data | {"total": len(matched), "ids": snapshot.ids.take(matched[:IDS]).to_pylist()}


def _record(letter: Mapping[str, Any]) -> Record:
    return Record(
        letter["source"],
        letter["partition"],
        letter["offset"],
        key=letter.get("key"),
        value=letter["raw"],
        headers=letter["headers"],
    )
