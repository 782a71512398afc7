"""Report on one message, by the delivery kernel: which subscriptions get it, which nearly do, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from selectroute.clauses.access import Key
from selectroute.clauses.predicate import Literal
from selectroute.index.errors import UnknownSubscriptionError
from selectroute.index.index import Index
from selectroute.index.matches import Matches, NearMiss
from selectroute.index.near_misses import near
from selectroute.index.snapshot import Snapshot
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.explain.explain import Explanation as SelectorExplanation
from selectroute.selector.explain.sentences import counted
from selectroute.selector.fields import identifier_of
from selectroute.selector.limits import UNLIMITED
from selectroute.selector.message import Message
from selectroute.selector.selector import Selector
from selectroute.selector.selector_type import EXTENDED
from selectroute.selector.values.truth import Truth, Void


@dataclass(frozen=True, slots=True)
class AccessStep:
    """Clause with its access path: its attributes and keys, and the keys of the message.

    ``probe`` are the message's keys (``None`` for NaN, which no clause has), ``candidates`` the number of
    clauses in the bucket of these keys if this clause is in it, otherwise 0. ``reason`` says why a clause is
    on the scan list. ``residual`` are the literals that the keys do not decide, with their truth on the
    message. ``refused``: the clause requires valid property names, which the message does not have.
    """

    attributes: tuple[str, ...]
    keys: tuple[tuple[Key, ...], ...]
    probe: tuple[Key | None, ...]
    candidates: int
    reason: str | None
    residual: tuple[tuple[Literal, Truth | Void], ...]
    refused: bool = False

    @property
    def found(self) -> bool:
        """True if the message's keys lead to this clause."""
        return all(key in keys for key, keys in zip(self.probe, self.keys, strict=True))

    @property
    def holds(self) -> bool:
        """True if the clause is satisfied."""
        return (
            self.found
            and not self.refused
            and all(truth is Truth.of(literal.wanted) for literal, truth in self.residual)
        )

    def __str__(self) -> str:
        if self.reason is not None:
            place = f"scan list ({self.reason})"
        else:
            parts = (
                f"{identifier_of(name)} = {' | '.join(map(_shown, keys))}"
                for name, keys in zip(self.attributes, self.keys, strict=True)
            )
            place = f"key {', '.join(parts)}"
        if not self.found:
            return f"{place}: the message has {', '.join(map(_shown, self.probe))}"
        if self.refused:
            return f"{place}: a property name of the message breaks a rule, so the clause does not hold"
        return (
            f"{place}: {counted(self.candidates, 'candidate')}, "
            f"clause {'holds' if self.holds else 'does not hold'}"
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Verdict on one subscription and message, with its causes. ``str()`` renders a text."""

    subscription: str
    matched: bool
    topic: str | None
    topic_matches: bool
    steps: tuple[AccessStep, ...]
    selector: SelectorExplanation
    seltype: str
    provider: bool | None
    """Extended selection provider's verdict on an EXTENDED selector; None if it gave none."""

    def __str__(self) -> str:
        lines = [f"{self.subscription}: {'matched' if self.matched else 'not matched'}"]
        if self.topic is not None:
            lines.append(
                f"  topic filter {self.topic}: {'matches' if self.topic_matches else 'does not match'}"
            )
        lines += [f"  {step}" for step in self.steps] or ["  no message satisfies any of its clauses"]
        if self.seltype == EXTENDED:
            lines.append(f"  {_PROVIDER[self.provider]}")
        else:
            lines += [f"  {line}" for line in str(self.selector).splitlines()]
        return "\n".join(lines)


_PROVIDER = {
    True: "the extended selection provider matches it",
    False: "the extended selection provider does not match it",
    None: "no extended selection provider could judge its EXTENDED selector (reason 2551)",
}


def _shown(key: Key | None) -> str:
    match key:
        case None:
            return "NaN"
        case str():
            return repr(key)
        case bytes():
            return f'"0x{key.hex().upper()}"'
        case tuple():
            return " ".join(str(part) for part in key).upper() if len(key) == 1 else f"{key[1]!r}F"
        case _:
            return f"{key:g}"


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

    def match(self, message: Message, limit: int, near: bool = False) -> Matches:
        """Return the subscriptions that get a message, at most `limit` each of ``ids`` and ``refused``. With
        `near` also those that miss it by one condition.
        """
        verdict = self._verdict(message)
        named, refused = (
            self._snapshot.ids.take(ordinals[:limit]).to_pylist()
            for ordinals in (verdict.matched, verdict.refused)
        )
        found = Matches(self._revision, len(verdict.matched), named, refused)
        if near:
            misses, is_complete = nearby(self._snapshot, message, verdict, limit)
            found = replace(found, near=misses, near_complete=is_complete)
        return found

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not, as ``/v1/messages:explain`` does, with the
        ``revision``. Raises `UnknownSubscriptionError`.
        """
        found = explained(self._snapshot, self._ordinal(id), message, self._verdict(message))
        return {"revision": self._revision, **found}

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
