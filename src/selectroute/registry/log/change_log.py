"""Reads of the change log: the changes after a revision, subscriptions as of a revision, and verification.

The newest changes that this process committed are in memory, and a publisher in the process takes them from
there: reading them from the log again, with the check of its digests, took a third of a publication. A
cursor is the start of the next page, as text that is opaque to clients. The log is verified by its chain of
digests, the view by the log.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    exists,
    func,
    literal_column,
    select,
    text,
    tuple_,
)

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.log.rows import (
    chained_rows,
    change_of,
    checked_body,
    read_counter,
    subscriptions_with_state,
)
from selectroute.registry.log.tables import (
    EVENTS,
    IS_EVENT,
    change,
    label,
    request,
    row_seal,
    setting,
    subscription,
    token,
)
from selectroute.registry.log.transaction import LogHead, Transaction
from selectroute.registry.model import OPS, Change, ChangePage, Op, Progress, Subscription, Verified
from selectroute.selector.sentences import counted
from selectroute.store.engine import START, row_digest
from selectroute.store.errors import DamagedError

MOST_CHARACTERS: Final = 8 << 20
"""Maximum characters of the subscriptions that are kept, as JSON."""

MOST_TRANSACTIONS: Final = 4_096


class Latest(NamedTuple):
    """Changes of some successive transactions.

    They are the revision of the last one, the digest of the log up to it, and the last state of each
    changed subscription, None if it is removed.
    """

    revision: int
    digest: str
    changed: Mapping[str, Subscription | None]


class _Committed(NamedTuple):
    before: LogHead
    after: LogHead
    changed: Mapping[str, Subscription | None]
    characters: int


class RecentChanges:
    """Newest transactions of this process, without a gap. Safe for use by threads.

    invariant: each transaction begins where the one before it ended. One that another process committed in
    between, or that is too large to be kept, removes all before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed: deque[_Committed] = deque()
        self._characters = 0

    def add(self, transaction: Transaction) -> None:
        """Take a transaction that was just committed."""
        before, after = transaction.before, transaction.head
        if before == after:
            return
        changed = transaction.changed
        size = transaction.characters
        with self._lock:
            if changed is None or size > MOST_CHARACTERS:
                self._clear()
                return
            if self._committed and self._committed[-1].after != before:
                self._clear()
            self._committed.append(_Committed(before, after, changed, size))
            self._characters += size
            while self._characters > MOST_CHARACTERS or len(self._committed) > MOST_TRANSACTIONS:
                self._characters -= self._committed.popleft().characters

    def since(self, revision: int) -> Latest | None:
        """Return what changed after a revision; None if that is not known here, or nothing did."""
        with self._lock:
            newest_first: list[_Committed] = []
            for committed in reversed(self._committed):
                if committed.before.revision < revision:
                    break
                newest_first.append(committed)
        if not newest_first or newest_first[-1].before.revision != revision:
            return None
        changed = {
            id: state for committed in reversed(newest_first) for id, state in committed.changed.items()
        }
        return Latest(newest_first[0].after.revision, newest_first[0].after.digest.hex(), changed)

    def _clear(self) -> None:
        self._committed.clear()
        self._characters = 0


_VERSION: Final = "1"


def cursor_of(*parts: str) -> str:
    """Return a cursor of letters, digits, ``-`` and ``_``; only the last part may have dots."""
    return base64.urlsafe_b64encode(".".join((_VERSION, *parts)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, parts: int) -> list[str]:
    """Return the parts of a cursor. Raises `InvalidSpecError` for text that is not a cursor."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        version, *values = base64.urlsafe_b64decode(padded.encode()).decode().split(".", parts)
    except (ValueError, UnicodeError):
        raise no_cursor() from None
    if version != _VERSION or len(values) != parts:
        raise no_cursor()
    return values


def no_cursor() -> InvalidSpecError:
    """Return the error of a cursor that this registry did not issue."""
    return InvalidSpecError("/cursor", "not a cursor of this registry; begin again without one")


BLOCK: Final = 5_000
"""Rows in memory at a time when all are read."""

MAX_CHARACTERS: Final = 8 << 20
"""Characters of subscriptions in one page of changes, unless the first change alone has more."""

_READ: Final = 100
_LAST_SEQ: Final = 2**31 - 1
_LAST_REVISION: Final = 2**63 - 1

_ORDER: Final = (change.c.revision, change.c.seq)


class LogPosition(NamedTuple):
    """Position in the log: after this change; by default, after all changes of its revision."""

    revision: int
    seq: int = _LAST_SEQ

    @property
    def cursor(self) -> str:
        """Position as a cursor."""
        return cursor_of(str(self.revision), str(self.seq))

    @classmethod
    def of(cls, cursor: str) -> LogPosition:
        """Invert `cursor`. Raises `InvalidSpecError`."""
        revision, seq = read_cursor(cursor, 2)
        if not (revision + seq).isascii() or not (revision + seq).isdigit():
            raise no_cursor()
        position = cls(int(revision[:20] or -1), int(seq[:20] or -1))
        if not 0 <= position.revision <= _LAST_REVISION or not 0 <= position.seq <= _LAST_SEQ:
            raise no_cursor()
        return position


def page(
    connection: Connection, position: LogPosition, limit: int, ops: Collection[Op] | None = None
) -> ChangePage:
    """Return at most `limit` changes after a position, of these kinds; see `Registry.changes`."""
    newest: int = read_counter(connection).revision
    rows: list[Row[Any]] = []
    following: Row[Any] | None = None
    size = 0
    result = connection.execute(
        _after(position, ops).limit(limit + 1), execution_options={"yield_per": _READ}
    )
    with closing(result):
        for row in result:
            size += len(row.body) if isinstance(row.body, str) else 0  # not checked yet
            if len(rows) == limit or (rows and size > MAX_CHARACTERS):
                following = row
                break
            rows.append(row)
    if following is not None:
        # A page ends at the end of a revision if possible.
        rows = [row for row in rows if row.revision != following.revision] or rows
    if ops is None:
        checked = list(chained_rows(rows, digest_at(connection, position)))
    else:
        checked = [checked_row(connection, row) for row in rows]
    if following is None:
        return ChangePage(map(change_of, checked), None, newest, newest)
    last = LogPosition(rows[-1].revision, rows[-1].seq)
    complete = last.revision - (following.revision == last.revision)
    return ChangePage(map(change_of, checked), last.cursor, newest, complete)


def history(
    connection: Connection, id: str, before: LogPosition | None, limit: int
) -> tuple[list[Change], str | None]:
    """Return the changes of a subscription before a position, newest first, and the cursor of the next ones.

    The cursor is None if these are all. Raises `DamagedError`.
    """
    statement = select(change).where(change.c.id == id)
    if before is not None:
        statement = statement.where(tuple_(*_ORDER) < tuple_(*before))
    newest = statement.order_by(*(c.desc() for c in _ORDER)).limit(limit + 1)
    rows = connection.execute(newest).all()
    changes = [change_of(checked_row(connection, row)) for row in rows[:limit]]
    if len(rows) <= limit:
        return changes, None
    return changes, LogPosition(rows[limit - 1].revision, rows[limit - 1].seq).cursor


def rows_after(connection: Connection, after: int, ops: Collection[Op] | None = None) -> Iterator[Row[Any]]:
    """Yield all rows of the log after a revision, of these kinds, checked, in bounded memory.

    Raises `DamagedError`.
    """
    position = LogPosition(after)
    rows = connection.execution_options(yield_per=BLOCK).execute(_after(position, ops))
    if ops is None:
        return chained_rows(rows, digest_at(connection, position))
    return (checked_row(connection, row) for row in rows)


def count_after(connection: Connection, after: int) -> int:
    """Return the count of changes after a revision."""
    number: int = connection.execute(
        select(func.count()).select_from(change).where(change.c.revision > after)
    ).scalar_one()
    return number


def digest_at(connection: Connection, position: LogPosition) -> bytes:
    """Return the digest of the last change up to a position."""
    return _last_digest(connection, tuple_(*_ORDER) <= tuple_(*position))


def as_of(connection: Connection, revision: int, ids: Iterable[str]) -> list[Subscription]:
    """Return these subscriptions as of a revision; those not registered then are left out."""
    subscriptions = []
    for id in ids:
        newest = select(change).where(change.c.id == id, change.c.revision <= revision)
        row = connection.execute(newest.order_by(*(c.desc() for c in _ORDER)).limit(1)).one_or_none()
        if row is not None and row.op != "remove":
            state = change_of(checked_row(connection, row)).subscription
            if state is not None:
                subscriptions.append(state)
    return subscriptions


def checked_row(connection: Connection, row: Row[Any]) -> Row[Any]:
    """Return a row of the log, checked against the digest of the previous row. Raises `DamagedError`."""
    before = tuple_(*_ORDER) < tuple_(row.revision, row.seq)
    (checked,) = chained_rows([row], _last_digest(connection, before))
    return checked


def _last_digest(connection: Connection, which: ColumnElement[bool]) -> bytes:
    newest = select(change.c.digest).where(which).order_by(*(c.desc() for c in _ORDER))
    digest = connection.execute(newest.limit(1)).scalar()
    return START if digest is None else bytes(digest)


def _after(position: LogPosition, ops: Collection[Op] | None) -> Select[Any]:
    statement = select(change).where(
        change.c.revision >= position.revision, tuple_(*_ORDER) > tuple_(*position)
    )
    if ops is not None:
        if not ops or not set(ops) <= set(OPS):
            raise InvalidSpecError("/op", f"the operations of a change are {', '.join(OPS)}")
        statement = statement.where(change.c.op.in_(sorted(ops)))
        if set(ops) <= set(EVENTS):
            statement = statement.where(text(IS_EVENT))  # literally as in the partial index
    return statement.order_by(*_ORDER)


def verify(connection: Connection, is_sqlite: bool, progress: Progress | None) -> Verified:
    """Verify a registry; see `Registry.verify`."""
    newest = read_counter(connection)
    total = newest.changes + newest.subscriptions
    report = progress or (lambda _done, _total: None)
    report(0, total)
    if is_sqlite:
        _check_pages(connection)
    live = _check_log(connection, newest, report, total)
    if live != newest.subscriptions:
        raise DamagedError(
            f"the log has {counted(live, 'subscription')}, the table counter {newest.subscriptions:,}"
        )
    _check_view(connection, newest, report, total)
    for table in (setting, request, token):
        for row in _stream(connection, select(table)):
            if row.seal != row_seal(row):
                raise DamagedError(f"the table {table.name} is damaged in the row of {row[0]!r}")
    report(total, total)
    return Verified(newest.revision, newest.changes, newest.subscriptions, newest.digest.hex())


def _check_pages(connection: Connection) -> None:
    """Run SQLite's integrity check: the structure of its pages, and each index against its table."""
    for (line,) in connection.execute(text("PRAGMA integrity_check(1)")):
        if line != "ok":
            raise DamagedError(f"the database file is damaged: {str(line).splitlines()[0]}")


def _check_log(connection: Connection, newest: Any, report: Progress, total: int) -> int:
    """Check the whole log; return the count of subscriptions that it leaves registered."""
    count = live = revision = 0
    digest = START
    for row in rows_after(connection, 0):
        count += 1
        live += (row.op == "add") - (row.op == "remove")
        digest, revision = row.digest, row.revision
        if count % BLOCK == 0:
            report(count, total)
    if digest != newest.digest or count != newest.changes or revision > newest.revision:
        raise DamagedError("the last row of the table change does not match the table counter")
    return live


def _check_view(connection: Connection, newest: Any, report: Progress, total: int) -> None:
    """Check that the view has each subscription, in its last logged state, and its labels."""
    count = labels = 0
    for row in _stream(connection, subscriptions_with_state().order_by(subscription.c.id)):
        count += 1
        body = checked_body(row)
        if '"labels":{}' not in body:
            for name, value in json.loads(body)["labels"].items():
                labels ^= _label_number(name, value, row.id)
        if count % BLOCK == 0:
            report(newest.changes + count, total)
    if count != newest.subscriptions:
        raise DamagedError(f"the table subscription has {counted(count, 'row')} of {newest.subscriptions:,}")
    for row in _stream(connection, select(label)):
        labels ^= _label_number(row.name, row.value, row.id)
    if labels:
        raise DamagedError("the table label does not match the labels of the subscriptions")
    # The view has as many rows as the log has subscriptions, each with a logged state: if no row is outdated,
    # the view is complete.
    later = exists(literal_column("1")).where(
        change.c.id == subscription.c.id,
        tuple_(change.c.revision, change.c.seq) > tuple_(subscription.c.revision, subscription.c.seq),
    )
    outdated = connection.execute(select(func.min(subscription.c.id)).where(later)).scalar()
    if outdated is not None:
        raise DamagedError(f"the table subscription is older than the log in the row of {outdated!r}")


def _label_number(name: str, value: str, id: str) -> int:
    """Return a label as a number of 256 bits; XORed over the table and the bodies, equal ones cancel out."""
    return int.from_bytes(row_digest(name, value, id))


def _stream(connection: Connection, statement: Any) -> Any:
    return connection.execution_options(yield_per=BLOCK).execute(statement)
