"""Calls on streams: their reports of batches, and a verdict on all of them with the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query, Response

from selectroute.registry.reports import SILENT_SECONDS, StreamState
from selectroute.registry.role import Role
from selectroute.selector.explain.sentences import counted
from selectroute.service.context import CallerDep, ServiceDep
from selectroute.service.http.endpoint import Call, JsonAnswer, call
from selectroute.service.http.models import HealthAnswer, ReportsAnswer, ReportsBody, StreamsAnswer
from selectroute.service.subscriptions.changes import JOB, REPORT, Name
from selectroute.service.subscriptions.publishing import State

LAG_SECONDS: Final = 10.0
"""Seconds after which a revision should be published."""

RECENT: Final = 100
"""Batches of each stream that the verdict looks at."""

_ALL: Final = "streams deliver for all topics, and this needs a token"

router = APIRouter(route_class=Call, tags=["streams"])


@call(router, "POST", "/v1/queries/{query}/reports", Role.writer, *REPORT, status_code=204)
def report(service: ServiceDep, by: CallerDep, query: Name, body: ReportsBody) -> Response:
    """Report the batches of a query since its last report, and its state. Without batches it is a sign of
    life, which a stream gives every ten seconds. The newest 1,000 batches are kept. Needs a token for all
    topics.
    """
    by.check_unlimited(JOB)
    batches = [one.model_dump() for one in body.batches]
    service.registry.note_reports(query, batches, body.state.model_dump())
    return Response(status_code=204)


@call(
    router,
    "GET",
    "/v1/queries/{query}/reports",
    Role.reader,
    "forbidden",
    "invalid-subscription",
    response_model=ReportsAnswer,
)
def reports(
    service: ServiceDep,
    by: CallerDep,
    query: Name,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=1_000, pattern="^[A-Za-z0-9_-]+$")] = None,
) -> Response:
    """Return the newest batches that a query has reported, the newest first. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    page = service.registry.reports(query, limit=min(limit, service.limits.page), cursor=cursor)
    return JsonAnswer(page._asdict())


@call(router, "GET", "/v1/streams", Role.reader, "forbidden", response_model=StreamsAnswer)
def listed(service: ServiceDep, by: CallerDep) -> Response:
    """Return the streams that have reported, each with its newest batch. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    return JsonAnswer({"items": [one.to_json() for one in service.registry.streams()]})


@call(router, "GET", "/v1/health", Role.reader, "forbidden", response_model=HealthAnswer)
def health(service: ServiceDep, by: CallerDep) -> Response:
    """Return a verdict in a sentence, and the evidence for it. Needs a token for all topics."""
    by.check_all_topics(_ALL)
    state, streams = service.publishing.state(), service.registry.streams()
    recent = {one.query: service.registry.reports(one.query, limit=RECENT).batches for one in streams}
    evidence = list(evidence_of(state, streams, recent, datetime.now(UTC)))
    wrong = [one for one in evidence if not one.ok]
    if not wrong:
        verdict = f"All is well: {counted(len(streams), 'stream')}, revision {state.revision:,} is published."
    else:
        verdict = "; ".join(one.text for one in wrong[:3]) + ("; …" if len(wrong) > 3 else ".")
    data = {"status": "attention" if wrong else "ok", "verdict": verdict[0].upper() + verdict[1:]}
    return JsonAnswer({**data, "evidence": [one._asdict() for one in evidence]})


class Evidence(NamedTuple):
    """Observation, and whether it is as it should be."""

    ok: bool
    text: str


def evidence_of(
    state: State,
    streams: Sequence[StreamState],
    recent: Mapping[str, Sequence[Mapping[str, Any]]],
    now: datetime,
) -> Iterator[Evidence]:
    """Yield what can be said of the registry and its streams.

    Args:
        state: of the publication.
        streams: the streams as they were last heard of.
        recent: the newest reports of each.
        now: the time.
    """
    published = None if state.snapshot is None else state.snapshot.revision
    if state.failure is not None:
        yield Evidence(False, f"revision {state.revision:,} cannot be published; the service's log says why")
    elif published is None:
        yield Evidence(False, "no revision is published yet")
    else:
        text = f"revision {published:,} is published, {state.revision:,} is the newest"
        yield Evidence(state.lag_seconds <= LAG_SECONDS, text)
    for one in streams:
        silent = (now - one.heard).total_seconds()
        ago = f"{counted(int(silent), 'second')} ago" if silent < 120 else f"{int(silent / 60):,} minutes ago"
        yield Evidence(silent <= SILENT_SECONDS, f"the stream {one.name} was heard of {ago}")
        for kind, number in (one.state.get("waiting") or {}).items():
            if number:
                makes = "makes" if number == 1 else "make"
                what = f"{counted(number, 'destination')} of the kind {kind} {makes}"
                yield Evidence(False, f"{what} the stream {one.name} wait")
        batches = recent[one.query]
        dead = sum(batch["dead_lettered"] + batch["refused"] for batch in batches)
        of = f"the newest {counted(len(batches), 'batch', 'batches')} of {one.name}"
        yield Evidence(not dead, f"{counted(dead, 'dead letter')} came of {of}")
