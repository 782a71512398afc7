"""Reports of queries: their existence, whether they can replay, and which batch used which revision."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, update

from selectroute.registry.changes import Backfill, EffectiveFrom
from selectroute.registry.log.tables import batch, query


def note_query(connection: Connection, name: str, source: str, can_replay: bool, reason: str | None) -> None:
    """Insert a query, or update its row."""
    row = {"query": name, "source": source, "can_replay": can_replay, "reason": reason}
    known = connection.execute(select(query).where(query.c.query == name)).one_or_none()
    if known is None:
        connection.execute(insert(query), row)
    elif known._asdict() != row:
        connection.execute(update(query).where(query.c.query == name).values(row))


def note_batch(connection: Connection, name: str, number: int, revision: int) -> None:
    """Record that a batch used a revision, if it is the first that used it or a later one.

    invariant: for each query, a row has the first batch that was reported with its revision, and a report
    that an existing row covers is not stored.
    """
    mine = select(batch).where(batch.c.query == name)
    covering = mine.where(batch.c.revision >= revision, batch.c.batch <= number).limit(1)
    if connection.execute(covering).one_or_none() is not None:
        return
    same = connection.execute(
        select(batch.c.batch).where(batch.c.query == name, batch.c.revision == revision)
    ).scalar()
    row = {"query": name, "revision": revision, "batch": number}
    if same is None:
        connection.execute(insert(batch), row)
    else:
        connection.execute(
            update(batch).where(batch.c.query == name, batch.c.revision == revision).values(row)
        )


def effective_from(connection: Connection, revision: int) -> list[EffectiveFrom]:
    """Return the first batch of each query that used this revision or a later one, ordered by query."""
    first = (
        select(batch.c.query, func.min(batch.c.revision).label("revision"))
        .where(batch.c.revision >= revision)
        .group_by(batch.c.query)
        .subquery()
    )
    rows = connection.execute(
        select(batch)
        .join(first, (batch.c.query == first.c.query) & (batch.c.revision == first.c.revision))
        .order_by(batch.c.query)
    )
    return [EffectiveFrom(row.query, row.batch) for row in rows]


def newest_used(connection: Connection) -> int:
    """Return the newest revision that a batch of any query used, 0 before the first."""
    found: int | None = connection.execute(select(func.max(batch.c.revision))).scalar()
    return found or 0


def backfills(connection: Connection) -> list[Backfill]:
    """Return for each query whether it can deliver past messages."""
    rows = connection.execute(select(query).order_by(query.c.query))
    return [Backfill(row.query, bool(row.can_replay), row.reason) for row in rows]
