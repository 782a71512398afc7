"""Changes as data: entries of the log, requests, and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.model import Subscription, read_plain, time_text

Op = Literal["add", "replace", "remove", "pause", "resume"]
From = Literal["latest", "last-processed"]

OPS: Final[tuple[Op, ...]] = get_args(Op)

Progress = Callable[[int, int], None]
"""Callback, called regularly with the count of rows done and the total (0: unknown)."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change in the log. The changes of one revision are atomic."""

    revision: int
    op: Op
    id: str
    subscription: Subscription | None
    """State after the change; None after a removal."""

    resume_from: From | None
    """Starting point of a resumed subscription's messages; None unless `op` is resume."""

    paused_at: int | None
    """Revision of the pause that a resume ends; None unless `op` is resume."""

    time: datetime
    actor: str
    """Who made the change: a token with its id and name, or the user of a process with direct access."""

    digest: str
    """SHA-256 over this change and the digest of the previous one, hexadecimal; empty in a service's response
    to a caller that may not see all changes.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        data: dict[str, Any] = {
            "revision": self.revision,
            "op": self.op,
            "id": self.id,
            "subscription": None if self.subscription is None else self.subscription.to_json(),
            "time": time_text(self.time),
            "actor": self.actor,
            "digest": self.digest,
        }
        if self.resume_from is not None:
            data |= {"from": self.resume_from, "paused_at": self.paused_at}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Change:
        """Invert `to_json`. Raises `InvalidSpecError`."""
        members = {"digest": "", "from": None, "paused_at": None, **data}
        return read_plain(cls, {**members, "resume_from": members["from"]})


class ChangePage(list[Change]):
    """Page of the change log, in order, with the cursor of the next page.

    ``next_cursor`` is None on the last page: everything up to ``revision``, the newest when the page was
    read, was returned. ``complete`` is the revision up to which everything was returned in any case. A page
    ends at the end of a revision, unless one revision is too large for a page.
    """

    __slots__ = ("complete", "next_cursor", "revision")

    def __init__(
        self, changes: Iterable[Change], next_cursor: str | None, revision: int, complete: int
    ) -> None:
        super().__init__(changes)
        self.next_cursor = next_cursor
        self.revision = revision
        self.complete = complete


@dataclass(frozen=True, slots=True)
class Operation:
    """Requested change, one of several that become one revision, see `Registry.apply`."""

    op: Op
    id: str | None = None
    """None for an add whose id the registry generates."""

    spec: SubscriptionSpec | None = None
    """Specification of an add or replace."""

    expected: int | None = None
    """Revision that the subscription must have; None for any."""

    resume_from: From = "latest"


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of `Registry.apply`: one revision, and the subscription of each operation after it (after a
    remove: as it was).
    """

    revision: int
    subscriptions: list[Subscription]


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Identity of a repeatable request: the caller, the client's key, and a digest of the request."""

    subject: str
    key: str
    request: str


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ability of a query to deliver the messages that a paused subscription missed. For a caller who may not
    see all subscriptions, `query` is a number, and there is no reason.
    """

    query: str
    can_replay: bool
    reason: str | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Resumed subscription, and for each known query whether it can deliver the missed messages."""

    subscription: Subscription
    backfill: list[Backfill]


@dataclass(frozen=True, slots=True)
class EffectiveFrom:
    """First batch of a query that used a revision or a later one. For a caller who may not see all
    subscriptions, `query` is a number.
    """

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import: the count of its subscriptions, and their common revision."""

    rows: int
    revision: int


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of `Registry.verify`: counts of the rows read, all intact."""

    revision: int
    changes: int
    subscriptions: int
    digest: str
    """Digest of the newest change, hexadecimal: covers the whole log."""
