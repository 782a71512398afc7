"""Revision in progress: changes are checked against the transaction's state, and recorded in it.

The response of a request with an idempotency key is stored for a day, in the transaction of its change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import Connection, delete, insert, select

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import SubscriptionSpec, SubscriptionStatus, check_id, is_id
from selectroute.registry.authorization import EVERYTHING, Permission, local_user
from selectroute.registry.errors import (
    IdempotencyConflictError,
    IdTakenError,
    NameTakenError,
    NotFoundError,
    StaleRevisionError,
)
from selectroute.registry.log.rows import body_of
from selectroute.registry.log.tables import change, request, row_seal
from selectroute.registry.log.transaction import (
    LoggedRow,
    LogHead,
    LogRow,
    Transaction,
    chained_adds,
    chained_row,
)
from selectroute.registry.model import From, Idempotency, Op, Operation, Subscription, new_id, time_text
from selectroute.registry.specification import Checks
from selectroute.store.engine import insert_rows, insert_values, row_digest
from selectroute.store.errors import DamagedError

KEPT: Final = timedelta(hours=24)


def answered(connection: Connection, asked: Idempotency | None) -> Any:
    """Return the stored response to the same request; None if there is none.

    Raises `IdempotencyConflictError`.
    """
    if asked is None:
        return None
    row = connection.execute(
        select(request).where(request.c.subject == asked.subject, request.c.key == asked.key)
    ).one_or_none()
    if row is None or row.time < time_text(datetime.now(UTC) - KEPT):
        return None
    if row.seal != row_seal(row):
        raise DamagedError("the table request is damaged in one of its rows")
    if row.digest != asked.request:
        raise IdempotencyConflictError("this Idempotency-Key was used with a different request")
    return json.loads(row.answer)


def keep(connection: Connection, asked: Idempotency | None, answer: Any) -> None:
    """Store a response, and delete those that are too old."""
    if asked is None:
        return
    now = datetime.now(UTC)
    connection.execute(delete(request).where(request.c.time < time_text(now - KEPT)))
    row = {
        "subject": asked.subject,
        "key": asked.key,
        "digest": asked.request,
        "answer": json.dumps(answer, ensure_ascii=False, separators=(",", ":")),
        "time": time_text(now),
    }
    connection.execute(insert(request), {**row, "seal": row_digest(*row.values())})


class PendingRevision:
    """Next revision of a transaction; it exists after `finish` and the commit.

    Other writers wait for the transaction, so `checks` should know the specifications before.
    """

    def __init__(self, transaction: Transaction, checks: Checks, by: Permission = EVERYTHING) -> None:
        transaction.check_known(by)
        self.by = by
        self._transaction = transaction
        self._checks = checks
        before = transaction.head
        self.before: int = before.revision
        self.number: int = before.revision + 1
        self.now = transaction.now
        self._time = time_text(self.now)
        self._actor = by.actor or local_user()
        self._digest: bytes = before.digest
        self._changes: int = before.changes
        self._subscriptions: int = before.subscriptions
        self._skipped = False
        self._added: list[str] = []
        self.seq = 0

    @property
    def connection(self) -> Connection:
        """Connection of the transaction, on which the changes of this revision may not be visible yet."""
        return self._transaction.connection

    # ---- changes

    def add(self, id: str | None, spec: SubscriptionSpec) -> Subscription:
        """Register a subscription."""
        self.by.check_stored(spec)
        spec = self._checks.checked(spec)
        if id is not None and self._stored(check_id(id)) is not None:
            raise IdTakenError(f"there is a subscription {id!r} already")
        subscription = self._made(new_id() if id is None else id, spec, SubscriptionStatus.ACTIVE, self.now)
        if id is None:
            self._transaction.add_new(subscription.id)
        if id is not None or spec.name is not None:  # a generated name is unique
            self._check_name(subscription)
        self._log(LogRow("add", subscription.id, body_of(subscription)), subscription)
        self._note_adds([subscription.id])
        return subscription

    def register(
        self, id: str | None, spec: SubscriptionSpec, idempotency: Idempotency | None
    ) -> Subscription:
        """Register a subscription, or return the stored answer to the same request."""
        before = answered(self.connection, idempotency)
        if before is not None:
            return Subscription.from_json(before)
        made = self.add(id, spec)
        keep(self.connection, idempotency, made.to_json())
        return made

    def replace(self, id: str, spec: SubscriptionSpec, expected: int | None) -> Subscription:
        """Replace a subscription's specification; a paused subscription stays paused."""
        self.by.check_stored(spec)
        spec = self._checks.checked(spec)
        old = self.get(id, expected)
        return self._put("replace", self._made(id, spec, old.status, old.created))

    def remove(self, id: str, expected: int | None) -> Subscription:
        """Remove a subscription; return its last state."""
        old = self.get(id, expected)
        self._log(LogRow("remove", id, None), None)
        self._subscriptions -= 1
        return old

    def pause(self, id: str, expected: int | None) -> Subscription:
        """Pause a subscription; no change if it is paused already."""
        old = self.get(id, expected)
        if old.status is SubscriptionStatus.PAUSED:
            return old
        return self._put("pause", self._with_status(old, SubscriptionStatus.PAUSED))

    def resume(self, id: str, from_: From, expected: int | None) -> Subscription:
        """Resume a subscription; no change if it is active."""
        if from_ not in ("latest", "last-processed"):
            raise InvalidSpecError("/from", "a subscription resumes from latest or last-processed")
        old = self.get(id, expected)
        if old.status is SubscriptionStatus.ACTIVE:
            return old
        paused_at = self._transaction.paused_at(id)
        return self._put("resume", self._with_status(old, SubscriptionStatus.ACTIVE), from_, paused_at)

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
        """Take this revision into the transaction if anything changed; return the newest revision."""
        if not self.seq and not self._skipped:
            return self.before
        if self._added and self.by.quota is not None:
            self._transaction.count_adds(self.by, self._added)
        self._transaction.head = LogHead(self.number, self._digest, self._changes, self._subscriptions)
        return self.number

    def skip(self) -> int:
        """Make this an empty revision: `finish` takes it without changes. Return its number."""
        self._skipped = True
        return self.number

    # ---- many at once

    @property
    def logged(self) -> int:
        """Count of all changes in the log, those of this revision among them."""
        return self._changes

    def log_rows(self, rows: list[LogRow]) -> list[tuple[int, int]]:
        """Write many changes to the log at once, and return their positions (revision, seq) in it.

        The caller changes the view. Only for a transaction with no other revision.
        """
        logged = [self._next_row(row) for row in rows]
        insert_rows(self.connection, change, logged)
        self._note_adds([row.id for row in rows if row.op == "add"])
        return [(row.revision, row.seq) for row in logged]

    def chain_adds(self, added: Sequence[tuple[str, str]]) -> list[Any]:
        """Take many adds into this revision, id and body of each; return the values of their rows.

        `write_adds` writes the rows to the log. Otherwise as `log_rows`.
        """
        values, self._digest = chained_adds(
            self._digest, self.number, self.seq, added, self._time, self._actor
        )
        self.seq += len(added)
        self._changes += len(added)
        self._note_adds([id for id, _ in added])
        return values

    def write_adds(self, values: Sequence[Any]) -> None:
        """Write the rows of `chain_adds` to the log."""
        same: dict[str, str | int | None] = {"revision": self.number, "op": "add"}
        same |= {"resume_from": None, "paused_at": None, "time": self._time, "actor": self._actor}
        insert_values(self.connection, change, values, same)

    # ---- rows

    def _note_adds(self, ids: list[str]) -> None:
        self._subscriptions += len(ids)
        if self.by.quota is not None:
            self._added += ids

    def get(self, id: str, expected: int | None = None) -> Subscription:
        """Return the current state of a subscription.

        Raises `StaleRevisionError`, and `NotFoundError`, also for one that the caller may not see.
        """
        old = self._stored(id)
        if old is None or not self.by.sees(old.topic):
            raise NotFoundError(f"there is no subscription {id!r}")
        if expected is not None and expected != old.revision:
            raise StaleRevisionError(id, expected, old.revision)
        return old

    def _stored(self, id: str) -> Subscription | None:
        return self._transaction.find(id) if is_id(id) else None

    def _made(
        self, id: str, spec: SubscriptionSpec, status: SubscriptionStatus, created: datetime
    ) -> Subscription:
        """Return the subscription of a checked specification."""
        assert spec.seltype is not None
        return Subscription(
            id=id,
            name=id if spec.name is None else spec.name,
            topic=spec.topic,
            selector=spec.selector,
            dialect=spec.dialect,
            seltype=spec.seltype,
            destination=spec.destination,
            status=status,
            labels=dict(sorted(spec.labels.items())),
            revision=self.number,
            created=created,
            modified=self.now,
        )

    def _with_status(self, old: Subscription, status: SubscriptionStatus) -> Subscription:
        return replace(old, status=status, revision=self.number, modified=self.now)

    def _put(
        self,
        op: Op,
        subscription: Subscription,
        resume_from: From | None = None,
        paused_at: int | None = None,
    ) -> Subscription:
        self._check_name(subscription)
        self._log(LogRow(op, subscription.id, body_of(subscription), resume_from, paused_at), subscription)
        return subscription

    def _check_name(self, subscription: Subscription) -> None:
        if self._transaction.owner_of(subscription.name) not in (None, subscription.id):
            raise NameTakenError(f"the name {subscription.name!r} is taken")

    def _log(self, row: LogRow, subscription: Subscription | None) -> None:
        self._transaction.log(row, subscription, self._next_row(row))

    def _next_row(self, row: LogRow) -> LoggedRow:
        logged = chained_row(self._digest, self.number, self.seq, row, self._time, self._actor)
        self._digest = logged.digest
        self.seq += 1
        self._changes += 1
        return logged
