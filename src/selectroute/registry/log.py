"""The change log, read: what happened behind a revision, and what was there at one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, select, tuple_

from selectroute.registry.changes import Change
from selectroute.registry.model import Subscription
from selectroute.registry.rows import chained_rows, change_of
from selectroute.registry.tables import change
from selectroute.store.digests import START
from selectroute.store.errors import DamagedError

BLOCK: Final = 5_000
"""Rows that are held at a time where all are read."""

_ORDER: Final = (change.c.revision, change.c.seq)


def changes(connection: Connection, after: int, limit: int) -> list[Change]:
    """Whole revisions behind `after`, about `limit` changes, at least one revision if there is one."""
    rows = connection.execute(_behind(after).limit(limit + 1)).all()
    if len(rows) > limit:
        cut = rows[-1].revision
        rows = [row for row in rows if row.revision != cut]
        if not rows:  # one revision of more than that
            rows = connection.execute(
                select(change).where(change.c.revision == cut).order_by(change.c.seq)
            ).all()
    if not rows:
        return []
    return [change_of(row) for row in chained_rows(rows, digest_at(connection, after))]


def rows_behind(connection: Connection, after: int) -> Iterator[Row[Any]]:
    """All rows of the log behind a revision, checked one by one and not kept. Raises `DamagedError`."""
    rows = connection.execution_options(yield_per=BLOCK).execute(_behind(after))
    return chained_rows(rows, digest_at(connection, after))


def count_behind(connection: Connection, after: int) -> int:
    """How many changes are behind a revision."""
    number: int = connection.execute(
        select(func.count()).select_from(change).where(change.c.revision > after)
    ).scalar_one()
    return number


def digest_at(connection: Connection, revision: int) -> bytes:
    """The digest of the last change up to a revision."""
    last = select(change.c.digest).where(change.c.revision <= revision)
    found = connection.execute(last.order_by(*(c.desc() for c in _ORDER)).limit(1)).scalar()
    return START if found is None else bytes(found)


def as_of(connection: Connection, revision: int, ids: Iterable[str]) -> list[Subscription]:
    """Those of these subscriptions that there were at a revision, as they were."""
    found = []
    for id in ids:
        newest = select(change).where(change.c.id == id, change.c.revision <= revision)
        row = connection.execute(newest.order_by(*(c.desc() for c in _ORDER)).limit(1)).one_or_none()
        if row is not None and row.op != "remove":
            one = change_of(checked_row(connection, row)).subscription
            if one is not None:
                found.append(one)
    return found


def checked_row(connection: Connection, row: Row[Any]) -> Row[Any]:
    """A row of the log, checked against the digest of the one before it. Raises `DamagedError`."""
    before = select(change.c.digest).where(tuple_(*_ORDER) < tuple_(row.revision, row.seq))
    found = connection.execute(before.order_by(*(c.desc() for c in _ORDER)).limit(1)).scalar()
    for one in chained_rows([row], START if found is None else bytes(found)):
        return one
    raise DamagedError("unreachable")  # chained_rows gives what it takes, or raises


def _behind(after: int) -> Select[Any]:
    return select(change).where(change.c.revision > after).order_by(*_ORDER)
