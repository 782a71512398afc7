"""Verdicts on one message, by the delivery kernel: matches, near misses and reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from selectroute.index.explain import AccessStep
from selectroute.index.index import Index
from selectroute.index.matches import NearMiss
from selectroute.index.near import near
from selectroute.index.snapshot import Snapshot
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.selector import Selector
from selectroute.selector.selector_type import EXTENDED


class DisagreementError(SelectRouteError):
    """Different verdicts of the kernel and the reference evaluator: a bug."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ordinals that match one message, and those without a verdict; int32, sorted."""

    matched: np.ndarray[Any, np.dtype[np.int32]]
    refused: np.ndarray[Any, np.dtype[np.int32]]


def judged(snapshot: Snapshot, message: Message) -> Verdict:
    """Match one message as a stream does."""
    found = snapshot.match_one(message)
    return Verdict(np.sort(found.ordinals), np.sort(found.refused))


def nearby(
    snapshot: Snapshot,
    message: Message,
    verdict: Verdict,
    limit: int,
    sees: Callable[[str | None], bool] = lambda _: True,
) -> tuple[list[NearMiss], bool]:
    """Return the subscriptions that miss a message by one condition, and whether these are all; see
    ``index.near``. Only subscriptions whose topic filter passes `sees` are included.
    """
    found = near(snapshot, message, limit, verdict.matched, sees)
    return [one.shown() for one in found.found], found.complete


def explained(snapshot: Snapshot, ordinal: int, message: Message, verdict: Verdict) -> dict[str, Any]:
    """Return why a subscription matches a message or not: the kernel's verdict, the access path, and as
    ``selector`` the tree of the reference evaluator. Raises `DisagreementError`.
    """
    row = snapshot.subscriptions.slice(ordinal, 1).to_pylist()[0]
    topic = row["topic"]
    index = index_of_one(row["id"], row["selector"] or "", topic, row["dialect"], row["seltype"])
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


def index_of_one(id: str, selector: str, topic: str | None, dialect: str, seltype: str | None) -> Index:
    """Return an index of one subscription that was accepted before, without limits."""
    index = Index()
    extended = seltype == EXTENDED
    given = selector if extended else Selector(selector, dialect, limits=UNLIMITED)
    index.add(id, given, topic, dialect=dialect, extended=extended)
    return index


def _reason(why: Any, matched: bool) -> str:
    """Return the verdict in one sentence."""
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
