"""Subscriptions and their changes as data: entries of the log, requests, and results."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Final, Generic, Literal, TypeVar, get_args

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import Destination, SubscriptionSpec, SubscriptionStatus
from selectroute.selector.dialect import EXTENDED, Seltype
from selectroute.selector.message import Message

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32: no letter looks like a digit
_PAIRS: Final = [letter + other for letter in _ALPHABET for other in _ALPHABET]


def new_id() -> str:
    """Return a new id that sorts by its time of creation, in milliseconds; 80 of its bits are random."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join([_PAIRS[number >> shift & 1_023] for shift in range(120, -1, -10)])


@dataclass(frozen=True, slots=True)
class Subscription:
    """Registered subscription. ``revision`` is that of its last change: its ETag."""

    id: str
    name: str
    topic: str | None
    selector: str
    dialect: str
    seltype: Seltype
    destination: Destination
    status: SubscriptionStatus
    labels: Mapping[str, str]
    revision: int
    created: datetime
    modified: datetime

    @property
    def spec(self) -> SubscriptionSpec:
        """Specification of the subscription; seltype is set only if EXTENDED."""
        return SubscriptionSpec(
            selector=self.selector,
            topic=self.topic,
            dialect=self.dialect,
            seltype=EXTENDED if self.seltype == EXTENDED else None,
            name=self.name,
            destination=self.destination,
            labels=self.labels,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the subscription as plain data; times are RFC 3339 in UTC."""
        return {
            "id": self.id,
            "name": self.name,
            "topic": self.topic,
            "selector": self.selector,
            "dialect": self.dialect,
            "seltype": self.seltype,
            "destination": self.destination.to_json(),
            "status": self.status.value,
            "labels": dict(self.labels),
            "revision": self.revision,
            "created": time_text(self.created),
            "modified": time_text(self.modified),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Subscription:
        """Invert `to_json`; other fields are ignored. Raises `InvalidSpecError`."""
        return read_plain(cls, data)


Order = Literal["id", "name", "newest"]
"""Orders of a list: by id, by name, or the newest change first."""


@dataclass(frozen=True, slots=True)
class Page:
    """Page of subscriptions in their order, with the cursor of the next page; None on the last."""

    items: list[Subscription]
    next_cursor: str | None


T = TypeVar("T")


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


adapter_of: Final[Callable[[Any], Any]] = cache(_adapter)
"""Function that returns pydantic's `TypeAdapter` of a type, made once."""


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """All things of a kind that a caller may see."""

    items: list[T]


def plain(instance: Any) -> dict[str, Any]:
    """Return a dataclass as plain data: its fields by their names, times as RFC 3339 in UTC."""
    return asdict(instance, dict_factory=_with_texts)


def read_plain(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return a dataclass from plain data, whose other members are ignored. Raises `InvalidSpecError`."""
    from pydantic import ValidationError

    try:
        instance: T = adapter_of(kind).validate_python(data)
        return instance
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"/{part}" for part in first["loc"])
        raise InvalidSpecError(place, f"not a {kind.__name__.lower()}: {first['msg']}") from error


def _with_texts(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in fields}


MAX_SAMPLED: Final = 8_192
"""Characters of a message in the sample of recent messages, as JSON."""


def sampled_form(message: Message) -> dict[str, Any]:
    """Return a message in the wire form, without its body."""
    return {name: part for name, part in message.to_json().items() if name != "body"}


def sampled_text(message: Mapping[str, Any]) -> str:
    """Return a message of the sample as it is stored."""
    return json.dumps(message, separators=(",", ":"))


@lru_cache(maxsize=256)  # all subscriptions of an import have the same time
def time_text(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, with microseconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def time_of(text: str) -> datetime:
    """Invert `time_text`. Raises ValueError."""
    return datetime.fromisoformat(text).astimezone(UTC)


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
    """Result of `Registry.apply`: one revision, and the subscription of each operation after it.

    The subscription of a remove is as it was.
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
    """Ability of a query to deliver the messages that a paused subscription missed.

    For a caller who may not see all subscriptions, `query` is a number, and there is no reason.
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
    """First batch of a query that used a revision or a later one.

    For a caller who may not see all subscriptions, `query` is a number.
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
