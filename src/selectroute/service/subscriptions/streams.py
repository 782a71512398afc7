"""Calls on streams: reports of batches, whether all keep up with the registry, activity of subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.responses import Response

from selectroute.registry.errors import NotFoundError
from selectroute.registry.model import Items, time_of
from selectroute.registry.reports import GONE_SECONDS, Activity, StreamState
from selectroute.selector.sentences import counted
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import Cursor, Id, Limit, ReportsAnswer, ReportsBody
from selectroute.service.http.problems import ProblemError
from selectroute.service.jobs.job_watch import JobState
from selectroute.service.subscriptions.changes import JOB, Name
from selectroute.service.subscriptions.publishing import State
from selectroute.service.subscriptions.subscriptions import OfPath, visible, visible_or_none


def activity(service: Service, by: Caller, id: OfPath) -> Activity:
    """Return when a subscription got deliveries last, and how many a second. A batch names only its 100
    busiest subscriptions: if none has named this one, everything but the id is null.
    """
    visible(service, by, id)
    return next(_activities(service, by, [id]), Activity(id))


def activities(
    service: Service,
    by: Caller,
    id: Annotated[list[Id], Field(min_length=1, max_length=100, description="Ids of subscriptions.")],
) -> Items[Activity]:
    """Return when several subscriptions got deliveries last, and how many a second: those that a batch has
    named and that the caller may see, in the order of the ids.
    """
    return Items([*_activities(service, by, id)])


def _activities(service: Service, by: Caller, ids: Iterable[str]) -> Iterator[Activity]:
    for seen in service.registry.streams.activities(ids):
        if by.sees_all:
            yield seen
        elif visible_or_none(service, by, seen.id) is not None:
            # A stream is of all topics: a token for some does not learn which there are.
            yield replace(seen, query=None)


LAG_SECONDS: Final = 10.0
"""Seconds after which a revision should be published."""

OUTDATED_SECONDS: Final = 60.0
"""Seconds after a change within which a batch may begin with an earlier revision."""

BATCHES_COME_SECONDS: Final = 600.0
"""Seconds after its newest batch for which a stream is reproached with the revision of that batch."""

_SHORT_WAIT_SECONDS: Final = 0.2

_ALL: Final = "streams deliver for all topics, and this needs a token"
_REMOVE: Final = "a stream is removed with a writer's token"


def report(service: Service, by: Caller, query: Name, body: ReportsBody) -> Response:
    """Report the batches of a query since its last report, and its state. Without batches it is a sign of
    life, which a stream gives every ten seconds. The newest 1,000 batches of each query are kept. Needs a
    token for all topics and destinations.
    """
    by.check_unlimited(JOB)
    batches = [batch.model_dump() for batch in body.batches]
    service.registry.streams.note_reports(query, batches, body.state.model_dump())
    return Response(status_code=204)


def reports(
    service: Service, by: Caller, query: Name, limit: Limit = 100, cursor: Cursor = None
) -> Annotated[Response, ReportsAnswer]:
    """Return the newest batches that a query has reported, the newest first. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    page = service.registry.streams.reports(query, limit=min(limit, service.limits.page), cursor=cursor)
    return JsonAnswer(page._asdict())


def listed(service: Service, by: Caller) -> Items[StreamState]:
    """Return the streams that have reported, each with its newest batch, its rates and its dead letters.
    Needs a token for all topics.
    """
    by.check_all_topics(_ALL)
    jobs = service.job_watch.states(_SHORT_WAIT_SECONDS)
    return Items(
        [
            replace(stream, job=stream.name, dead_letters=jobs[stream.name].left)
            if stream.name in jobs
            else stream
            for stream in service.registry.streams.all()
        ]
    )


def remove(service: Service, by: Caller, query: Name) -> Response:
    """Remove a stream that has ended or vanished from the list, with its reports of batches. One that runs is
    listed again with its next report. Needs a token for all topics and destinations.
    """
    by.check_unlimited(_REMOVE)
    try:
        service.registry.streams.remove(query)
    except NotFoundError as error:
        raise ProblemError("not-found", str(error)) from None
    return Response(status_code=204)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observation, whether it is as it should be, and the stream, by its query, or the job that it is of."""

    ok: bool
    text: str
    query: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Verdict on the registry and its streams in a sentence, with the evidence."""

    status: Literal["ok", "attention"]
    verdict: str
    evidence: list[Evidence]


def health(service: Service, by: Caller) -> Health:
    """Return a verdict in a sentence, and the evidence for it: publication, each stream, and the jobs that
    the service knows. Needs a token for all topics.

    Faults are: a revision that is not published; a stream that failed, or was not heard of for a minute,
    until it is heard of again, is removed, or a week has passed; one that routes with an old revision; one
    whose destinations make it wait; and dead letters that no replay took, or that cannot be counted. How far
    a stream is behind its source is shown, and is not a fault.
    """
    by.check_all_topics(_ALL)
    state, streams, now = service.publishing.state(), service.registry.streams.all(), datetime.now(UTC)

    def changed_after(revision: int) -> datetime | None:
        page = service.registry.changes(revision, limit=1)
        return next((change.time for change in page), None)

    jobs = service.job_watch.states()
    evidence = [
        *_of_publication(state),
        *(
            fact
            for stream in streams
            for fact in evidence_of(stream, state, stream.name in jobs, now, changed_after)
        ),
        *(fact for name, job in jobs.items() for fact in _of_job(name, job)),
    ]
    wrong = [fact for fact in evidence if not fact.ok]
    if not wrong:
        running = counted(sum(stream.status == "running" for stream in streams), "running stream")
        verdict = f"All is well: {running}, revision {state.revision:,} is published."
    else:
        verdict = "; ".join(fact.text for fact in wrong[:3]) + ("; …" if len(wrong) > 3 else ".")
    return Health("attention" if wrong else "ok", verdict[0].upper() + verdict[1:], evidence)


def _of_publication(state: State) -> Iterator[Evidence]:
    published = None if state.snapshot is None else state.snapshot.revision
    if state.failure is not None:
        yield Evidence(False, f"revision {state.revision:,} cannot be published; the service's log says why")
    elif published is None:
        yield Evidence(False, "no revision is published yet")
    else:
        text = f"revision {published:,} is published, {state.revision:,} is the newest"
        yield Evidence(state.lag_seconds <= LAG_SECONDS, text)


def evidence_of(
    stream: StreamState,
    state: State,
    has_job: bool,
    now: datetime,
    changed_after: Callable[[int], datetime | None],
) -> Iterator[Evidence]:
    """Yield what can be said of a stream.

    Args:
        one: the stream as it was last heard of.
        state: of the publication.
        has_job: whether the service knows its job, and so the dead letters that are left.
        now: the time.
        changed_after: returns the time of the first change after a revision.
    """
    passed = (now - stream.heard).total_seconds()
    is_recent = passed <= GONE_SECONDS
    is_fault = stream.status in ("silent", "failed") and is_recent
    yield Evidence(
        not is_fault, f"the stream {stream.name} {_STATUS[stream.status].format(_ago(passed))}", stream.query
    )
    if stream.status == "running":
        for kind, number in (stream.state.get("waiting") or {}).items():
            if number:
                makes = "makes" if number == 1 else "make"
                what = f"{counted(number, 'destination')} of the kind {kind} {makes}"
                yield Evidence(False, f"{what} the stream {stream.name} wait", stream.query)
        if (text := _outdated(stream, state, now, changed_after)) is not None:
            yield Evidence(False, text, stream.query)
        if stream.state.get("behind") is not None:
            behind = counted(stream.state["behind"], "message")
            yield Evidence(True, f"the stream {stream.name} is {behind} behind its source", stream.query)
    if not has_job:
        dead, batches = (
            counted(stream.dead_letters or 0, "dead letter"),
            counted(stream.batches, "batch", "batches"),
        )
        text = f"the stream {stream.name} has {dead} in its newest {batches}"
        yield Evidence(not (stream.dead_letters and is_recent), text, stream.query)


_STATUS: Final = {
    "running": "was heard of {}",
    "silent": "was heard of {}, and has not said that it ended",
    "gone": "was heard of {}, and is taken for gone",
    "ended": "ended {}, after all of its input",
    "stopped": "was stopped {}",
    "failed": "failed {}; its log says why",
}


def _ago(seconds: float) -> str:
    for unit, size, most in (("second", 1, 120), ("minute", 60, 7_200), ("hour", 3_600, 172_800)):
        if seconds < most:
            return f"{counted(max(int(seconds / size), 0), unit)} ago"
    return f"{counted(int(seconds / 86_400), 'day')} ago"


def _outdated(
    stream: StreamState, state: State, now: datetime, changed_after: Callable[[int], datetime | None]
) -> str | None:
    """Return a sentence if the newest batch of a stream began long after a revision that it did not use."""
    published = 0 if state.snapshot is None else state.snapshot.revision
    newest = stream.newest
    if newest is None or newest.get("kind", "stream") != "stream" or "ended" not in newest:
        return None
    if newest["revision"] >= published or (changed := changed_after(newest["revision"])) is None:
        return None
    ended = min(time_of(newest["ended"]), stream.heard)  # the clock of the stream may be ahead
    late = (ended - changed).total_seconds() - sum(newest.get("seconds", {}).values())
    if late <= OUTDATED_SECONDS or (now - ended).total_seconds() > BATCHES_COME_SECONDS:
        return None
    return (
        f"the stream {stream.name} routes with revision {newest['revision']:,}, although revision "
        f"{published:,} is published"
    )


def _of_job(name: str, job: JobState) -> Iterator[Evidence]:
    of = f"of the job {name}"
    if job.problem is not None:
        yield Evidence(False, f"the dead letters {of} are not known: {job.problem}", job=name)
        return
    if job.left is None:
        yield Evidence(True, f"the dead letters {of} are being counted", job=name)
    else:
        are = "is" if job.left == 1 else "are"
        yield Evidence(not job.left, f"{counted(job.left, 'dead letter')} {of} {are} not replayed", job=name)
    if job.is_held is not None:
        held = f"a driver holds the output folder {of}" if job.is_held else f"the job {name} is not running"
        yield Evidence(True, held, job=name)
