"""Registry in a database: persistent subscriptions, and an ordered log of their changes.

::

    register, replace, … ──one transaction──→ change log (revision r) ──→ follow_changes ──→ RegistryPublisher
                                   └────────→ its view ──→ get, list
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, tuple_

from selectroute.index.compile.build import rebuilt
from selectroute.index.errors import InvalidSpecError
from selectroute.index.jsonl import stored_subscriptions
from selectroute.index.match_report import SnapshotMatcher, explained, index_of_one, judged
from selectroute.index.snapshot import Snapshot
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus, is_id
from selectroute.registry.authorization import EVERYTHING, Permission, Tokens
from selectroute.registry.bulk import transfer
from selectroute.registry.errors import NotFoundError, OperationError, PublishError
from selectroute.registry.log import change_log
from selectroute.registry.log.change_log import (
    Latest,
    LogPosition,
    RecentChanges,
    cursor_of,
    read_cursor,
    verify,
)
from selectroute.registry.log.group_commit import GroupCommit, Unit
from selectroute.registry.log.revision import PendingRevision, answered, keep
from selectroute.registry.log.rows import (
    change_of,
    insert_counter,
    read_counter,
    read_setting,
    subscription_of,
    subscriptions_with_state,
    topic_key,
    write_setting,
)
from selectroute.registry.log.tables import FORMAT, change, label, metadata, subscription
from selectroute.registry.log.transaction import Transaction
from selectroute.registry.model import (
    Applied,
    Change,
    ChangePage,
    EffectiveFrom,
    From,
    Idempotency,
    Imported,
    Op,
    Operation,
    Order,
    Page,
    Progress,
    Resumed,
    Subscription,
    Verified,
    read_plain,
)
from selectroute.registry.reports import Streams, backfills
from selectroute.registry.specification import Budget, Checks, patched
from selectroute.selector.arguments import check_argument, check_iterable
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.limits import DEFAULT_LIMITS, Limits
from selectroute.selector.message import Message
from selectroute.storage import Location
from selectroute.store.engine import Store
from selectroute.store.errors import DamagedError, StoreError

MAX_LIMIT: Final = 1_000

_WILD: Final = re.compile(r"[%_\\]")
"""Characters with a meaning in LIKE."""

Filters = dict[str, str]
"""Requested values by filter: topic, status, dialect, name, label."""

_FILTERS: Final = ("name", "label", "topic", "status", "dialect")
"""Filters, the most selective first: the index of the first one given is read, the others are compared."""


def page(
    connection: Connection, filters: Filters, limit: int, cursor: str | None, order: Order = "id"
) -> Page:
    """Return one page. Raises `InvalidSpecError` for an invalid limit, cursor, filter or order."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidSpecError("/limit", f"a limit must be 1 to {MAX_LIMIT:,}")
    if order not in get_args(Order):
        raise InvalidSpecError("/order", f"an order must be {', '.join(get_args(Order))}")
    rows = connection.execute(statement_of(filters, limit, cursor, order)).all()
    items = [subscription_of(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return Page(items, None)
    last = rows[limit - 1]
    place = LogPosition(last.revision, last.seq).cursor if order == "newest" else getattr(last, order)
    return Page(items, cursor_of(_digest(filters, order), place))


def ids_named(connection: Connection, text: str, after: str, limit: int) -> list[str]:
    """Return the first ids after one whose names have a text in them, in any case, in the order of the ids.
    O(subscriptions).
    """
    pattern = "%" + _WILD.sub(r"\\\g<0>", text) + "%"
    like = subscription.c.name.ilike(pattern, escape="\\")
    wanted = select(subscription.c.id).where(subscription.c.id > after, like)
    return [row.id for row in connection.execute(wanted.order_by(subscription.c.id).limit(limit))]


def statement_of(filters: Filters, limit: int, cursor: str | None, order: Order = "id") -> Select[Any]:
    """Return the query for a page and one more row, if there is one."""
    statement = _filtered(_NEWEST if order == "newest" else subscriptions_with_state(), filters, order)
    after = None if cursor is None else _read_cursor(cursor, filters, order)
    if order == "newest":
        place = change.c.revision, change.c.seq
        if after is not None:
            statement = statement.where(tuple_(*place) < tuple_(*LogPosition.of(after)))
        return statement.order_by(*(column.desc() for column in place)).limit(limit + 1)
    column = subscription.c[order]
    if order == "id" and "label" in filters and "name" not in filters:
        column = label.c.id  # that of the index by labels: SQLite does not see that both columns are equal
    if after is not None:
        statement = statement.where(column > after)
    return statement.order_by(column).limit(limit + 1)


_NEWEST: Final = select(subscription, change.c.body).join(
    change,
    # With the id, which is redundant, SQLite reads the log backwards and stops at the end of the page.
    and_(
        change.c.id == subscription.c.id,
        change.c.revision == subscription.c.revision,
        change.c.seq == subscription.c.seq,
    ),
)


def _filtered(statement: Select[Any], filters: Filters, order: Order) -> Select[Any]:
    first = True
    for name in _FILTERS:
        if name not in filters:
            continue
        value = filters[name]
        if name == "label":
            key, equals, of_label = value.partition("=")
            if not equals:
                raise InvalidSpecError("/label", "a filter by label must be NAME=VALUE")
            statement = statement.join(label, label.c.id == subscription.c.id).where(
                label.c.name == key, label.c.value == of_label
            )
        else:
            column: ColumnElement[Any] = subscription.c["topic_key" if name == "topic" else name]
            # SQLite has no statistics for its choice of an index: hide all columns but the best one. Where it
            # would have to sort most of the subscriptions, it reads them in their order instead.
            is_most = order != "id" and (name == "dialect" or value == SubscriptionStatus.ACTIVE)
            compared = column if first and not is_most else func.coalesce(column, "")
            statement = statement.where(compared == (topic_key(value) if name == "topic" else value))
        first = False
    return statement


def _digest(filters: Filters, order: Order) -> str:
    asked = filters if order == "id" else {**filters, "order": order}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _read_cursor(cursor: str, filters: Filters, order: Order) -> str:
    digest, last = read_cursor(cursor, 2)
    if digest != _digest(filters, order):
        raise InvalidSpecError(
            "/cursor", "the cursor was issued for other filters or another order; begin again without one"
        )
    return last


_T = TypeVar("_T")

_ID = "the id of a subscription, such as 'heavy'"
_SPEC = "a SubscriptionSpec: sr.SubscriptionSpec('weight > 2500', topic='cars/+')"

_LOOK_SECONDS: Final = 0.2
"""Interval of the polls for batches that used a subscription."""

_POLL_SECONDS: Final = 0.05
"""Interval of the polls for commits of other processes during a wait."""

_ATTEMPTS: Final = 10
"""Attempts of a change that is checked before its transaction, while others change the same subscription."""

_BULK_ROWS: Final = 10_000
"""Lines from which an import truncates the database's log afterwards, while other writers wait."""


class Registry:
    """Subscriptions of a database, and the log of their changes. Safe for use by threads and processes.

    Each call that changes something is one transaction and one revision: durable when the call returns,
    without effect when it raises. All raise `StoreError` in addition to the errors that they document.

    A method that changes something takes `by`, the caller's permission: a subscription that the caller may
    not see raises `NotFoundError`, a write beyond the permission `ForbiddenError`, and a token revoked in the
    meantime `AuthError`.
    """

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._committed = threading.Condition()
        self._newest = 0
        """Newest revision that this process committed or saw."""
        self._looked = 0.0
        """Time at which the newest revision was committed or looked for."""
        self._commits = GroupCommit(self._commit)
        self._recent = RecentChanges()
        self.limits = limits
        self.tokens = Tokens(store)
        self.streams = Streams(store)
        self.id = self.setting("id") or ""
        """Unique id of this registry."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        create: bool = True,
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Registry:
        """Open the registry in a database: ``sqlite:///path`` or ``postgresql+psycopg://…``.

        The registry of a service, ``http://host:port``, is opened by ``selectroute.connect``.

        Args:
            url: of the database.
            limits: the largest selector that is registered.
            create: whether an empty database becomes a registry.
            verify: compare the whole database with its digests first, see `verify`.
            progress: called during verification.

        Raises:
            InvalidUrlError: the URL does not name a supported database.
            DamagedError: the database is damaged, or has another format; the message says where.
        """
        check_argument(url, str, "url", "sqlite:///PATH or postgresql+psycopg://…")
        store = Store(url, metadata, _first_rows if create else None)
        try:
            registry = cls(store, limits)
            version = registry.setting("format")
            if version != FORMAT:
                raise DamagedError(f"the registry has format {version}, this version reads format {FORMAT}")
            if verify:
                registry.verify(progress)
        except BaseException:
            store.close()
            raise
        return registry

    def close(self) -> None:
        """Close every connection to the database."""
        self._commits.close()
        self._store.close()

    def __repr__(self) -> str:
        return f"Registry({self._store.url.render_as_string(hide_password=True)!r})"

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """URL of the database, with its password."""
        return self._store.url.render_as_string(hide_password=False)

    @property
    def revision(self) -> int:
        """Newest revision; 0 before the first change."""
        with self._store.reading() as connection:
            return int(read_counter(connection).revision)

    def info(self) -> dict[str, str | int | None]:
        """Return the newest revision, the count of subscriptions, the id, and the folder of snapshots.

        The folder is None if it is not set.
        """
        try:
            folder = str(self.snapshots_folder)
        except PublishError:
            folder = None
        return {"revision": self.revision, "subscriptions": len(self), "id": self.id, "snapshots": folder}

    # ---- one subscription

    def __len__(self) -> int:
        """Return the count of subscriptions, including paused ones. O(1)."""
        with self._store.reading() as connection:
            return int(read_counter(connection).subscriptions)

    def get(self, id: str) -> Subscription:
        """Return a subscription. Raises `NotFoundError`."""
        check_argument(id, str, "id", _ID)
        if not is_id(id):  # an invalid id may not even be encodable for the database
            raise NotFoundError(f"there is no subscription {id!r}")
        return self._only(subscription.c.id == id, f"there is no subscription {id!r}")

    def get_by_name(self, name: str) -> Subscription:
        """Return the subscription of a name. Raises `NotFoundError`."""
        check_argument(name, str, "name", "the name of a subscription")
        return self._only(subscription.c.name == name, f"there is no subscription of the name {name!r}")

    def register(
        self,
        spec: SubscriptionSpec,
        *,
        id: str | None = None,
        idempotency: Idempotency | None = None,
        by: Permission = EVERYTHING,
    ) -> Subscription:
        """Register a subscription; the id is generated unless one is given.

        With `idempotency`, a repeated request returns the same result and changes nothing, for 24 hours.
        Raises what `checked` raises, `IdTakenError`, `NameTakenError`, `IdempotencyConflictError`.
        """
        check_argument(spec, SubscriptionSpec, "spec", _SPEC)
        check_argument(id, (str, NoneType), "id", f"{_ID}, or None to generate one")
        checks = Checks(self.limits, [spec])
        return self._changed(lambda revision: revision.register(id, spec, idempotency), checks, by)

    def replace(
        self, id: str, spec: SubscriptionSpec, *, expected: int | None = None, by: Permission = EVERYTHING
    ) -> Subscription:
        """Replace a subscription's whole specification; a paused subscription stays paused.

        With `expected`, only if that is its revision: `StaleRevisionError` otherwise. Raises also what
        `checked` raises, `NotFoundError`, `NameTakenError`.
        """
        check_argument(id, str, "id", _ID)
        check_argument(spec, SubscriptionSpec, "spec", _SPEC)
        checks = Checks(self.limits, [spec])
        return self._changed(lambda revision: revision.replace(id, spec, expected), checks, by)

    def change(
        self, id: str, patch: Mapping[str, Any], *, expected: int | None = None, by: Permission = EVERYTHING
    ) -> Subscription:
        """Change some fields of a subscription by a JSON merge patch (RFC 7396). Raises as `replace` does."""
        check_argument(id, str, "id", _ID)
        check_argument(patch, Mapping, "patch", "the fields to change: {'selector': 'weight > 3000'}")
        checks = Checks(self.limits)

        def change(is_last: bool, revision: PendingRevision) -> Subscription | None:
            spec = patched(revision.get(id, expected), patch)
            return revision.replace(id, spec, expected) if is_last or checks.knows(spec) else None

        # Checked before the transaction, so that other writers do not wait; repeated if one of them changes
        # the subscription in between, but not for ever: the last attempt is checked within.
        for left in reversed(range(_ATTEMPTS)):
            now = self.get(id)
            if by.sees(now.topic) and (expected is None or expected == now.revision):
                spec = patched(now, patch)
                by.check_stored(spec)
                checks.checked(spec)
            changed = self._changed(partial(change, left == 0), checks, by)
            if changed is not None:
                return changed
        raise AssertionError("the last attempt changes it, or raises")

    def remove(self, id: str, *, expected: int | None = None, by: Permission = EVERYTHING) -> Subscription:
        """Remove a subscription; return its last state. Raises `NotFoundError`, `StaleRevisionError`."""
        check_argument(id, str, "id", _ID)
        return self._changed(lambda revision: revision.remove(id, expected), by=by)

    def pause(self, id: str, *, expected: int | None = None, by: Permission = EVERYTHING) -> Subscription:
        """Pause a subscription: it gets no messages. No change if it is paused. Raises as `remove` does."""
        check_argument(id, str, "id", _ID)
        return self._changed(lambda revision: revision.pause(id, expected), by=by)

    def resume(
        self, id: str, *, from_: From = "latest", expected: int | None = None, by: Permission = EVERYTHING
    ) -> Resumed:
        """Resume a paused subscription. No change if it is active.

        From ``last-processed`` the subscription also gets the missed messages of each query that can replay
        them; the result says which queries can. Raises as `remove` does.
        """
        check_argument(id, str, "id", _ID)

        def resume(revision: PendingRevision) -> Resumed:
            resumed = revision.resume(id, from_, expected)
            known = backfills(revision.connection) if from_ == "last-processed" else []
            return Resumed(resumed, known)

        return self._changed(resume, by=by)

    def apply(
        self,
        operations: Iterable[Operation],
        *,
        idempotency: Idempotency | None = None,
        max_expanded: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Applied:
        """Apply several changes as one revision, all or none.

        Raises `OperationError` naming the first invalid operation, with its own error as the cause;
        with `max_expanded`, also `TooCostlyError` if the selectors expand to more literals, see
        `Budget`.
        """
        check_iterable(operations, "operations", "a list of Operation")
        operations = list(operations)
        for operation in operations:
            check_argument(operation, Operation, "an operation", "an sr.Operation")
        specs = [operation.spec for operation in operations if operation.spec is not None]
        checks = Checks(self.limits, specs, Budget(max_expanded))

        def apply(revision: PendingRevision) -> Applied:
            before = answered(revision.connection, idempotency)
            if before is not None:
                return read_plain(Applied, before)
            done = []
            for index, operation in enumerate(operations):
                try:
                    done.append(revision.operate(operation))
                except SelectRouteError as error:
                    raise OperationError(index, error) from error
            newest = revision.number if revision.seq else revision.before
            answer = {"revision": newest, "subscriptions": [state.to_json() for state in done]}
            keep(revision.connection, idempotency, answer)
            return Applied(newest, done)

        return self._changed(apply, checks, by, len(operations))

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
        order: Order = "id",
    ) -> Page:
        """Return a page of subscriptions, filtered and in an order.

        The filters are topic filter, status, dialect, name and label (``name=value``); the orders are
        by id, by name, or the ``newest`` changes first. O(limit), whatever the size of the registry,
        by id or without filters.

        A cursor continues after its page, with the same filters and order: by id or name, a subscription that
        exists throughout is returned exactly once, despite concurrent changes. Raises `InvalidSpecError` for
        a limit that is not 1 to 1,000, an unknown order, and a cursor that is invalid or of another list.
        """
        asked = {"topic": topic, "status": status, "dialect": dialect, "name": name, "label": label}
        filters: Filters = {key: str(value) for key, value in asked.items() if value is not None}
        with self._store.reading() as connection:
            return page(connection, filters, limit, cursor, order)

    def ids_named(self, text: str, after: str = "", limit: int = 1_000) -> Sequence[str]:
        """Return the ids of subscriptions whose names have a text in them, in any case.

        They are the first ones after an id, in the order of the ids. O(subscriptions).
        """
        with self._store.reading() as connection:
            return ids_named(connection, text, after, limit)

    def import_(
        self,
        lines: Iterable[str | bytes],
        *,
        mode: Literal["add", "replace"] = "add",
        progress: Progress | None = None,
        max_rows: int = transfer.MAX_ROWS,
        max_expanded: int | None = None,
        by: Permission = EVERYTHING,
    ) -> Imported:
        """Register subscriptions given as lines of JSON, as one revision, all or none; bounded memory.

        A line has the fields of a specification, and optionally ``id`` and ``status``; other fields of a
        subscription are ignored, so that an export can be imported. ``add`` refuses an id that is taken;
        ``replace`` replaces its subscription, and pauses or resumes it (from ``latest``) as a separate change
        if the line gives another status. Raises `TooLargeError`, and `ImportLineError` naming the first
        invalid lines; taken ids and names are detected after all lines are read. With `max_expanded`, the
        cause is `TooCostlyError` if the selectors expand to more literals.
        """
        budget = Budget(max_expanded)
        with transfer.staged(lines, self.limits, max_rows, budget, progress, by) as stage:
            with self._transaction(bulk=stage.rows >= _BULK_ROWS) as transaction:
                revision = PendingRevision(transaction, Checks(self.limits), by)
                rows = transfer.import_stage(revision, stage, mode, progress)
                newest = revision.finish()
                transaction.finish()
            return Imported(rows, newest)

    def export(self, *, revision: int | None = None) -> Generator[str, None, None]:
        """Yield all subscriptions as lines of JSON without line ends, as of now or of a revision.

        A connection to the database is in use until the last line is read or the generator is closed.
        """
        with self._store.reading() as connection:
            yield from transfer.exported(connection, revision)

    def skip_revision(self) -> int:
        """Commit a revision without changes, such as for a rebuilt snapshot; return it."""
        return self._changed(lambda revision: revision.skip())

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
        """Return the changes after a revision, the oldest first, at most `limit` of them.

        The page ends at the end of a revision, unless the first revision alone has more changes;
        ``next_cursor`` continues after the page, even inside a revision. A `cursor` continues after its page
        and overrides `after`. With `ops` only changes of these kinds are returned. If there is no change,
        waits at most `wait_seconds` for one.

        Raises `DamagedError` if the log is damaged, `InvalidSpecError` for an invalid limit, cursor or kind.
        """
        if limit < 1:
            raise InvalidSpecError("/limit", "a limit must be 1 or more")
        position = change_log.LogPosition(after) if cursor is None else change_log.LogPosition.of(cursor)
        until = time.monotonic() + wait_seconds
        while True:
            with self._store.reading() as connection:
                changes = change_log.page(connection, position, limit, ops)
            if changes or not self.wait(max(after, changes.revision), until - time.monotonic()):
                return changes

    def history(
        self, id: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[Change], str | None]:
        """Return the newest changes of a subscription, newest first, and the cursor of those before them.

        The cursor is None if there are none. Removed subscriptions have a history, unknown ones an
        empty one. Raises `InvalidSpecError` for an invalid limit or cursor.
        """
        check_argument(id, str, "id", _ID)
        if limit < 1:
            raise InvalidSpecError("/limit", "a limit must be 1 or more")
        before = None if cursor is None else change_log.LogPosition.of(cursor)
        if not is_id(id):
            return [], None
        with self._store.reading() as connection:
            return change_log.history(connection, id, before, limit)

    def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is a revision after `after`, at most `seconds`; return whether there is one."""
        if self._newest <= after:
            self._note_newest(self.revision)
        return self.next_revision(after, seconds) > after

    def next_revision(self, after: int, seconds: float) -> int:
        """Wait until there is a revision after `after`, at most `seconds`; return the newest known one.
        Unlike `wait`, this does not look at the database if somebody just did.
        """
        until = time.monotonic() + seconds
        while self._newest <= after:
            left = until - time.monotonic()
            # A commit of this process notifies; those of other processes are polled for.
            if left <= 0 or time.monotonic() >= self._looked + _POLL_SECONDS:
                self._note_newest(self.revision)
            if left <= 0:
                break
            with self._committed:
                if self._newest <= after:
                    next_look = self._looked + _POLL_SECONDS - time.monotonic()
                    self._committed.wait(min(left, max(next_look, 0)))
        return self._newest

    def _note_newest(self, revision: int) -> None:
        """Wake those who wait for a revision."""
        with self._committed:
            self._looked = time.monotonic()
            if self._newest < revision:
                self._newest = revision
                self._committed.notify_all()

    def digest_at(self, revision: int) -> str:
        """Return the digest of the log up to a revision, in hex: it covers every change until then."""
        with self._store.reading() as connection:
            return change_log.digest_at(connection, change_log.LogPosition(revision)).hex()

    def pending(self, after: int) -> int:
        """Return the count of changes after a revision. O(count)."""
        with self._store.reading() as connection:
            return change_log.count_after(connection, after)

    def follow_changes(self, after: int, *, ops: Collection[Op] | None = None) -> Generator[Change]:
        """Yield all changes after a revision, up to the newest at the first call, in bounded memory.

        With `ops` only changes of these kinds.
        """
        with self._store.reading() as connection:
            yield from map(change_of, change_log.rows_after(connection, after, ops))

    def recent_changes(self, after: int) -> Latest | None:
        """Return what changed after a revision, if this process made all of the changes; None otherwise.

        The changes must still be in memory. Changes of other processes may follow them.
        """
        return self._recent.since(after)

    @contextmanager
    def bodies(self, status: str) -> Iterator[tuple[int, Iterator[str]]]:
        """Read the newest revision and all its subscriptions of a status, each as a line of JSON."""
        with self._store.reading() as connection:
            yield read_counter(connection).revision, transfer.bodies(connection, status)

    def as_of(self, revision: int, ids: Iterable[str]) -> Sequence[Subscription]:
        """Return these subscriptions as of a revision; those not registered then are left out."""
        with self._store.reading() as connection:
            return change_log.as_of(connection, revision, ids)

    @property
    def rows(self) -> int:
        """Count of rows that `verify` compares: changes and subscriptions."""
        with self._store.reading() as connection:
            row = read_counter(connection)
            return int(row.changes + row.subscriptions)

    def verify(self, progress: Progress | None = None) -> Verified:
        """Read the whole database and compare it with its digests. O(changes + subscriptions).

        Raises `DamagedError` naming the first damaged row.
        """
        with self._store.reading() as connection:
            return verify(connection, self._store.is_sqlite, progress)

    # ---- messages

    def explain(self, id: str, message: Message) -> dict[str, Any]:
        """Explain why a subscription gets a message or not, as ``/v1/messages:explain`` does.

        The delivery kernel judges, on the current subscription. Raises `NotFoundError`.
        """
        state = self.get(id)
        if state.status is SubscriptionStatus.PAUSED:
            return {"revision": state.revision, "id": state.id, "matched": False, "reason": "it is paused"}
        snapshot = index_of_one(state.id, state.selector, state.topic, state.dialect, state.seltype).freeze()
        return {"revision": state.revision, **explained(snapshot, 0, message, judged(snapshot, message))}

    def matcher(self, progress: Callable[[int], None] = lambda _: None) -> SnapshotMatcher:
        """Return a matcher of the active subscriptions, indexed in memory. O(subscriptions).

        Args:
            progress: called regularly with the count of subscriptions read.
        """
        with self.bodies(SubscriptionStatus.ACTIVE) as (revision, bodies):
            table = stored_subscriptions(bodies, progress)
        return SnapshotMatcher(Snapshot.of(rebuilt(table)), revision)

    def effective_of(
        self, id: str, *, wait_seconds: float = 0
    ) -> tuple[Subscription, Sequence[EffectiveFrom]]:
        """Return a subscription and, for each query, the first batch that used its current version.

        If there is none, waits at most `wait_seconds` for one. Raises `NotFoundError`.
        """
        until = time.monotonic() + wait_seconds
        while True:
            current = self.get(id)
            batches = self.streams.effective_from(current.revision)
            left = until - time.monotonic()
            if batches or left <= 0:
                return current, batches
            time.sleep(min(left, _LOOK_SECONDS))

    # ---- settings

    def setting(self, name: str) -> str | None:
        """Return a setting's value, None if it is not set."""
        with self._store.reading() as connection:
            return read_setting(connection, name)

    def set(self, name: str, value: str | None) -> None:
        """Set a setting, None unsets it: ``snapshots`` is the folder that revisions are published to."""
        if name != "snapshots":
            raise InvalidSpecError(f"/{name}", "the only setting is snapshots")
        with self._store.writing() as connection:
            write_setting(connection, name, value)

    @property
    def snapshots_folder(self) -> Location:
        """Folder that revisions are published to: the setting ``snapshots``, or next to a SQLite database.

        Raises `PublishError` if there is neither.
        """
        folder = self.setting("snapshots")
        if folder is not None:
            return Location.of(folder)
        if self._store.is_sqlite:
            return Location.of(self._store.path + ".snapshots")
        raise PublishError(
            "no folder is set to publish revisions to: name one (--snapshots), or set the registry's"
            " `snapshots`"
        )

    # ---- transactions

    def _changed(
        self,
        work: Callable[[PendingRevision], _T],
        checks: Checks | None = None,
        by: Permission = EVERYTHING,
        operations: int = 1,
    ) -> _T:
        unit = self.submit(work, checks, by, operations)
        try:
            return unit.result()
        finally:
            unit.cancel()  # of a caller that was interrupted before the commit began

    def submit(
        self,
        work: Callable[[PendingRevision], _T],
        checks: Checks | None = None,
        by: Permission = EVERYTHING,
        operations: int = 1,
    ) -> Future[_T]:
        """Have a change made, as one revision, in a transaction with those of other callers; see `Unit`."""
        unit = Unit(work, checks or Checks(self.limits), by, operations)
        self._commits.submit([unit])
        return unit

    def _commit(self, units: Sequence[Unit[Any]]) -> None:
        """Make changes in one transaction.

        If the database refuses what one of them writes, each is made in a transaction of its own, so
        that the others do not fail with it.
        """
        written = False
        try:
            with self._transaction() as transaction:
                transaction.look_up([name for unit in units for name in unit.checks.names])
                for unit in units:
                    unit.run(transaction)
                transaction.finish()
                written = True
        except Exception as error:
            is_of_data = type(error) is StoreError or not isinstance(error, StoreError)
            if written or len(units) == 1 or not is_of_data:
                raise
            for unit in units:
                try:
                    self._commit([unit])
                except Exception as failure:
                    unit.error = failure

    @contextmanager
    def _transaction(self, *, bulk: bool = False) -> Iterator[Transaction]:
        """Begin the write transaction of revisions, which the block finishes: durable when the block ends."""
        with self._store.writing(bulk=bulk) as connection:
            transaction = Transaction(connection)
            yield transaction
        self._recent.add(transaction)
        self._note_newest(transaction.head.revision)

    def _only(self, which: Any, missing: str) -> Subscription:
        with self._store.reading() as connection:
            row = connection.execute(subscriptions_with_state().where(which)).one_or_none()
            if row is None:
                raise NotFoundError(missing)
            return subscription_of(row)


def _first_rows(connection: Connection) -> None:
    """Write the first rows of a new registry."""
    insert_counter(connection)
    write_setting(connection, "id", secrets.token_hex(16))
    write_setting(connection, "format", FORMAT)
