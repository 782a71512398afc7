"""Changes as data: what is in the log, what is asked for, and what is answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, cast, get_args

from selectroute.registry.errors import InvalidSpecError
from selectroute.registry.model import Subscription, SubscriptionSpec, time_of, time_text

Op = Literal["add", "replace", "remove", "pause", "resume"]
From = Literal["latest", "last-processed"]

OPS: Final[tuple[Op, ...]] = get_args(Op)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the log. The changes of one revision became true together."""

    revision: int
    op: Op
    id: str
    subscription: Subscription | None
    """As it is after the change; None after its removal."""

    resume_from: From | None
    """Of a resume: from where on the subscription gets messages."""

    paused_at: int | None
    """Of a resume: the revision of the pause that it ends."""

    time: datetime
    digest: str
    """SHA-256 over this change and the digest of the one before it, hexadecimal; empty where a service does
    not tell it, because it is made of what the caller may not see.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        data: dict[str, Any] = {
            "revision": self.revision,
            "op": self.op,
            "id": self.id,
            "subscription": None if self.subscription is None else self.subscription.to_json(),
            "time": time_text(self.time),
            "digest": self.digest,
        }
        if self.resume_from is not None:
            data |= {"from": self.resume_from, "paused_at": self.paused_at}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Change:
        """Invert `to_json`. Raises `InvalidSpecError`."""
        try:
            given = data["subscription"]
            return cls(
                revision=int(data["revision"]),
                op=cast(Op, str(data["op"])),
                id=str(data["id"]),
                subscription=None if given is None else Subscription.from_json(given),
                resume_from=data.get("from"),
                paused_at=data.get("paused_at"),
                time=time_of(data["time"]),
                digest=str(data.get("digest", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSpecError("", f"not a change: {error}") from error


class ChangePage(list[Change]):
    """Some changes of the log in their order, and where the next ones begin.

    ``next_cursor`` gives those behind these, and is None if there are none by now: then everything up to
    ``revision`` was given, the newest one when this was read. ``complete`` is the revision up to which
    everything was given in any case. A page ends with a revision, except inside one that is too large.
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
    """A change to be made with others as one revision, see `Registry.apply`."""

    op: Op
    id: str | None = None
    """None for an add whose id is made here."""

    spec: SubscriptionSpec | None = None
    """Of an add or a replace."""

    expected: int | None = None
    """The revision that the subscription must have; None for any."""

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
    """Identity of a request that may be repeated: the caller, the client's key, and a digest of the
    request.
    """

    subject: str
    key: str
    request: str


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ability of a query to deliver the messages that a paused subscription missed."""

    query: str
    can_replay: bool
    reason: str | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"query": self.query, "can_replay": self.can_replay, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Resumed:
    """A subscription that gets messages again, and what each known query can do about those it missed."""

    subscription: Subscription
    backfill: list[Backfill]


@dataclass(frozen=True, slots=True)
class EffectiveFrom:
    """First batch of a query that used a revision or a later one."""

    query: str
    batch: int

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"query": self.query, "batch": self.batch}


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import: how many subscriptions it changed, and the revision that they share."""

    rows: int
    revision: int


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of `Registry.verify`: the rows read, all as they were written."""

    revision: int
    changes: int
    subscriptions: int
    digest: str
    """The digest of the newest change, hexadecimal: it vouches for the whole log."""
