"""Revision in progress: changes are checked against the view, logged, and applied to the view."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, select, update

from selectroute.registry.changes import From, Op, Operation
from selectroute.registry.errors import (
    IdTakenError,
    InvalidSpecError,
    NameTakenError,
    NotFoundError,
    StaleRevisionError,
)
from selectroute.registry.log.header_rows import counter_seal, read_counter
from selectroute.registry.log.rows import (
    body_of,
    subscription_of,
    subscriptions_with_state,
    topic_key,
    view_row,
)
from selectroute.registry.log.tables import activity, change, counter, label, subscription
from selectroute.registry.model import Status, Subscription, SubscriptionSpec, registered, time_text
from selectroute.registry.permission import EVERYTHING, Permission
from selectroute.registry.specification import Checks, check_id, is_id
from selectroute.store.digests import chained

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32: no letter looks like a digit
# Built once: in a batch, building a statement takes longer than executing it.
_OF_ID: Final = subscriptions_with_state().where(subscription.c.id == bindparam("given_id"))
_OF_NAME: Final = select(subscription.c.id).where(
    subscription.c.name == bindparam("given_name"), subscription.c.id != bindparam("given_id")
)
_PAIRS: Final = [one + other for one in _ALPHABET for other in _ALPHABET]


def new_id() -> str:
    """Return a new id that sorts by its time of creation, in milliseconds; 80 of its bits are random."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join([_PAIRS[number >> shift & 1_023] for shift in range(120, -1, -10)])


def last_pauses(ids: list[str]) -> Select[Any]:
    """Return the query for the revision since which each of these subscriptions is paused: (id, revision). An
    imported subscription may be paused by its add.
    """
    paused = select(change.c.id, func.max(change.c.revision)).where(change.c.op.in_(("pause", "add")))
    return paused.where(change.c.id.in_(ids)).group_by(change.c.id)


class LogRow(NamedTuple):
    """Change to be logged; see the table ``change``."""

    op: Op
    id: str
    body: str | None
    resume_from: From | None = None
    paused_at: int | None = None


_COLUMNS: Final = ("revision", "seq", *LogRow._fields, "time", "digest")


class Revision:
    """Next revision, inside the transaction of `connection`; it exists after `finish` and the commit. Other
    writers wait for the transaction, so `checks` should know the specifications before.
    """

    def __init__(self, connection: Connection, checks: Checks, by: Permission = EVERYTHING) -> None:
        by.check_known(connection)
        self.connection = connection
        self.by = by
        self._checks = checks
        before = read_counter(connection, lock=True)
        self.before: int = before.revision
        self.number: int = before.revision + 1
        self.now = datetime.now(UTC)
        self._time = time_text(self.now)
        self.digest: bytes = before.digest
        self._changes: int = before.changes
        self._subscriptions: int = before.subscriptions
        self._skipped = False
        self.seq = 0
        # Added rows are buffered: inserting a thousand rows at once costs as much as ten single inserts.
        self._added: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._names: set[str] = set()
        self._labels: list[dict[str, str]] = []

    # ---- changes

    def add(self, id: str | None, spec: SubscriptionSpec) -> Subscription:
        """Register a subscription."""
        self.by.check_stored(spec)
        spec = self._checks.checked(spec)
        if id is not None and self._found(check_id(id)) is not None:
            raise IdTakenError(f"there is a subscription {id!r} already")
        one = self._made(new_id() if id is None else id, spec, Status.ACTIVE, self.now)
        if id is not None or spec.name is not None:  # a generated name is unique
            self._check_name(one)
        body = body_of(one)
        logged = self._next_row(LogRow("add", one.id, body))
        position = logged["revision"], logged["seq"]
        row = view_row(one.id, one.name, topic_key(one.topic), one.dialect, one.status, position, body)
        self._added[one.id] = (logged, row)
        self._names.add(one.name)
        self._labels += _label_rows(one)
        self._subscriptions += 1
        return one

    def replace(self, id: str, spec: SubscriptionSpec, expected: int | None) -> Subscription:
        """Replace a subscription's specification; a paused subscription stays paused."""
        self.by.check_stored(spec)
        spec = self._checks.checked(spec)
        old = self.get(id, expected)
        return self._put("replace", self._made(id, spec, old.status, old.created), old)

    def remove(self, id: str, expected: int | None) -> Subscription:
        """Remove a subscription; return its last state."""
        old = self.get(id, expected)
        self._log(LogRow("remove", id, None))
        self.connection.execute(delete(subscription).where(subscription.c.id == id))
        self.connection.execute(delete(activity).where(activity.c.id == id))
        self._label(old, None)
        self._subscriptions -= 1
        return old

    def pause(self, id: str, expected: int | None) -> Subscription:
        """Pause a subscription; no change if it is paused already."""
        old = self.get(id, expected)
        if old.status is Status.PAUSED:
            return old
        return self._put("pause", self._with_status(old, Status.PAUSED), old)

    def resume(self, id: str, from_: From, expected: int | None) -> Subscription:
        """Resume a subscription; no change if it is active."""
        if from_ not in ("latest", "last-processed"):
            raise InvalidSpecError("/from", "a subscription resumes from latest or last-processed")
        old = self.get(id, expected)
        if old.status is Status.ACTIVE:
            return old
        paused_at: int = self.connection.execute(last_pauses([id])).one()[1]
        return self._put("resume", self._with_status(old, Status.ACTIVE), old, from_, paused_at)

    def operate(self, operation: Operation) -> Subscription:
        """Apply one of several changes; return the subscription after the change, or before its removal."""
        op, id, spec, expected = operation.op, operation.id, operation.spec, operation.expected
        if op in ("add", "replace") and spec is None:
            raise InvalidSpecError("/subscription", f"{op} needs a subscription")
        if op == "add":
            return self.add(id, cast(SubscriptionSpec, spec))
        if id is None:
            raise InvalidSpecError("/id", f"{op} needs an id")
        if op == "replace":
            return self.replace(id, cast(SubscriptionSpec, spec), expected)
        if op == "remove":
            return self.remove(id, expected)
        if op == "pause":
            return self.pause(id, expected)
        if op == "resume":
            return self.resume(id, operation.resume_from, expected)
        raise InvalidSpecError("/op", "an operation must be add, replace, remove, pause or resume")

    def finish(self) -> int:
        """Write the revision's counter if anything changed; return the newest revision."""
        if not self.seq and not self._skipped:
            return self.before
        self._flush()
        self.connection.execute(
            update(counter).values(
                revision=self.number,
                digest=self.digest,
                changes=self._changes,
                subscriptions=self._subscriptions,
                seal=counter_seal(self.number, self.digest, self._changes, self._subscriptions),
            )
        )
        return self.number

    def skip(self) -> int:
        """Make this an empty revision: `finish` writes it without changes. Return its number."""
        self._skipped = True
        return self.number

    # ---- many at once

    def log_rows(self, rows: list[LogRow]) -> list[tuple[int, int]]:
        """Log many changes at once, and return their positions (revision, seq) in the log."""
        logged = [self._next_row(row) for row in rows]
        self.connection.execute(insert(change), logged)
        self._subscriptions += sum(row.op == "add" for row in rows)
        return [(row["revision"], row["seq"]) for row in logged]

    # ---- rows

    def get(self, id: str, expected: int | None = None) -> Subscription:
        """Return the current state of a subscription. Raises `StaleRevisionError`, and `NotFoundError`, also
        for one that the caller may not see.
        """
        old = self._found(id)
        if old is None or not self.by.sees(old.topic):
            raise NotFoundError(f"there is no subscription {id!r}")
        if expected is not None and expected != old.revision:
            raise StaleRevisionError(id, expected, old.revision)
        return old

    def _flush(self) -> None:
        """Insert the buffered rows of added subscriptions."""
        if self._added:
            self.connection.execute(insert(change), [logged for logged, _ in self._added.values()])
            self.connection.execute(insert(subscription), [row for _, row in self._added.values()])
        if self._labels:
            self.connection.execute(insert(label), self._labels)
        self._added, self._names, self._labels = {}, set(), []

    def _found(self, id: str) -> Subscription | None:
        if id in self._added:
            self._flush()
        if not is_id(id):
            return None
        row = self.connection.execute(_OF_ID, {"given_id": id}).one_or_none()
        return None if row is None else subscription_of(row)

    def _made(self, id: str, spec: SubscriptionSpec, status: Status, created: datetime) -> Subscription:
        """Return the subscription of a checked specification."""
        assert spec.seltype is not None
        return registered(spec, id, spec.seltype, status, self.number, created, self.now)

    def _with_status(self, old: Subscription, status: Status) -> Subscription:
        return replace(old, status=status, revision=self.number, modified=self.now)

    def _put(
        self,
        op: Op,
        one: Subscription,
        old: Subscription,
        resume_from: From | None = None,
        paused_at: int | None = None,
    ) -> Subscription:
        self._check_name(one)
        body = body_of(one)
        position = self._log(LogRow(op, one.id, body, resume_from, paused_at))
        row = view_row(one.id, one.name, topic_key(one.topic), one.dialect, one.status, position, body)
        self.connection.execute(update(subscription).where(subscription.c.id == one.id).values(row))
        self._label(old, one)
        return one

    def _check_name(self, one: Subscription) -> None:
        other = self.connection.execute(_OF_NAME, {"given_name": one.name, "given_id": one.id}).scalar()
        if other is not None or one.name in self._names:
            raise NameTakenError(f"the name {one.name!r} is taken")

    def _label(self, old: Subscription, one: Subscription | None) -> None:
        after = {} if one is None else one.labels
        if old.labels == after:
            return
        if old.labels:
            self.connection.execute(delete(label).where(label.c.id == old.id))
        if one is not None and after:
            self.connection.execute(insert(label), _label_rows(one))

    def _log(self, row: LogRow) -> tuple[int, int]:
        logged = self._next_row(row)
        self.connection.execute(insert(change), logged)
        return logged["revision"], logged["seq"]

    def _next_row(self, row: LogRow) -> dict[str, Any]:
        values = (self.number, self.seq, *row, self._time)
        self.digest = chained(self.digest, *values)
        self.seq += 1
        self._changes += 1
        return dict(zip(_COLUMNS, (*values, self.digest), strict=True))


def _label_rows(one: Subscription) -> list[dict[str, str]]:
    return [{"name": name, "value": value, "id": one.id} for name, value in one.labels.items()]
