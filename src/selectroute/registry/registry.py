"""The registry: subscriptions that outlive the process, and every change to them in order.

::

    register, replace, … ──one transaction──→ change log (revision r) ──→ changes(after) ──→ RegistryPublisher
                                   └────────→ its view ──→ get, list
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import NoneType, TracebackType
from typing import Any, Literal, cast

from sqlalchemy import Connection, insert

from selectroute.registry import queries, staging, transfer
from selectroute.registry.administration import Administration
from selectroute.registry.changes import (
    Applied,
    From,
    Idempotency,
    Imported,
    Operation,
    Resumed,
)
from selectroute.registry.counter import first_counter, read_counter
from selectroute.registry.errors import NotFoundError, OperationError
from selectroute.registry.history import Progress
from selectroute.registry.model import Page, Subscription, SubscriptionSpec
from selectroute.registry.pages import Filters, page
from selectroute.registry.permission import EVERYTHING, Permission
from selectroute.registry.requests import answered, applied, keep
from selectroute.registry.revision import Revision
from selectroute.registry.rows import subscription_of, subscriptions_with_state
from selectroute.registry.settings import write_setting
from selectroute.registry.specification import Budget, Checks, is_id, patched
from selectroute.registry.tables import FORMAT, counter, metadata, subscription
from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.store.engine import Store
from selectroute.store.errors import DamagedError
from selectroute.store.head import Mark, lost

_ID = "the id of a subscription, such as 'heavy'"
_SPEC = "a SubscriptionSpec: sr.SubscriptionSpec('weight > 2500', topic='cars/+')"


class Registry(Administration):
    """The subscriptions of a database, and the log of their changes. Safe for use by threads and processes.

    Each call that changes something is one transaction and one revision: it is done and durable when the
    call returns, and left no trace when it raises. All raise `StoreError` as the database says, besides what
    they say themselves.

    What changes something takes `by`, who asks for it: what that one may not see is not there for him, what
    he may not write raises `ForbiddenError`, and if his token was revoked meanwhile `AuthError`.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        super().__init__(store)
        self.limits = limits
        self._owner = self.id

    @classmethod
    def open(
        cls,
        url: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        create: bool = True,
        verify: bool = True,
        progress: Progress | None = None,
        token: str | None = None,
    ) -> Registry:
        """Open a registry: a database (``sqlite:///path``, ``postgresql+psycopg://…``), or over HTTP.

        Args:
            url: where it is. ``http://host:port`` gives a `RemoteRegistry`, with the same methods.
            limits: the largest selector that is registered.
            create: whether a database that is none yet becomes one.
            verify: read everything first and compare it with its digests, see `verify`.
            progress: called while that goes on.
            token: the secret of a bearer token, for a registry over HTTP.

        Raises:
            InvalidUrlError: the URL is none of these.
            DamagedError: the database is not what was written, or lost changes that were acknowledged; the
                message names the place.
        """
        check_argument(url, str, "url", "sqlite:///PATH, postgresql+psycopg://… or http://HOST:PORT")
        if url.startswith(("http://", "https://")):
            from selectroute.registry.remote import RemoteRegistry

            return cast(Registry, RemoteRegistry(url, token=token))
        store = Store(url, metadata, _first_rows if create else None)
        try:
            made = cls(store, limits)
            found = made.setting("format")
            if found != FORMAT:
                raise DamagedError(f"the registry has format {found}, this version reads format {FORMAT}")
            made.check_acknowledged()
            if verify:
                made.verify(progress)
        except BaseException:
            store.close()
            raise
        return made

    def close(self) -> None:
        """Give the database back."""
        self._store.close()

    def __repr__(self) -> str:
        return f"Registry({self._store.url.render_as_string(hide_password=True)!r})"

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- one subscription

    def __len__(self) -> int:
        """How many subscriptions there are, paused ones too. O(1)."""
        with self._store.reading() as connection:
            number: int = read_counter(connection).subscriptions
            return number

    def get(self, id: str) -> Subscription:
        """A subscription. Raises `NotFoundError`."""
        check_argument(id, str, "id", _ID)
        if not is_id(id):  # no database is asked for what it could not even be sent
            raise NotFoundError(f"there is no subscription {id!r}")
        return self._one(subscription.c.id == id, f"there is no subscription {id!r}")

    def get_by_name(self, name: str) -> Subscription:
        """The subscription of a name. Raises `NotFoundError`."""
        check_argument(name, str, "name", "the name of a subscription")
        return self._one(subscription.c.name == name, f"there is no subscription of the name {name!r}")

    def register(
        self,
        spec: SubscriptionSpec,
        *,
        id: str | None = None,
        idempotency: Idempotency | None = None,
        by: Permission = EVERYTHING,
    ) -> Subscription:
        """Register a subscription; the id is made here unless one is given.

        With `idempotency`, the same request again gives the same answer and changes nothing, for 24 hours.
        Raises what `checked` raises, `IdTakenError`, `NameTakenError`, `IdempotencyConflictError`.
        """
        check_argument(spec, SubscriptionSpec, "spec", _SPEC)
        check_argument(id, (str, NoneType), "id", f"{_ID}, or None for one that is made here")
        with self._changing([spec], by) as revision:
            before = answered(revision.connection, idempotency)
            if before is not None:
                return Subscription.from_json(before)
            made = revision.add(id, spec)
            keep(revision.connection, idempotency, made.to_json())
        return made

    def replace(
        self, id: str, spec: SubscriptionSpec, *, expected: int | None = None, by: Permission = EVERYTHING
    ) -> Subscription:
        """Give a subscription another specification, as a whole; a paused one stays paused.

        With `expected`, only if that is its revision: `StaleRevisionError` otherwise. Raises also what
        `checked` raises, `NotFoundError`, `NameTakenError`.
        """
        check_argument(id, str, "id", _ID)
        check_argument(spec, SubscriptionSpec, "spec", _SPEC)
        with self._changing([spec], by) as revision:
            return revision.replace(id, spec, expected)

    def change(
        self,
        id: str,
        patch: Mapping[str, Any],
        *,
        expected: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Subscription:
        """Change some fields of a subscription by a JSON merge patch (RFC 7396). Raises as `replace` does."""
        check_argument(id, str, "id", _ID)
        check_argument(patch, Mapping, "patch", "the fields to change: {'selector': 'weight > 3000'}")
        checks = Checks(self.limits)
        while True:
            # Checked before anybody waits for it; if somebody else changes the rest of it meanwhile, again.
            now = self.get(id)
            if by.sees(now.topic) and (expected is None or expected == now.revision):
                spec = patched(now, patch)
                by.check_stored(spec)
                checks.checked(spec)
            with self._changing(checks, by) as revision:
                spec = patched(revision.get(id, expected), patch)
                if checks.knows(spec):
                    return revision.replace(id, spec, expected)

    def remove(self, id: str, *, expected: int | None = None, by: Permission = EVERYTHING) -> Subscription:
        """Remove a subscription; returns it as it was. Raises `NotFoundError`, `StaleRevisionError`."""
        check_argument(id, str, "id", _ID)
        with self._changing(by=by) as revision:
            return revision.remove(id, expected)

    def pause(self, id: str, *, expected: int | None = None, by: Permission = EVERYTHING) -> Subscription:
        """Stop a subscription's messages; a paused one is left as it is. Raises as `remove` does."""
        check_argument(id, str, "id", _ID)
        with self._changing(by=by) as revision:
            return revision.pause(id, expected)

    def resume(
        self,
        id: str,
        *,
        from_: From = "latest",
        expected: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Resumed:
        """Let a paused subscription have messages again; an active one is left as it is.

        From ``last-processed`` it also gets those that it missed, of each query that can read them again: the
        answer says which can. Raises as `remove` does.
        """
        check_argument(id, str, "id", _ID)
        with self._changing(by=by) as revision:
            one = revision.resume(id, from_, expected)
            known = queries.backfills(revision.connection) if from_ == "last-processed" else []
        return Resumed(one, known)

    def apply(
        self,
        operations: Iterable[Operation],
        *,
        idempotency: Idempotency | None = None,
        max_expanded: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Applied:
        """Several changes as one revision, all of them or none. Raises `OperationError` naming the first that
        cannot be, with what it raises alone as the cause; with `max_expanded`, also `TooCostlyError` where
        the selectors multiply out to more literals than these, see `Budget`.
        """
        check_iterable(operations, "operations", "a list of Operation")
        operations = list(operations)
        for one in operations:
            check_argument(one, Operation, "an operation", "an Operation, as sr.Operation has it")
        specs = [one.spec for one in operations if one.spec is not None]
        with self._changing(Checks(self.limits, specs, Budget(max_expanded)), by) as revision:
            before = applied(revision.connection, idempotency)
            if before is not None:
                return before
            done = []
            for index, operation in enumerate(operations):
                try:
                    done.append(revision.operate(operation))
                except SelectRouteError as error:
                    raise OperationError(index, error) from error
            newest = revision.number if revision.seq else revision.before
            answer = {"revision": newest, "subscriptions": [one.to_json() for one in done]}
            keep(revision.connection, idempotency, answer)
        return Applied(newest, done)

    # ---- many subscriptions

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
        """Subscriptions in the order of their ids: those that have this topic filter, status, dialect, name
        and label (``name=value``), each if given. O(limit), however many there are.

        A cursor goes on behind the page that it came with, with the same filters: what was there all the time
        comes exactly once, whatever was added or removed meanwhile. Raises `InvalidSpecError` for a limit
        that is not 1 to 1,000, and for a cursor that is none or of other filters.
        """
        asked = {"topic": topic, "status": status, "dialect": dialect, "name": name, "label": label}
        filters: Filters = {key: str(value) for key, value in asked.items() if value is not None}
        with self._store.reading() as connection:
            return page(connection, filters, limit, cursor)

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Progress | None = None,
        max_rows: int = staging.MAX_ROWS,
        max_expanded: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Imported:
        """Register subscriptions given as lines of JSON, as one revision, all or none; bounded memory.

        A line has the fields of a specification, and perhaps ``id`` and ``status``; what else a subscription
        has is left alone, so that an export can be imported. ``add`` refuses an id that is taken; ``replace``
        replaces its subscription, and pauses or resumes it (from ``latest``) where the line gives another
        status, which are changes of their own. Raises `TooLargeError`, and `ImportLineError` naming the first
        lines that cannot be; ids and names that are taken are seen when all lines are read. With
        `max_expanded`, the cause is `TooCostlyError` where the selectors multiply out to more literals.
        """
        budget = Budget(max_expanded)
        with staging.staged(lines, self.limits, max_rows, budget, progress, by) as stage:
            with self._changing(by=by, bulk=True) as revision:
                rows = transfer.import_stage(revision, stage, mode, progress)
            return Imported(rows, revision.number if rows else revision.before)

    def export(self, *, revision: int | None = None) -> Generator[str, None, None]:
        """All subscriptions as lines of JSON without their ends, as they are now or were at a revision.

        A connection to the database is in use until the last line is read, or this is closed.
        """
        with self._store.reading() as connection:
            yield from transfer.exported(connection, revision)

    def skip_revision(self) -> int:
        """Take a revision without changes, as when a snapshot is made again; returns it."""
        with self._changing() as revision:
            return revision.skip()

    # ---- inside

    @contextmanager
    def _changing(
        self,
        specs: Iterable[SubscriptionSpec] | Checks = (),
        by: Permission = EVERYTHING,
        *,
        bulk: bool = False,
    ) -> Iterator[Revision]:
        checks = specs if isinstance(specs, Checks) else Checks(self.limits, specs)
        with self._store.writing(bulk=bulk) as connection:
            revision = Revision(connection, checks, by)
            head = self._store.head
            if head is not None and head.newest is not None and revision.before < head.newest.number:
                raise lost(
                    head, f"it is at revision {revision.before}, and {head.newest.number} was acknowledged"
                )
            yield revision
            newest = revision.finish()
        if self._store.head is not None and newest > revision.before:
            self._store.head.advance(Mark(self._owner, newest, revision.digest.hex()))
        with self._committed:
            self._committed.notify_all()

    def _one(self, which: Any, missing: str) -> Subscription:
        with self._store.reading() as connection:
            row = connection.execute(subscriptions_with_state().where(which)).one_or_none()
            if row is None:
                raise NotFoundError(missing)
            return subscription_of(row)


def _first_rows(connection: Connection) -> None:
    """What a new registry begins with."""
    connection.execute(insert(counter), first_counter())
    write_setting(connection, "id", secrets.token_hex(16))
    write_setting(connection, "format", FORMAT)
