"""Reports of streams and their queries: the newest batches of each, when it was last heard of, whether it can
replay, and which batch used which revision first.

A report is what an operator looks at, and no part of the truth: batches are told by the commits of a job. The
newest `KEPT` of each query are kept. A report names the busiest subscriptions of its batch; the newest batch
that names a subscription is kept until the subscription is removed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, tuple_, update

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.changes import Backfill, EffectiveFrom
from selectroute.registry.errors import NotFoundError
from selectroute.registry.log.cursors import cursor_of, no_cursor, read_cursor
from selectroute.registry.log.header_rows import read_counter
from selectroute.registry.log.rows import batched
from selectroute.registry.log.tables import activity, batch, query, report, stream, subscription
from selectroute.registry.model import time_of, time_text

KEPT: Final = 1_000
"""Batches that are kept of each query."""

MAX_CHARACTERS: Final = 32_768
"""Characters of one report as JSON: a hundred subscriptions with the longest ids take half of them."""

SILENT_SECONDS: Final = 60.0
"""Seconds after which a stream that has not reported may be down: it reports every ten seconds."""

GONE_SECONDS: Final = 7 * 86_400.0
"""Seconds after which a stream that has not reported is taken for gone: listed, and not a fault any more."""

RATED: Final = 100
"""Newest batches of each stream from which its rates, those of its subscriptions, and the number of its dead
letters are taken.
"""

Status = Literal["running", "silent", "gone", "ended", "stopped", "failed"]
"""``running``: heard of just now; ``silent``: vanished; ``gone``: silent for a week. The others are what a
stream says in its last report: it read all input, was stopped, or failed.
"""


@dataclass(frozen=True, slots=True)
class StreamState:
    """Stream as it was last heard of: its name, or the query's id if it has none. It is `running` if it was
    heard of in the last minute, `silent` if not, `gone` after a week; or it has said that it `ended`, was
    `stopped`, or `failed`.

    `heard` is the time of its last report; `state` what it said of itself, such as the destinations that make
    it wait; `newest` its newest report of a batch, null before the first. The rates are those of its newest
    100 batches up to now, null unless it runs.

    `job` is the job of this name that the service knows, null for none. `dead_letters` are those of the job
    that no replay took, null if they are not counted; without a job, those of the newest `batches`.
    """

    query: str
    name: str
    source: str
    heard: datetime
    state: Mapping[str, Any]
    newest: Mapping[str, Any] | None
    status: Status
    messages_per_second: float | None
    deliveries_per_second: float | None
    dead_letters: int | None
    batches: int
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a subscription: `last_delivered`, `query`, `batch` and `deliveries` are of the newest batch
    that names it among its 100 busiest; `query` is null for a token for some topics. `per_second` are its
    deliveries in the newest batches of the streams that run; it may get more, because a batch that does not
    name it counts as none. A member is null if nothing is known.
    """

    id: str
    last_delivered: datetime | None = None
    query: str | None = None
    batch: int | None = None
    deliveries: int | None = None
    per_second: float | None = None


class ReportPage(NamedTuple):
    """Reports of batches, the newest first, and the cursor of those before them; None if these are all."""

    batches: list[dict[str, Any]]
    next_cursor: str | None


def note_reports(
    connection: Connection,
    name: str,
    batches: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
    now: datetime,
) -> None:
    """Record reports of batches of a query, each with its number as ``batch``, and that it was heard of. A
    batch that is reported again replaces its report. ``busiest`` of a batch are subscriptions with their
    numbers of deliveries, ``ended`` is its time.

    Raises `InvalidSpecError` for a report that is too long.
    """
    time = time_text(now)
    connection.execute(delete(stream).where(stream.c.query == name))
    connection.execute(insert(stream), {"query": name, "time": time, "body": _text(state)})
    once = {one["batch"]: one for one in batches}
    rows = [
        {"query": name, "batch": number, "time": time, "body": _text(one)} for number, one in once.items()
    ]
    if not rows:
        return
    mine = report.c.query == name
    connection.execute(delete(report).where(mine, report.c.batch.in_([*once])))
    connection.execute(insert(report), rows)
    last = _newest_first(name).with_only_columns(report.c.time, report.c.batch).offset(KEPT - 1).limit(1)
    if (oldest := connection.execute(last).one_or_none()) is not None:
        key = tuple_(report.c.time, report.c.batch)
        connection.execute(delete(report).where(mine, key < tuple_(*oldest)))
    _note_activity(connection, name, once.values(), now)


def _note_activity(
    connection: Connection, name: str, batches: Iterable[Mapping[str, Any]], now: datetime
) -> None:
    """Record the newest batch of each registered subscription that these batches of a query name."""
    newest: dict[str, tuple[str, int, int]] = {}
    for one in batches:
        # A stream whose clock is ahead must not hide the later batches of others.
        time = time_text(min(time_of(one["ended"]), now) if "ended" in one else now)
        for id, deliveries in one.get("busiest", {}).items():
            found = (time, one["batch"], deliveries)
            newest[id] = max(newest.get(id, found), found)
    if not newest:
        return
    read_counter(connection, lock=True)  # other streams and removals wait
    for ids in batched(newest):
        known = connection.execute(
            select(subscription.c.id, activity.c.time)
            .select_from(subscription.outerjoin(activity, activity.c.id == subscription.c.id))
            .where(subscription.c.id.in_(ids))
        )
        rows = []
        for id, known_time in known:
            time, number, deliveries = newest[id]
            if known_time is None or time >= known_time:
                row = {"id": id, "query": name, "batch": number, "time": time, "deliveries": deliveries}
                rows.append(row)
        if rows:
            connection.execute(delete(activity).where(activity.c.id.in_([row["id"] for row in rows])))
            connection.execute(insert(activity), rows)


def activities(connection: Connection, ids: Iterable[str], now: datetime) -> list[Activity]:
    """Return the activity of those of these subscriptions that a batch has named, in the order of the ids."""
    ids = dict.fromkeys(ids)
    rows = {}
    for some in batched(ids):
        for row in connection.execute(select(activity).where(activity.c.id.in_(some))):
            rows[row.id] = row
    rates = _rates(connection, rows, now) if rows else {}
    found = {
        id: Activity(id, time_of(row.time), row.query, row.batch, row.deliveries, rates.get(id))
        for id, row in rows.items()
    }
    return [found[id] for id in ids if id in found]


def _rates(connection: Connection, ids: Collection[str], now: datetime) -> dict[str, float]:
    """Return the deliveries a second of subscriptions since the oldest of the newest batches of each stream
    that runs, without those of that batch.
    """
    found: dict[str, float] = defaultdict(float)
    for one in connection.execute(select(stream)).all():
        if _status(time_of(one.time), _body(one), now) != "running":
            continue
        if (rated := _rated(_newest(connection, one.query), now)) is None:
            continue
        for body in rated.bodies:
            for id, deliveries in body.get("busiest", {}).items():
                if id in ids:
                    found[id] += deliveries / rated.seconds
    return found


class _Rated(NamedTuple):
    """Reports of batches, and the seconds in which they came."""

    bodies: Sequence[Mapping[str, Any]]
    seconds: float


def _newest(connection: Connection, name: str) -> Sequence[Row[Any]]:
    return connection.execute(_newest_first(name).limit(RATED)).all()


def _rated(rows: Sequence[Row[Any]], now: datetime) -> _Rated | None:
    """Return those of the newest reports of a stream that came after the oldest of them, and the time from
    that one until now; None if there are none. The times are those of this registry, not of the stream.
    """
    later = [row for row in rows if row.time > rows[-1].time]
    if not later:
        return None
    seconds = (max(now, time_of(rows[0].time)) - time_of(rows[-1].time)).total_seconds()
    return _Rated([_body(row) for row in later], seconds)


def _status(heard: datetime, state: Mapping[str, Any], now: datetime) -> Status:
    ended: Status | None = state.get("ended")
    if ended is not None:
        return ended
    silent = (now - heard).total_seconds()
    return "running" if silent <= SILENT_SECONDS else "silent" if silent <= GONE_SECONDS else "gone"


def page(connection: Connection, name: str, limit: int, cursor: str | None) -> ReportPage:
    """Return reports of a query, the newest first. Raises `InvalidSpecError` for an invalid cursor."""
    wanted = _newest_first(name)
    if cursor is not None:
        batch, time = read_cursor(cursor, 2)
        if not batch.lstrip("-").isdecimal() or len(batch) > 20:
            raise no_cursor()
        wanted = wanted.where(tuple_(report.c.time, report.c.batch) < tuple_(time, int(batch)))
    rows = connection.execute(wanted.limit(limit + 1)).all()
    found = [_body(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return ReportPage(found, None)
    return ReportPage(found, cursor_of(str(rows[limit - 1].batch), rows[limit - 1].time))


def streams(connection: Connection, now: datetime) -> list[StreamState]:
    """Return the streams that have reported, ordered by query. O(newest reports of each)."""
    rows = connection.execute(
        select(stream, query.c.source)
        .select_from(stream.outerjoin(query, query.c.query == stream.c.query))
        .order_by(stream.c.query)
    ).all()
    return [_stream(connection, row, now) for row in rows]


def _stream(connection: Connection, row: Row[Any], now: datetime) -> StreamState:
    reports = _newest(connection, row.query)
    bodies = [_body(one) for one in reports]
    state, heard = _body(row), time_of(row.time)
    status = _status(heard, state, now)
    rated = _rated(reports, now) if status == "running" else None
    messages = deliveries = None
    if rated is not None:
        # A backfill or a replay reads messages that the stream has counted.
        own = (one.get("messages", 0) for one in rated.bodies if one.get("kind", "stream") == "stream")
        messages = sum(own) / rated.seconds
        deliveries = sum(one.get("deliveries", 0) for one in rated.bodies) / rated.seconds
    dead = sum(one.get("dead_lettered", 0) + one.get("refused", 0) for one in bodies)
    newest = bodies[0] if bodies else None
    numbers = (messages, deliveries, dead, len(bodies))
    name = state.get("name") or row.query
    return StreamState(row.query, name, row.source or "", heard, state, newest, status, *numbers)


def remove_stream(connection: Connection, name: str) -> None:
    """Remove a stream with its reports of batches. Raises `NotFoundError` if it has not reported."""
    if not connection.execute(delete(stream).where(stream.c.query == name)).rowcount:
        raise NotFoundError(f"there is no stream {name!r}")
    connection.execute(delete(report).where(report.c.query == name))


def _newest_first(name: str) -> Select[Any]:
    """Return the statement that reads the reports of a query."""
    return select(report).where(report.c.query == name).order_by(report.c.time.desc(), report.c.batch.desc())


def _text(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if len(text) > MAX_CHARACTERS:
        raise InvalidSpecError("/batches", f"a report has at most {MAX_CHARACTERS:,} characters")
    return text


def _body(row: Row[Any]) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(row.body)
    return body


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
