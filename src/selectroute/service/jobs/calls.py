"""Calls on the dead letters of jobs: read, look at what a replay would do, have them replayed."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from selectroute.index.verdicts import judged
from selectroute.registry.role import Role
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.sentences import counted
from selectroute.selector.message import Message, MessageError
from selectroute.service.context import CallerDep, Service, ServiceDep
from selectroute.service.http.endpoint import Call, JsonAnswer, call
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
_SHOWN: Final = (*_LEFT[:3], "message", "source", "partition", "offset", "revision", "subscription")
_ALL: Final = "dead letters are of all topics, and this needs a token"
_WRONG: Final = ("forbidden", "job-not-found", "invalid-body", "unsupported-media-type", "too-large")

router = APIRouter(route_class=Call, prefix="/v1/jobs", tags=["jobs"])
Job = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,128}$", description="A job's name.")]
Many = Query(max_length=100)


@call(router, "GET", "", Role.reader, "forbidden", response_model=JobsAnswer)
def listed(service: ServiceDep, by: CallerDep) -> Response:
    """Return the jobs whose dead letters this service shows, each with the number of those that no replay
    took. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    return JsonAnswer({"items": [_summary(name, job) for name, job in service.jobs.items()]})


def _summary(name: str, job: JobOutput) -> dict[str, Any]:
    left, waiting, problem = [], [], None
    try:
        left, waiting = [*job.left({})], [*job.waiting()]
    except (SelectRouteError, OSError) as error:  # the other jobs are shown all the same
        problem = _unreadable(error)
    by_batch = [{field: getattr(one, field) for field in _LEFT} for one in left[:_BATCHES]]
    number = sum(one.letters for one in left)
    return {"name": name, "left": number, "by_batch": by_batch, "waiting": waiting, "problem": problem}


@call(
    router,
    "GET",
    "/{job}/dead-letters",
    Role.reader,
    "forbidden",
    "job-not-found",
    response_model=DeadLettersAnswer,
)
def dead_letters(
    service: ServiceDep,
    by: CallerDep,
    job: Job,
    batch: Annotated[list[int] | None, Many] = None,
    stage: Annotated[list[str] | None, Many] = None,
    reason: Annotated[list[str] | None, Many] = None,
    subscription: Annotated[list[str] | None, Many] = None,
    source: Annotated[list[str] | None, Many] = None,
    partition: Annotated[list[int] | None, Many] = None,
    offset: Annotated[list[int] | None, Many] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    skip: Annotated[int, Query(ge=0, lt=2**31, description="Letters to leave out, of the newest ones.")] = 0,
) -> Response:
    """Return dead letters of a job, those of the newest batch first, replayed or not. Needs a token for all
    topics.
    """
    by.check_all_topics(_ALL)
    given = (batch, stage, reason, subscription, source, partition, offset)
    names = ("batches", "stages", "reasons", "subscriptions", "sources", "partitions", "offsets")
    wanted = {name: values or [] for name, values in zip(names, given, strict=True)}
    limit = min(limit, service.limits.page)
    with _read():
        found = _job(service, job).letters(wanted, skip, limit + 1)
    return JsonAnswer({"items": [_letter(one) for one in found[:limit]], "more": len(found) > limit})


@call(router, "POST", "/{job}/dead-letters:preview", Role.reader, *_WRONG, response_model=PreviewAnswer)
def preview(service: ServiceDep, by: CallerDep, job: Job, body: FilterBody) -> Response:
    """Show what a replay would do: how many dead letters it would take, and of the newest ones, whose bytes
    are a message in JSON, which subscriptions get them by the newest revision. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    folder, wanted = _job(service, job), body.model_dump()
    with _read():
        left = folder.left(wanted)
        letters = folder.letters(wanted, 0, EXAMPLES, left_only=True) if left else []
    reasons: Counter[tuple[str, str]] = Counter()
    for one in left:
        reasons[one.stage, one.reason] += one.letters
    rows = [
        {"stage": stage, "reason": reason, "letters": number}
        for (stage, reason), number in reasons.most_common()
    ]
    examples = [_judged(service, one) for one in letters]
    return JsonAnswer({"letters": reasons.total(), "reasons": rows, "examples": examples})


@call(
    router,
    "POST",
    "/{job}/replays",
    Role.writer,
    *_WRONG,
    "letters-changed",
    status_code=202,
    response_model=RequestedAnswer,
)
def replay(service: ServiceDep, by: CallerDep, job: Job, body: ReplayBody) -> Response:
    """Have the job process dead letters again, between two of its batches or at its next start; each at most
    once. `expected` is the number that a preview showed: if it has changed, nothing is requested. Needs a
    token for all topics and destinations.
    """
    by.check_unlimited(_ALL)
    with _read():
        request, left = _job(service, job).replay(body.model_dump(exclude={"expected"}), body.expected)
    if request is None:
        detail = f"{counted(left, 'dead letter')} can be replayed now, and not {body.expected:,}"
        raise ProblemError("letters-changed", detail, expected=body.expected, found=left)
    return JsonAnswer({"request": request, "letters": left}, 202)


@call(
    router,
    "GET",
    "/{job}/replays/{request}",
    Role.reader,
    "forbidden",
    "job-not-found",
    "not-found",
    response_model=ReplayAnswer,
)
def replayed(
    service: ServiceDep,
    by: CallerDep,
    job: Job,
    request: Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,128}$", description="The id of a request.")],
) -> Response:
    """Return whether a replay is done, and the batches that came of it. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    try:
        with _read():
            found = _job(service, job).replayed(request)
    except KeyError:
        raise ProblemError("not-found", "the job has no such request") from None
    return JsonAnswer({"request": request, "done": found is not None, "batches": list(found or ())})


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


@call(
    router,
    "POST",
    "/{job}/audits",
    Role.reader,
    "forbidden",
    "job-not-found",
    response_model=AuditAnswer,
)
async def audit(service: ServiceDep, by: CallerDep, job: Job) -> Response:
    """Check that the accounts of a job balance: messages in = routed + unrouted + dead letters, in every
    batch; each input in exactly one batch; each published file there with its size and rows. At most 1,000
    findings are returned. Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    folder = _job(service, job)
    async with service.exporting:  # it reads as much as an export does
        return await run_in_threadpool(_audited, folder)


def _audited(folder: JobOutput) -> Response:
    with _read():
        found = dict(folder.audit())
    findings = found.pop("findings")
    return JsonAnswer({**found, "findings": findings[:_FINDINGS], "more": len(findings) > _FINDINGS})


def _job(service: Service, name: str) -> JobOutput:
    try:
        return service.jobs[name]
    except KeyError:
        raise ProblemError("job-not-found", "this service was not told of such a job") from None


def _letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter as plain data, with the beginning of its bytes."""
    raw = letter["raw"]
    found: dict[str, Any] = {name: letter[name] for name in _SHOWN}
    found |= {"raw": None, "raw_base64": None, "bytes": None if raw is None else len(raw)}
    if raw is not None:
        try:
            found["raw"] = raw.decode("utf-8")[:RAW_CHARACTERS]
        except UnicodeDecodeError:
            found["raw_base64"] = base64.b64encode(raw[:RAW_CHARACTERS]).decode()
    return found


def _judged(service: Service, letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter, and who gets it now, if its bytes are a message."""
    data = _letter(letter) | {"total": None, "ids": [], "why_not": None}
    if letter["subscription"] is not None:
        return data | {"why_not": "its message was read: only this delivery was refused"}
    if letter["raw"] is None:
        return data | {"why_not": "its bytes are still in the source"}
    if letter.get("headers") is not None:
        return data | {"why_not": "it is a Kafka record, and the job binds its fields"}
    if letter["reason"] in _CUT:
        return data | {"why_not": "only the beginning of its bytes is kept, and a replay reads all of them"}
    try:
        parsed = json.loads(letter["raw"], parse_constant=_no_constant)
        message = Message.from_json(parsed, name_length=service.limits.property_name_length)
    except MessageError as error:
        return data | {"why_not": str(error)}
    except (ValueError, RecursionError):
        return data | {"why_not": "its bytes are not valid JSON"}
    snapshot = newest_snapshot(service)
    matched = judged(snapshot, message).matched
    return data | {"total": len(matched), "ids": snapshot.ids.take(matched[:IDS]).to_pylist()}


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, as a job does, which Python would read."""
    raise ValueError(name)
