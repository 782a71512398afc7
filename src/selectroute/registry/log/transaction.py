"""Write transaction of a registry: revisions one after the other, written together at its end.

::

    Transaction(connection) ── begin ──→ PendingRevision ── its changes ──→ finish │ undo
                 └── finish: rows of the log, the view and the counter, each in one statement

Revisions see each other's changes, which are in memory until the end. So a revision that fails is undone
without a savepoint, and a hundred small revisions cost a few statements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Connection, Select, bindparam, delete, func, select, update

from selectroute.registry.authorization import Permission
from selectroute.registry.log.rows import (
    ViewRow,
    batched,
    read_counter,
    subscription_of,
    subscriptions_with_state,
    topic_key,
    view_row,
    write_counter,
)
from selectroute.registry.log.tables import activity, change, creator, label, subscription
from selectroute.registry.model import From, Op, Subscription
from selectroute.store.engine import canonical, chained, insert_rows

# Built once: building a statement takes longer than executing it.
_OF_ID: Final = subscriptions_with_state().where(subscription.c.id == bindparam("given_id"))
_OF_NAME: Final = select(subscription.c.id).where(subscription.c.name == bindparam("given_name"))
_OF_NAMES: Final = select(subscription.c.name, subscription.c.id).where(
    subscription.c.name.in_(bindparam("given_names", expanding=True))
)
_UPDATE: Final = (
    update(subscription)
    .where(subscription.c.id == bindparam("of_id"))
    .values({column.name: bindparam(column.name) for column in subscription.columns if column.name != "id"})
)
_DELETE: Final = delete(subscription).where(subscription.c.id == bindparam("of_id"))
_DROP_CREATORS: Final = delete(creator).where(creator.c.id.in_(bindparam("given_ids", expanding=True)))
_DELETE_ACTIVITY: Final = delete(activity).where(activity.c.id == bindparam("of_id"))
_DELETE_LABELS: Final = delete(label).where(label.c.id == bindparam("of_id"))


def last_pauses(ids: list[str]) -> Select[Any]:
    """Return the query for the revision since which each of these subscriptions is paused: (id, revision).

    An imported subscription may be paused by its add.
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


class LoggedRow(NamedTuple):
    """Row of the table ``change``: a change and its place in the log."""

    revision: int
    seq: int
    op: Op
    id: str
    body: str | None
    resume_from: From | None
    paused_at: int | None
    time: str
    actor: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class LogHead:
    """Newest revision of the log, the digest up to it, and the counts of changes and of subscriptions."""

    revision: int
    digest: bytes
    changes: int
    subscriptions: int


class _State(NamedTuple):
    """Subscription as of a change, and where the log has it."""

    subscription: Subscription
    body: str
    position: tuple[int, int]

    def row(self) -> ViewRow:
        current = self.subscription
        return view_row(
            current.id,
            current.name,
            topic_key(current.topic),
            current.dialect,
            current.status,
            self.position,
            self.body,
        )


class Transaction:
    """Revisions of one write transaction. Reads and locks the counter: other writers wait."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        row = read_counter(connection, lock=True)
        self.now = datetime.now(UTC)
        """Time of all its revisions: they become visible together."""
        self.before: Final = LogHead(row.revision, row.digest, row.changes, row.subscriptions)
        self.head = self.before
        """Newest revision that was taken."""
        self._rows: list[LoggedRow] = []
        self._stored: dict[str, Subscription | None] = {}
        """Subscriptions as the database has them, of the ids that were looked at."""
        self._now: dict[str, _State | None] = {}
        """Subscriptions that were changed; None if removed."""
        self._names: dict[str, str] = {}
        """Names of `_now`, with their ids."""
        self._owners: dict[str, str | None] = {}
        """Names that were looked up, and the ids of their subscriptions in the database."""
        self._removed: dict[str, bool] = {}
        """Ids of subscriptions that were removed, even if they exist again."""
        self._replaced: list[_State] = []
        """States, in their order, of subscriptions that the database has."""
        self._paused_at: dict[str, int] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        """Entries of the dictionaries above before the revision in progress changed them."""
        self._marks = (0, 0)
        self._known_tokens: set[str] = set()

    @property
    def changed(self) -> dict[str, Subscription | None] | None:
        """Last state of each changed subscription, None if it is removed.

        None in all if not all changes went through `log`.
        """
        if self.head.changes - self.before.changes != len(self._rows):
            return None
        return {id: None if state is None else state.subscription for id, state in self._now.items()}

    @property
    def characters(self) -> int:
        """Size of the changed subscriptions as JSON."""
        return sum(len(state.body) for state in self._now.values() if state is not None)

    def check_known(self, by: Permission) -> None:
        """Check that a caller's token is not revoked. Raises `AuthError`."""
        if by.token is not None and by.token not in self._known_tokens:
            by.check_known(self.connection)
            self._known_tokens.add(by.token)

    def count_adds(self, by: Permission, ids: list[str]) -> None:
        """Count new subscriptions of a caller's token. Raises `ForbiddenError` beyond its quota."""
        by.check_quota(self.connection, len(ids), list(self._now))
        for some in batched(ids):
            self.connection.execute(_DROP_CREATORS, {"given_ids": some})
        insert_rows(self.connection, creator, [(id, cast(str, by.token)) for id in ids])

    # ---- revisions

    def begin(self) -> None:
        """Begin a revision: `undo` returns to this state."""
        self._undo.clear()
        self._marks = len(self._rows), len(self._replaced)

    def undo(self) -> None:
        """Undo all changes since `begin`."""
        for entries, key, before in reversed(self._undo):
            if before is _ABSENT:
                entries.pop(key, None)
            else:
                entries[key] = before
        self._undo.clear()
        rows, replaced = self._marks
        del self._rows[rows:], self._replaced[replaced:]

    # ---- state

    def find(self, id: str) -> Subscription | None:
        """Return the current state of a subscription, None if there is none."""
        if id in self._now:
            state = self._now[id]
            return None if state is None else state.subscription
        if id not in self._stored:
            row = self.connection.execute(_OF_ID, {"given_id": id}).one_or_none()
            self._stored[id] = None if row is None else subscription_of(row)
        return self._stored[id]

    def look_up(self, names: list[str]) -> None:
        """Look the owners of some names up together, which takes less time than one by one."""
        if len(names) > 1:
            for some in batched(names):
                owners = {name: id for name, id in self.connection.execute(_OF_NAMES, {"given_names": some})}
                self._owners.update((name, owners.get(name)) for name in some)

    def owner_of(self, name: str) -> str | None:
        """Return the id of the subscription of a name, None if the name is free."""
        if name in self._names:
            return self._names[name]
        if name not in self._owners:
            self._owners[name] = self.connection.execute(_OF_NAME, {"given_name": name}).scalar()
        owner = self._owners[name]
        return None if owner is None or owner in self._now else owner

    def paused_at(self, id: str) -> int:
        """Return the revision since which a paused subscription is paused."""
        if id not in self._paused_at:
            return int(self.connection.execute(last_pauses([id])).one()[1])
        return self._paused_at[id]

    # ---- changes

    def add_new(self, id: str) -> None:
        """Note that the database has no subscription of this id, which was just generated."""
        self._stored[id] = None

    def log(self, row: LogRow, after: Subscription | None, logged: LoggedRow) -> None:
        """Record a change: its row of the log, and the subscription after it; None if it is removed."""
        self._rows.append(logged)
        id, before = row.id, self.find(row.id)
        if before is not None and self._names.get(before.name) == id:
            self._set(self._names, before.name, _ABSENT)
        if after is None:
            self._set(self._now, id, None)
            self._set(self._removed, id, True)
            return
        assert row.body is not None
        state = _State(after, row.body, (logged.revision, logged.seq))
        self._set(self._now, id, state)
        self._set(self._names, after.name, id)
        if row.op in ("pause", "add"):
            self._set(self._paused_at, id, logged.revision)
        if self._stored[id] is not None and id not in self._removed:
            self._replaced.append(state)

    def _set(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((entries, key, entries.get(key, _ABSENT)))
        if value is _ABSENT:
            entries.pop(key, None)
        else:
            entries[key] = value

    # ---- end

    def finish(self) -> None:
        """Write all revisions that were taken."""
        if self.head == self.before:
            return
        execute = self.connection.execute
        insert_rows(self.connection, change, self._rows)
        # Names are unique: first come the rows that give theirs up, in their order.
        if removed := [{"of_id": id} for id in self._removed if self._stored[id] is not None]:
            execute(_DELETE, removed)
            execute(_DELETE_ACTIVITY, removed)
        if self._replaced:
            rows = [state.row() for state in self._replaced]
            execute(_UPDATE, [{**row._asdict(), "of_id": row.id} for row in rows])
        added = [state.row() for state in self._now.values() if state is not None and self._is_new(state)]
        insert_rows(self.connection, subscription, added)
        self._write_labels()
        head = self.head
        write_counter(self.connection, head.revision, head.digest, head.changes, head.subscriptions)

    def _is_new(self, state: _State) -> bool:
        id = state.subscription.id
        return self._stored[id] is None or id in self._removed

    def _write_labels(self) -> None:
        deleted: list[dict[str, str]] = []
        added: list[tuple[str, str, str]] = []
        for id, state in self._now.items():
            stored = self._stored[id]
            before = {} if stored is None else stored.labels
            after = {} if state is None else state.subscription.labels
            if before != after:
                if before:
                    deleted.append({"of_id": id})
                added += [(name, value, id) for name, value in after.items()]
        if deleted:
            self.connection.execute(_DELETE_LABELS, deleted)
        insert_rows(self.connection, label, added)


_ABSENT: Final = object()


def chained_row(digest: bytes, revision: int, seq: int, row: LogRow, time: str, actor: str) -> LoggedRow:
    """Return the columns of a change in the log, with the digest that follows `digest`."""
    values = revision, seq, *row, time, actor
    return LoggedRow(*values, chained(digest, *values))


def chained_adds(
    digest: bytes, revision: int, first: int, added: Iterable[tuple[str, str]], time: str, actor: str
) -> tuple[list[Any], bytes]:
    """Return the rows of many adds, as one list of values, and the digest of the last one.

    An add has an id and a body; the changes are numbered from `first` on. The list has ``seq``, ``id``,
    ``body`` and ``digest`` of each row. The rows are those of `chained_row`, made in a third of the time.
    """
    before, op, after = (
        canonical(*fields).decode() for fields in ((revision,), ("add",), (None, None, time, actor))
    )
    values: list[Any] = []
    for seq, (id, body) in enumerate(added, first):
        number = str(seq)
        data = f"{before}{len(number)}:{number}{op}{len(id)}:{id}{len(body)}:{body}{after}"
        digest = hashlib.sha256(digest + data.encode(errors="surrogatepass")).digest()
        values += (seq, id, body, digest)
    return values, digest
