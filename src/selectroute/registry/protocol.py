"""Protocols of a registry: the common methods of `Registry` (database) and ``client`` (service).

Methods that need the database itself, such as `Registry.verify` and `Registry.bodies`, are not included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, Self

from selectroute.index.matches import Matches
from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.authorization.role import Token
from selectroute.registry.changes import (
    Applied,
    Backfill,
    Change,
    ChangePage,
    EffectiveFrom,
    From,
    Idempotency,
    Imported,
    Op,
    Operation,
    Resumed,
)
from selectroute.registry.model import Order, Page, Subscription
from selectroute.selector.message import Message
from selectroute.storage import Location

Progress = Callable[[int, int], None]
"""Callback, called regularly with the count of rows done and the total (0: unknown)."""


class Selecting(Protocol):
    """Subscription with the fields that are shown to people: its topic filter and its selector."""

    @property
    def id(self) -> str:
        """Id of the subscription."""

    @property
    def topic(self) -> str | None:
        """Topic filter; None for every topic."""

    @property
    def selector(self) -> str:
        """Text of the selector."""

    @property
    def dialect(self) -> str:
        """Dialect of the selector."""

    @property
    def seltype(self) -> str | None:
        """STANDARD, EXTENDED or NONE; see `selectroute.selector.selector_type`."""


class Matcher(Protocol):
    """Subscriptions to match messages against, by the kernel that also routes deliveries."""

    def match(self, message: Message, limit: int, near: bool = False) -> Matches:
        """Return the subscriptions that get a message, at most `limit` each of ``ids`` and ``refused``. With
        `near` also those that miss it by one condition.
        """

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not, as ``/v1/messages:explain`` does, with the
        ``revision``. Raises `NotFoundError`.
        """

    def get(self, id: str) -> Selecting:
        """Return a subscription. Raises `NotFoundError`."""


class StreamReports(Protocol):
    """Streams of a registry, as far as jobs and commands use them."""

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Announce a query."""

    def queries(self) -> Sequence[Backfill]:
        """Return the known queries."""

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Report that a batch of a query was delivered with a revision."""

    def note_reports(
        self, query: str, batches: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
    ) -> None:
        """Report batches of a query, and its state."""

    def remove(self, query: str) -> None:
        """Remove a stream with its reports."""

    def note_messages(self, query: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add messages of a query to the sample of recent messages."""


class TokenAdministration(Protocol):
    """Tokens of a registry."""

    def add(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
    ) -> tuple[Token, str]:
        """Create a token; return the token and its secret."""

    def all(self) -> Sequence[Token]:
        """Return all tokens."""

    def had_any(self) -> bool:
        """Return whether a token exists or ever existed: then every caller needs one."""

    def revoke(self, id: str) -> None:
        """Revoke a token. Raises `NotFoundError`."""


class SubscriptionRegistry(Protocol):
    """Registry in a database or of a service. `Registry` documents the contract of each method; all raise
    `RegistryError` and `StoreError`, and over a network also `UnreachableError`.
    """

    @property
    def url(self) -> str:
        """URL that the registry was opened with."""

    @property
    def revision(self) -> int:
        """Newest revision; 0 before the first change."""

    @property
    def streams(self) -> StreamReports:
        """Streams and queries that report to the registry."""

    @property
    def tokens(self) -> TokenAdministration:
        """Tokens of callers."""

    @property
    def snapshots_folder(self) -> Location:
        """Folder that revisions are published to. Raises `PublishError` if unknown."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Close every connection."""

    def info(self) -> dict[str, str | int | None]:
        """Return the properties of the registry, ``revision`` first."""

    # ---- subscriptions

    def get(self, id: str) -> Subscription:
        """Return a subscription. Raises `NotFoundError`."""

    def get_by_name(self, name: str) -> Subscription:
        """Return the subscription of a name. Raises `NotFoundError`."""

    def list(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        topic: str | None = None,
        status: str | None = None,
        dialect: str | None = None,
        name: str | None = None,
        label: str | None = None,
        order: Order = "id",
    ) -> Page:
        """Return a page of subscriptions; see `Registry.list`."""

    def register(
        self, spec: SubscriptionSpec, *, id: str | None = None, idempotency: Idempotency | None = None
    ) -> Subscription:
        """Register a subscription; see `Registry.register`."""

    def replace(self, id: str, spec: SubscriptionSpec, *, expected: int | None = None) -> Subscription:
        """Replace a subscription's specification; see `Registry.replace`."""

    def change(self, id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> Subscription:
        """Change some fields by a JSON merge patch; see `Registry.change`."""

    def remove(self, id: str, *, expected: int | None = None) -> Subscription:
        """Remove a subscription; see `Registry.remove`."""

    def pause(self, id: str, *, expected: int | None = None) -> Subscription:
        """Pause a subscription; see `Registry.pause`."""

    def resume(self, id: str, *, from_: From = "latest", expected: int | None = None) -> Resumed:
        """Resume a paused subscription; see `Registry.resume`."""

    def apply(self, operations: Iterable[Operation], *, idempotency: Idempotency | None = None) -> Applied:
        """Apply several changes as one revision; see `Registry.apply`."""

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Progress | None = None,
    ) -> Imported:
        """Register subscriptions from lines of JSON, all or none; see `Registry.import_`."""

    def export(self, *, revision: int | None = None) -> Iterator[str]:
        """Yield all subscriptions as lines of JSON; see `Registry.export`."""

    # ---- the log

    def changes(
        self,
        after: int = 0,
        *,
        limit: int = 1_000,
        cursor: str | None = None,
        ops: Collection[Op] | None = None,
        wait_seconds: float = 0,
    ) -> ChangePage:
        """Return the changes after a revision; see `Registry.changes`."""

    def follow_changes(self, after: int, *, ops: Collection[Op] | None = None) -> Generator[Change]:
        """Yield all changes after a revision; see `Registry.follow_changes`."""

    def history(
        self, id: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[Change], str | None]:
        """Return the newest changes of a subscription; see `Registry.history`."""

    # ---- messages

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not; see `Registry.explain`."""

    def matcher(self, progress: Callable[[int], None] = lambda _: None) -> Matcher:
        """Return a matcher of the active subscriptions; see `Registry.matcher`."""

    def effective_of(
        self, id: str, *, wait_seconds: float = 0
    ) -> tuple[Subscription, Sequence[EffectiveFrom]]:
        """Return a subscription, and the first batch of each query that used it; see
        `Registry.effective_of`.
        """
