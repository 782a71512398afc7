"""Calls on the sample of recent messages: added by streams, listed, and used to try a change.

The messages are parsed once for all trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from selectroute.index.errors import InvalidSpecError
from selectroute.index.index import Index
from selectroute.index.match_report import index_of_one
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus
from selectroute.match.columns.from_messages import from_messages
from selectroute.registry.model import Items, sampled_form
from selectroute.registry.specification import checked
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.message import Message, MessageError
from selectroute.service.context import Service
from selectroute.service.http.call import JsonAnswer
from selectroute.service.http.callers import Caller
from selectroute.service.http.models import DryRunAnswer, DryRunBody, Limit, MessageAnswer, MessagesBody
from selectroute.service.http.problems import problem_of
from selectroute.service.subscriptions.changes import JOB, Name
from selectroute.service.subscriptions.recent_messages import IdentifierSeen, Recent, identifiers_in
from selectroute.service.subscriptions.subscriptions import visible

EXAMPLES: Final = 5
"""Messages of a dry run that are shown of each kind."""

LOOKED_AT: Final = 1_000
"""Newest messages whose identifiers are listed."""


def note(service: Service, by: Caller, query: Name, body: MessagesBody) -> Response:
    """Add messages of a query to the sample of recent messages, without their bodies. The newest 10,000 of
    all queries are kept. Needs a token for all topics and destinations.
    """
    by.check_unlimited(JOB)
    messages = []
    for number, data in enumerate(body.messages):
        try:
            message = Message.from_json(data, name_length=service.limits.property_name_length)
        except MessageError as error:
            raise problem_of(error, f"/messages/{number}") from error
        messages.append(sampled_form(message))
    service.registry.streams.note_messages(query, messages)
    return Response(status_code=204)


def listed(service: Service, by: Caller, limit: Limit = 20) -> Annotated[Response, Items[MessageAnswer]]:
    """Return the newest messages of the sample, the newest first: those with a topic that the caller may see.
    The sample is empty unless a stream sends some of its messages.
    """
    newest = service.recent.seen_by(by)[-limit:]
    return JsonAnswer({"items": [recent.to_json() for recent in reversed(newest)]})


@dataclass(frozen=True, slots=True)
class Identifiers:
    """Identifiers in so many recent messages, the most frequent first."""

    messages: int
    items: list[IdentifierSeen]


def identifiers(service: Service, by: Caller) -> Identifiers:
    """Return the identifiers in the newest 1,000 messages of the sample that the caller may see: names,
    types, in how many messages each is, and some of its values.
    """
    newest = service.recent.seen_by(by)[-LOOKED_AT:]
    return Identifiers(len(newest), [*identifiers_in(newest)])


async def dry_runs(service: Service, by: Caller, body: DryRunBody) -> Annotated[Response, DryRunAnswer]:
    """Try a change on the sample of recent messages, without making it: which messages the subscription would
    gain and lose, and which it gets before and after. Without `id` it would be a new one, without
    `subscription` it would be removed. A paused one is judged as if it were active.
    """
    async with service.explaining:  # CPU-bound, as explanations
        return await run_in_threadpool(_dry_run, service, by, body)


def _dry_run(service: Service, by: Caller, body: DryRunBody) -> Response:
    before = after = Index()
    is_paused = False
    if body.id is not None:
        now = visible(service, by, body.id)
        _check_seltype(now.seltype)
        is_paused = now.status is SubscriptionStatus.PAUSED
        before = index_of_one(now.id, now.selector, now.topic, now.dialect, now.seltype)
    if body.subscription is not None:
        wanted = SubscriptionSpec.from_json(body.subscription.model_dump(exclude_none=True))
        spec = checked(wanted, service.registry.limits)
        _check_seltype(spec.seltype)
        by.permission.check_stored(spec)
        after = index_of_one(body.id or "new", spec.selector, spec.topic, spec.dialect, spec.seltype)
    recent = service.recent.seen_by(by)
    difference = dry_run(before, after, [sampled.message for sampled in recent])
    kinds = {name: _of_kind(recent, getattr(difference, name)) for name in ("gained", "lost", "unchanged")}
    times = {"oldest": recent[0].sampled.time, "newest": recent[-1].sampled.time} if recent else {}
    data = {"paused": is_paused, "messages": len(recent)}
    return JsonAnswer({**data, "oldest": None, "newest": None, **times, **kinds})


def _of_kind(recent: Sequence[Recent], numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the count of messages of a kind, and the newest ones as examples."""
    newest = numbers[-EXAMPLES:][::-1].tolist()
    return {"count": len(numbers), "examples": [recent[number].to_json() for number in newest]}


def _check_seltype(seltype: str | None) -> None:
    """Raise `InvalidSpecError` for extended selection, which reads bodies."""
    if seltype == EXTENDED:
        raise InvalidSpecError(
            "/seltype", "a dry run cannot judge EXTENDED selectors: the sample has no bodies of messages"
        )


class DryRun(NamedTuple):
    """Numbers of messages, int64, that a subscription gets only after a change, only before it, or both."""

    gained: npt.NDArray[np.int64]
    lost: npt.NDArray[np.int64]
    unchanged: npt.NDArray[np.int64]


def dry_run(before: Index, after: Index, messages: Sequence[Message]) -> DryRun:
    """Judge messages by two versions of a subscription, each an index of one; an empty one matches nothing.
    O(messages x identifiers), by the delivery kernel. Not for extended selection, which needs bodies.

    >>> before, after = Index(), Index()
    >>> before.add("s", "weight > 10")
    >>> after.add("s", "weight > 20")
    >>> dry_run(before, after, [Message(properties={"weight": weight}) for weight in (5, 15, 25)]).lost
    array([1])
    """
    was, now = (_matched(version, messages) for version in (before, after))
    return DryRun(*(np.flatnonzero(mask) for mask in (now & ~was, was & ~now, was & now)))


def _matched(index: Index, messages: Sequence[Message]) -> npt.NDArray[np.bool_]:
    """Return which messages the subscription of an index matches."""
    snapshot = index.freeze()
    matches = snapshot.match(from_messages(messages, snapshot.reads), missing="ignore")
    return np.diff(matches.offsets) > 0
