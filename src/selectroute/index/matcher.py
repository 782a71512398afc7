"""Subscriptions of one snapshot by message: which get it, which nearly do, and why one does or does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from selectroute.index.errors import UnknownSubscriptionError
from selectroute.index.matches import Matches
from selectroute.index.snapshot import Snapshot
from selectroute.index.verdicts import Verdict, explained, judged, nearby
from selectroute.selector.message import Message


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
