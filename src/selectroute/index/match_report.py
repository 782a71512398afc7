"""Report on one message, by the delivery kernel: which subscriptions get it, which nearly do, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from selectroute.index import near_misses
from selectroute.index.errors import UnknownSubscriptionError
from selectroute.index.index import AccessStep, Index
from selectroute.index.matches import MatchedSubscriptions
from selectroute.index.snapshot import Snapshot
from selectroute.selector.dialect import EXTENDED
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.selector import Selector


class DisagreementError(SelectRouteError):
    """Different verdicts of the kernel and the reference evaluator: a bug."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ordinals that match one message, and those without a verdict; int32, sorted."""

    matched: np.ndarray[Any, np.dtype[np.int32]]
    refused: np.ndarray[Any, np.dtype[np.int32]]


def judged(snapshot: Snapshot, message: Message) -> Verdict:
    """Match one message as a stream does."""
    matches = snapshot.match_one(message)
    return Verdict(np.sort(matches.ordinals), np.sort(matches.refused))


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
    valid = selector if extended else Selector(selector, dialect, limits=UNLIMITED)
    index.add(id, valid, topic, dialect=dialect, extended=extended)
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
        "found": step.reached,
        "holds": step.holds,
        "scanned": step.reason,
        "text": str(step),
    }


class SnapshotRow(NamedTuple):
    """Subscription of a snapshot."""

    id: str
    topic: str | None
    selector: str
    dialect: str
    seltype: str


class SnapshotMatcher:
    """Matcher of a snapshot, with the methods of a registry that match. ``revision`` is what results name."""

    def __init__(self, snapshot: Snapshot, revision: int | None) -> None:
        self._snapshot = snapshot
        self._revision = revision
        self._judged: tuple[Message, Verdict] | None = None

    def match(self, message: Message, limit: int, near: bool = False) -> MatchedSubscriptions:
        """Return the subscriptions that get a message, at most `limit` each of ``ids`` and ``refused``. With
        `near` also those that miss it by one condition.
        """
        verdict = self._verdict(message)
        named, refused = (
            self._snapshot.ids.take(ordinals[:limit]).to_pylist()
            for ordinals in (verdict.matched, verdict.refused)
        )
        matches = MatchedSubscriptions(self._revision, len(verdict.matched), named, refused)
        if near:
            misses, is_complete = near_misses.near(self._snapshot, message, limit, verdict.matched)
            matches = replace(matches, near=misses, near_complete=is_complete)
        return matches

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not, as ``/v1/messages:explain`` does, with the
        ``revision``. Raises `UnknownSubscriptionError`.
        """
        report = explained(self._snapshot, self._ordinal(id), message, self._verdict(message))
        return {"revision": self._revision, **report}

    def get(self, id: str) -> SnapshotRow:
        """Return a subscription. Raises `UnknownSubscriptionError`."""
        row = self._snapshot.subscriptions.slice(self._ordinal(id), 1).to_pylist()[0]
        return SnapshotRow(id, row["topic"], row["selector"] or "", row["dialect"], row["seltype"])

    def _ordinal(self, id: str) -> int:
        ordinal = int(self._snapshot.find([id])[0])
        if ordinal < 0:
            raise UnknownSubscriptionError(id)
        return ordinal

    def _verdict(self, message: Message) -> Verdict:
        """Match a message, once for consecutive calls with the same message."""
        if self._judged is None or self._judged[0] is not message:
            self._judged = message, judged(self._snapshot, message)
        return self._judged[1]
