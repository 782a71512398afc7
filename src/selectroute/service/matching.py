"""What the delivery matcher says of one message: the published snapshot's kernel, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from selectroute.index.explain import AccessStep
from selectroute.index.index import Index
from selectroute.index.near import near
from selectroute.index.snapshot import Snapshot
from selectroute.index.subscription import EXTENDED
from selectroute.match import from_messages
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.selector import Selector
from selectroute.service.callers import Caller


class DisagreementError(SelectRouteError):
    """The kernel and the reference evaluator judge a message differently, which never happens."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ordinals that one message reaches, and those that nobody could judge; int32, sorted."""

    matched: np.ndarray[Any, np.dtype[np.int32]]
    refused: np.ndarray[Any, np.dtype[np.int32]]


def judged(snapshot: Snapshot, message: Message) -> Verdict:
    """Match one message as a stream does."""
    found = snapshot.match(from_messages([message], snapshot.reads), missing="ignore")
    return Verdict(np.sort(found[0]), np.sort(found.refused.ordinals))


def ids(snapshot: Snapshot, ordinals: Any, by: Caller, limit: int) -> tuple[int, list[str]]:
    """How many of these subscriptions the caller sees, and the ids of the first of them."""
    if not by.sees_all and len(ordinals):
        topics = snapshot.subscriptions["topic"].take(ordinals).to_pylist()
        ordinals = ordinals[np.array([by.sees(topic) for topic in topics], np.bool_)]
    found: list[str] = snapshot.ids.take(ordinals[:limit]).to_pylist()
    return len(ordinals), found


def nearby(snapshot: Snapshot, message: Message, verdict: Verdict, limit: int, by: Caller) -> dict[str, Any]:
    """The subscriptions that one condition keeps from a message, and whether these are all; see
    ``index.near``.
    """
    found = near(snapshot, message, limit, verdict.matched, by.sees)
    return {"near": [one.to_dict() for one in found.found], "near_complete": found.complete}


def explained(snapshot: Snapshot, ordinal: int, message: Message, verdict: Verdict) -> dict[str, Any]:
    """Why a subscription gets the message or does not: the kernel's verdict, the tree of the reference
    evaluator, the way by which an index finds it. Raises `DisagreementError`. `selector` is a tree.
    """
    row = snapshot.subscriptions.slice(ordinal, 1).to_pylist()[0]
    text, dialect, topic = row["selector"] or "", row["dialect"], row["topic"]
    is_extended = row["seltype"] == EXTENDED
    index = Index()
    given: Any = text if is_extended else Selector(text, dialect, limits=UNLIMITED)
    index.add(row["id"], given, topic, dialect=dialect, extended=is_extended)
    why = index.explain(row["id"], message)
    matched = bool(np.isin(ordinal, verdict.matched))
    if matched is not why.matched:
        raise DisagreementError(f"kernel and reference disagree on subscription {row['id']!r}")
    data: dict[str, Any] = {"id": row["id"], "matched": matched, "reason": _reason(why, matched)}
    if topic is not None:
        data["topic"] = {"filter": topic, "matches": why.topic_matches}
    data["access"] = [_step(step) for step in why.steps]
    data["selector"] = why.selector
    return data


def _reason(why: Any, matched: bool) -> str:
    """The verdict in one sentence."""
    if matched:
        return "it gets the message"
    if not why.topic_matches:
        return "its topic filter does not match"
    if why.seltype == EXTENDED:
        if why.provider is None:
            return "no extended selection provider could judge its selector (reason 2551)"
        return "the extended selection provider does not match it"
    if any(step.refused for step in why.steps):
        return "a property name of the message breaks a rule"
    sentences = why.selector.sentences
    verdict = f"its selector is {why.selector.truth.value}"
    return f"{verdict}: {sentences[0]}" if sentences else verdict


def _step(step: AccessStep) -> dict[str, Any]:
    return {
        "attributes": [identifier_of(name) for name in step.attributes],
        "found": step.found,
        "holds": step.holds,
        "scanned": step.reason,
        "text": str(step),
    }
