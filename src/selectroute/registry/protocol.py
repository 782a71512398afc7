"""Protocols of a registry: the methods that a database's (`Registry`) and a service's (``client``) have
alike.

`Registry.verify`, `Registry.bodies` and what else needs the database itself is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Self

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
from selectroute.registry.model import Page, Subscription, SubscriptionSpec
from selectroute.registry.tokens import Token
from selectroute.selector.message import Message

Progress = Callable[[int, int], None]
"""Called now and then with how many rows are done, and how many there are (0: not known)."""


class Selecting(Protocol):
    """A subscription as people are shown it: its topic filter and its selector."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def topic(self) -> str | None:
        """Its topic filter, None for every topic."""

    @property
    def selector(self) -> str:
        """Text of its selector."""

    @property
    def dialect(self) -> str:
        """Selector's dialect."""

    @property
    def seltype(self) -> str | None:
        """STANDARD, EXTENDED or NONE; see `selectroute.selector.selector_type`."""


class Matcher(Protocol):
    """Subscriptions that messages are matched against, by the kernel that delivers."""

    def match(self, message: Message, limit: int, near: bool = False) -> dict[str, Any]:
        """Return the subscriptions that get a message, as ``/v1/messages:match`` does: ``revision``,
        ``total``, and of ``ids`` and ``refused`` (nobody could judge them) at most `limit`. With `near` also
        those that miss it by one condition.
        """

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Return why a subscription gets a message or does not, as ``/v1/messages:explain`` does, with the
        ``revision``. Raises `NotFoundError`.
        """

    def get(self, id: str) -> Selecting:
        """Return a subscription. Raises `NotFoundError`."""


class SubscriptionRegistry(Protocol):
    """A registry, in a database or behind a service. `Registry` has the contract of each method; all raise
    `RegistryError` and `StoreError`, and over a network also `UnreachableError`.
    """

    @property
    def url(self) -> str:
        """URL that it was opened with."""

    @property
    def revision(self) -> int:
        """Newest revision; 0 before the first change."""

    @property
    def snapshots_folder(self) -> Path:
        """Folder that revisions are published to. Raises `PublishError` where it is not known."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Close every connection."""

    def info(self) -> dict[str, str | int | None]:
        """Return what can be told of the registry as a whole, ``revision`` first."""

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
    ) -> Page:
        """Return a page of subscriptions; see `Registry.list`."""

    def register(
        self, spec: SubscriptionSpec, *, id: str | None = None, idempotency: Idempotency | None = None
    ) -> Subscription:
        """Register a subscription; see `Registry.register`."""

    def replace(self, id: str, spec: SubscriptionSpec, *, expected: int | None = None) -> Subscription:
        """Give a subscription another specification; see `Registry.replace`."""

    def change(self, id: str, patch: Mapping[str, Any], *, expected: int | None = None) -> Subscription:
        """Change some fields by a JSON merge patch; see `Registry.change`."""

    def remove(self, id: str, *, expected: int | None = None) -> Subscription:
        """Remove a subscription; see `Registry.remove`."""

    def pause(self, id: str, *, expected: int | None = None) -> Subscription:
        """Stop a subscription's messages; see `Registry.pause`."""

    def resume(self, id: str, *, from_: From = "latest", expected: int | None = None) -> Resumed:
        """Let a paused subscription have messages again; see `Registry.resume`."""

    def apply(self, operations: Iterable[Operation], *, idempotency: Idempotency | None = None) -> Applied:
        """Make several changes one revision; see `Registry.apply`."""

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Progress | None = None,
    ) -> Imported:
        """Register what lines of JSON say, all or none; see `Registry.import_`."""

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

    # ---- messages

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Return why a subscription gets a message or does not; see `Registry.explain`."""

    def matcher(self, progress: Callable[[int], None] = lambda _: None) -> Matcher:
        """Return the active subscriptions, ready to be matched; see `Registry.matcher`."""

    # ---- queries

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Make a query known; see `Registry.note_query`."""

    def queries(self) -> Sequence[Backfill]:
        """Return the queries that are known; see `Registry.queries`."""

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Report that a batch of a query was delivered by a revision; see `Registry.note_batch`."""

    def effective_of(
        self, id: str, *, wait_seconds: float = 0
    ) -> tuple[Subscription, Sequence[EffectiveFrom]]:
        """Return a subscription, and the first batch of each query that used it; see
        `Registry.effective_of`.
        """

    # ---- tokens

    def add_token(
        self,
        role: str,
        *,
        topics: Iterable[str] = (),
        queues: Iterable[str] = (),
        kafka: Iterable[str] = (),
        name: str | None = None,
    ) -> tuple[Token, str]:
        """Make a token; return it and its secret. See `Registry.add_token`."""

    def tokens(self) -> Sequence[Token]:
        """Return all tokens."""

    def had_tokens(self) -> bool:
        """Return whether there is a token, or ever was one: then nobody is let in without."""

    def revoke_token(self, id: str) -> None:
        """Revoke a token. Raises `NotFoundError`."""
