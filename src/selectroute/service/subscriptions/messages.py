"""Calls on messages and selectors: match, explain, check."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Annotated, Any, Final

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from selectroute.clauses.analysis import analyse
from selectroute.index.match_report import explained, judged
from selectroute.index.matches import MatchedSubscriptions
from selectroute.index.near_misses import near
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import SubscriptionStatus
from selectroute.registry.errors import TooLargeError
from selectroute.selector.errors import InvalidSelectorError
from selectroute.selector.explain import Explanation
from selectroute.selector.message import Message, MessageError
from selectroute.selector.selector import Selector
from selectroute.service.context import Service, while_connected
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import CheckAnswer, CheckBody, ExplainAnswer, ExplainBody, MatchBody
from selectroute.service.http.problems import ProblemError, as_json, problem_of, selector_fault
from selectroute.service.limits import ServiceLimits
from selectroute.service.subscriptions.subscriptions import visible

PUBLISHED_SECONDS: Final = 2.0
"""Longest wait for the publication of changes that were committed before a request."""


def check(service: Service, body: CheckBody) -> Annotated[Response, CheckAnswer]:
    """Check a selector: return its error and position, or its identifiers, its access in the index and its
    probable mistakes.
    """
    try:
        analysis = analyse(Selector(body.selector, body.dialect, limits=service.registry.limits))
    except InvalidSelectorError as error:
        fault = selector_fault(error).model_dump(exclude_none=True)
        return JsonAnswer({"valid": False, "dialect": body.dialect, "error": fault})
    return JsonAnswer({"valid": True, **analysis.to_dict()})


async def match(
    request: Request, service: Service, by: Caller, body: MatchBody
) -> Annotated[Response, MatchedSubscriptions]:
    """Return the subscriptions that get a message, as a stream would route it now."""
    async with while_connected(request), service.matching.of(by.subject):
        return await run_in_threadpool(_matched, service, by, body)


def _matched(service: Service, by: Caller, body: MatchBody) -> Response:
    message = _message(body.message, service.limits)
    snapshot = newest_snapshot(service)
    with service.metrics.match_seconds.time():
        verdict = judged(snapshot, message)
    limit = min(body.limit or service.limits.matches, service.limits.matches)
    total, ids = _ids(snapshot, verdict.matched, by, limit)
    _, unjudged = _ids(snapshot, verdict.refused, by, limit)
    matches = MatchedSubscriptions(snapshot.revision, total, ids, unjudged)
    if body.near:
        misses, is_complete = near(snapshot, message, limit, verdict.matched, by.sees)
        matches = replace(matches, near=misses, near_complete=is_complete)
    return JsonAnswer(matches)


async def explain(
    request: Request, service: Service, by: Caller, body: ExplainBody
) -> Annotated[Response, ExplainAnswer]:
    """Explain why subscriptions get a message or not: each part of the selector with its truth, and the
    values and types that it read.
    """
    if len(body.subscriptions) > service.limits.explained:
        raise TooLargeError(f"at most {service.limits.explained:,} subscriptions can be explained at once")
    # CPU-bound: more at once would only slow down all others.
    async with while_connected(request), service.explaining:
        return await run_in_threadpool(_explained, service, by, body)


def _ids(snapshot: Snapshot, ordinals: Any, by: Caller, limit: int) -> tuple[int, list[str]]:
    """Return the count of these subscriptions that the caller may see, and the ids of the first ones."""
    if not by.sees_all and len(ordinals):
        topics = snapshot.subscriptions["topic"].take(ordinals).to_pylist()
        ordinals = ordinals[np.array([by.sees(topic) for topic in topics], np.bool_)]
    ids: list[str] = snapshot.ids.take(ordinals[:limit]).to_pylist()
    return len(ordinals), ids


def _explained(service: Service, by: Caller, body: ExplainBody) -> Response:
    message = _message(body.message, service.limits)
    wanted = [visible(service, by, id) for id in body.subscriptions]
    snapshot = newest_snapshot(service)
    verdict = judged(snapshot, message)
    ordinals = snapshot.find([subscription.id for subscription in wanted]).tolist()
    parts: list[bytes] = []
    until = time.monotonic() + service.limits.explain_seconds
    room = service.limits.explanation_bytes
    topics = snapshot.subscriptions["topic"]
    for subscription, ordinal in zip(wanted, ordinals, strict=True):
        if parts and time.monotonic() > until:
            raise TooLargeError(
                f"{len(parts):,} of {len(wanted):,} explanations took more than "
                f"{service.limits.explain_seconds:g} seconds: ask for fewer subscriptions"
            )
        # The published version may still be hidden from the caller.
        if ordinal >= 0 and by.sees(topics[ordinal].as_py()):
            why = explained(snapshot, ordinal, message, verdict)
            tree = why.pop("selector")
            # json.dumps would recurse through a tree of any depth.
            parts.append(as_json(why)[:-1] + b',"selector":' + _within(room, tree) + b"}")
            room -= len(parts[-1])
        else:
            paused = subscription.status is SubscriptionStatus.PAUSED
            reason = "it is paused" if paused else "it is not in the published revision yet"
            parts.append(as_json({"id": subscription.id, "matched": False, "reason": reason}))
    head = json.dumps(snapshot.revision).encode()
    body_ = b'{"revision":' + head + b',"explanations":[' + b",".join(parts) + b"]}"
    return Response(body_, media_type="application/json")


def _within(room: int, tree: Explanation) -> bytes:
    """Return the tree of a selector as JSON of at most `room` bytes. Raises `TooLargeError`."""
    try:
        return tree.to_json(max(room, 0)).encode()
    except OverflowError:
        raise TooLargeError(
            "the explanations are too large: ask for fewer subscriptions, or shorten the message"
        ) from None


def _message(data: object, limits: ServiceLimits) -> Message:
    """Return the message, checked against the limits. Raises a problem, 422."""
    try:
        properties = data.get("properties") if isinstance(data, dict) else None
        if isinstance(properties, dict) and len(properties) > limits.message_properties:
            raise MessageError("properties", f"more than {limits.message_properties:,} of them")
        return Message.from_json(data, name_length=limits.property_name_length)
    except MessageError as error:
        raise problem_of(error, "/message") from error


def newest_snapshot(service: Service) -> Snapshot:
    """Return the newest published snapshot, with all changes committed before the request if these are
    published within `PUBLISHED_SECONDS`. Raises a problem, 503, if none is published yet.
    """
    snapshot = service.publishing.caught_up(service.registry.revision, PUBLISHED_SECONDS)
    if snapshot is None:
        raise ProblemError("unavailable", "no revision is published yet")
    return snapshot
