"""Reports of streams: revisions that their batches used, newest batches, and messages seen of late.

A report is for an operator to look at; which batches were committed, a job's commits say.
The newest `KEPT` of each query are kept. A report names the busiest subscriptions of its batch; the newest
batch that names a subscription is kept until the subscription is removed.

A stream also sends some messages of its batches, without their bodies, if its operator turns this on: to try
a change on before it is made. The newest `SAMPLES_KEPT` of all queries are kept. Reports and samples may be
lost. Their rows have no digests. Only `Registry` calls this with a connection; a service reads its types and
limits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.errors import NotFoundError
from selectroute.registry.log.change_log import cursor_of, no_cursor, read_cursor
from selectroute.registry.log.rows import batched, read_counter
from selectroute.registry.log.tables import activity, batch, report, sample, stream, subscription
from selectroute.registry.log.tables import query as queries
from selectroute.registry.model import MAX_SAMPLED, Backfill, EffectiveFrom, sampled_text, time_of, time_text
from selectroute.selector.arguments import check_iterable
from selectroute.store.engine import Store

SAMPLES_KEPT: Final = 10_000
"""Messages that are kept of all queries together."""

Key = tuple[str, str, int]
"""Time at which a message was reported, query, and number in its report.

A message that is added later has a greater key, whichever service adds it: if the clock of a service is
behind the newest message, that message's time and a microsecond count.
"""


class SampledMessage(NamedTuple):
    """Message of the sample, in the wire form of `Message.from_json`."""

    key: Key
    message: Mapping[str, Any]

    @property
    def query(self) -> str:
        """Query whose batch had the message."""
        return self.key[1]

    @property
    def time(self) -> str:
        """Time at which it was reported, RFC 3339."""
        return self.key[0]


_SAMPLE_KEY: Final = (sample.c.time, sample.c.query, sample.c.number)
_NEWEST_FIRST: Final = tuple(column.desc() for column in _SAMPLE_KEY)


def note_messages(
    connection: Connection, query: str, messages: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Add messages of a query to the sample, the oldest first; the oldest of all above `SAMPLES_KEPT` go.

    Raises `InvalidSpecError` for a message that is too long.
    """
    if not messages:
        return
    read_counter(connection, lock=True)  # other streams wait: keys ascend in the order of commits
    newest = connection.execute(select(sample.c.time).order_by(*_NEWEST_FIRST).limit(1)).scalar()
    if newest is not None:
        now = max(now, time_of(newest) + timedelta(microseconds=1))
    time = time_text(now)
    rows = []
    for number, message in enumerate(messages[-SAMPLES_KEPT:]):
        body = sampled_text(message)
        if len(body) > MAX_SAMPLED:
            raise InvalidSpecError("/messages", f"a message has at most {MAX_SAMPLED:,} characters")
        rows.append({"time": time, "query": query, "number": number, "body": body})
    connection.execute(insert(sample), rows)
    keep_newest(connection, SAMPLES_KEPT, _SAMPLE_KEY)


def keep_newest(
    connection: Connection, count: int, key: Sequence[Column[Any]], *which: ColumnElement[bool]
) -> None:
    """Delete the rows of a table, or some of them, but those with the greatest keys."""
    newest = select(*key).where(*which).order_by(*(column.desc() for column in key))
    if (oldest := connection.execute(newest.offset(count - 1).limit(1)).one_or_none()) is not None:
        connection.execute(delete(key[0].table).where(*which, tuple_(*key) < tuple_(*oldest)))


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
    """State of a stream by its last report.

    `name` is the query's id if the stream has no name. A stream is `running` if it reported in the last
    minute, `silent` if not, `gone` after a week; or its last report says that it `ended`, was `stopped`, or
    `failed`. `heard` is the time of its last report; `state` is what it reports of itself, such as the
    destinations that make it wait; `newest` its newest report of a batch, null before the first. The rates
    are those of its newest 100 batches up to now, null unless it runs.

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
    """Activity of a subscription.

    `last_delivered`, `query`, `batch` and `deliveries` are of the newest batch that names it among its 100
    busiest; `query` is null for a token for some topics. `per_second` are its deliveries in the newest
    batches of the streams that run; it may get more, because a batch that does not name it counts as none. A
    member is null if nothing is known.
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


class Streams:
    """Streams of a registry, and their queries, as far as they report."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None = None) -> None:
        """Announce a query: its source, and whether it can replay (if not, the reason)."""
        row = {"query": query, "source": source, "can_replay": can_replay, "reason": reason}
        with self._store.writing() as connection:
            known = update(queries).where(queries.c.query == query)
            if not connection.execute(known, row).rowcount:
                connection.execute(insert(queries), row)

    def queries(self) -> list[Backfill]:
        """Return the known queries, ordered by name, and whether each can replay."""
        with self._store.reading() as connection:
            return backfills(connection)

    def note_batch(self, query: str, number: int, revision: int) -> None:
        """Report that a batch of a query was delivered with a revision.

        The report is kept if it is the first that used this revision or a later one.

        invariant: for each query, a row has the first batch that was reported with its revision, and a report
        that an existing row covers is not stored.
        """
        mine = batch.c.query == query
        covering = select(batch).where(mine, batch.c.revision >= revision, batch.c.batch <= number).limit(1)
        same = update(batch).where(mine, batch.c.revision == revision)
        row = {"query": query, "revision": revision, "batch": number}
        with self._store.writing() as connection:
            if connection.execute(covering).one_or_none() is not None:
                return
            if not connection.execute(same, row).rowcount:
                connection.execute(insert(batch), row)

    def effective_from(self, revision: int) -> list[EffectiveFrom]:
        """Return the first batch of each query that used this revision or a later one, ordered by query.

        Only batches that were reported count. Revisions never decrease from batch to batch, so of a query's
        rows from this revision on, that of the smallest revision has the first batch.
        """
        first = (
            select(batch.c.query, func.min(batch.c.revision).label("revision"))
            .where(batch.c.revision >= revision)
            .group_by(batch.c.query)
            .subquery()
        )
        with self._store.reading() as connection:
            rows = connection.execute(
                select(batch)
                .join(first, (batch.c.query == first.c.query) & (batch.c.revision == first.c.revision))
                .order_by(batch.c.query)
            )
            return [EffectiveFrom(row.query, row.batch) for row in rows]

    def newest_used(self) -> int:
        """Return the newest revision that a batch of any query used, 0 before the first."""
        with self._store.reading() as connection:
            return connection.execute(select(func.max(batch.c.revision))).scalar() or 0

    def note_reports(
        self, query: str, batches: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
    ) -> None:
        """Record reports of batches of a query, and the state that the query reports of itself.

        A report is plain data with the number as ``batch``. A batch that is reported again replaces
        its report; the newest `KEPT` batches are kept. ``busiest`` of a batch are subscriptions with
        their numbers of deliveries, of each of which the newest one is kept; ``ended`` is its time.
        Raises `InvalidSpecError` for a report that is too long.
        """
        with self._store.writing() as connection:
            now = self._now()
            time = time_text(now)
            connection.execute(delete(stream).where(stream.c.query == query))
            connection.execute(insert(stream), {"query": query, "time": time, "body": _text(state)})
            once = {body["batch"]: body for body in batches}
            rows = [
                {"query": query, "batch": number, "time": time, "body": _text(body)}
                for number, body in once.items()
            ]
            if not rows:
                return
            mine = report.c.query == query
            connection.execute(delete(report).where(mine, report.c.batch.in_([*once])))
            connection.execute(insert(report), rows)
            keep_newest(connection, KEPT, (report.c.time, report.c.batch), mine)
            _note_activity(connection, query, once.values(), now)

    def reports(self, query: str, *, limit: int = 100, cursor: str | None = None) -> ReportPage:
        """Return the reports of a query's batches, the newest first; none for an unknown query.

        Raises `InvalidSpecError` for an invalid cursor.
        """
        wanted = _newest_first(query)
        if cursor is not None:
            number, time = read_cursor(cursor, 2)
            if not number.lstrip("-").isdecimal() or len(number) > 20:
                raise no_cursor()
            wanted = wanted.where(tuple_(report.c.time, report.c.batch) < tuple_(time, int(number)))
        with self._store.reading() as connection:
            rows = connection.execute(wanted.limit(limit + 1)).all()
        bodies = [_body(row) for row in rows[:limit]]
        if len(rows) <= limit:
            return ReportPage(bodies, None)
        return ReportPage(bodies, cursor_of(str(rows[limit - 1].batch), rows[limit - 1].time))

    def activities(self, ids: Iterable[str]) -> list[Activity]:
        """Return when subscriptions got deliveries last, and how many a second, in the order of the ids.

        Only subscriptions that a batch names among its busiest are returned.
        """
        check_iterable(ids, "ids", "a list of ids of subscriptions")
        now = self._now()
        ids = dict.fromkeys(ids)
        rows: dict[str, Row[Any]] = {}
        with self._store.reading() as connection:
            for some in batched(ids):
                result = connection.execute(select(activity).where(activity.c.id.in_(some)))
                rows |= {row.id: row for row in result}
            rates = _rates(connection, rows, now) if rows else {}
        return [
            Activity(id, time_of(row.time), row.query, row.batch, row.deliveries, rates.get(id))
            for id in ids
            if (row := rows.get(id)) is not None
        ]

    def all(self) -> list[StreamState]:
        """Return the streams that have reported, with their last state, ordered by query.

        O(newest reports of each).
        """
        now = self._now()
        with self._store.reading() as connection:
            rows = connection.execute(
                select(stream, queries.c.source)
                .select_from(stream.outerjoin(queries, queries.c.query == stream.c.query))
                .order_by(stream.c.query)
            ).all()
            return [_stream(connection, row, now) for row in rows]

    def remove(self, query: str) -> None:
        """Remove a stream from the list, with its reports of batches.

        A stream that runs is listed again with its next report. Raises `NotFoundError` if it has not
        reported.
        """
        with self._store.writing() as connection:
            if not connection.execute(delete(stream).where(stream.c.query == query)).rowcount:
                raise NotFoundError(f"there is no stream {query!r}")
            connection.execute(delete(report).where(report.c.query == query))

    def note_messages(self, query: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add messages of a query, in the wire form of `Message.to_json`, to the sample of recent messages.
        The newest 10,000 of all queries are kept. Raises `InvalidSpecError` for one that is too long.
        """
        with self._store.writing() as connection:
            note_messages(connection, query, messages, self._now())

    def recent_messages(self, after: Key | None = None) -> list[SampledMessage]:
        """Return the sample of recent messages, the oldest first: those after one of this key, or all."""
        wanted = select(sample).order_by(*_NEWEST_FIRST).limit(SAMPLES_KEPT)
        if after is not None:
            wanted = wanted.where(tuple_(*_SAMPLE_KEY) > tuple_(*after))
        with self._store.reading() as connection:
            rows = connection.execute(wanted).all()
        return [SampledMessage((row.time, row.query, row.number), json.loads(row.body)) for row in rows[::-1]]


def backfills(connection: Connection) -> list[Backfill]:
    """Return for each query whether it can deliver past messages."""
    rows = connection.execute(select(queries).order_by(queries.c.query))
    return [Backfill(row.query, bool(row.can_replay), row.reason) for row in rows]


def _note_activity(
    connection: Connection, name: str, batches: Iterable[Mapping[str, Any]], now: datetime
) -> None:
    """Record the newest batch of each registered subscription that these batches of a query name."""
    newest: dict[str, tuple[str, int, int]] = {}
    for body in batches:
        # A stream whose clock is ahead must not hide the later batches of others.
        time = time_text(min(time_of(body["ended"]), now) if "ended" in body else now)
        for id, deliveries in body.get("busiest", {}).items():
            delivery = (time, body["batch"], deliveries)
            newest[id] = max(newest.get(id, delivery), delivery)
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


def _rates(connection: Connection, ids: Collection[str], now: datetime) -> dict[str, float]:
    """Return the deliveries a second of subscriptions, summed over the streams that run.

    The rate of a stream is taken since the oldest of its newest batches, without the deliveries of that
    batch.
    """
    rates: dict[str, float] = defaultdict(float)
    for row in connection.execute(select(stream)).all():
        if _status(time_of(row.time), _body(row), now) != "running":
            continue
        if (rated := _rated(_newest(connection, row.query), now)) is None:
            continue
        for body in rated.bodies:
            for id, deliveries in body.get("busiest", {}).items():
                if id in ids:
                    rates[id] += deliveries / rated.seconds
    return rates


class _Rated(NamedTuple):
    """Reports of batches, and the seconds in which they came."""

    bodies: Sequence[Mapping[str, Any]]
    seconds: float


def _newest(connection: Connection, name: str) -> Sequence[Row[Any]]:
    return connection.execute(_newest_first(name).limit(RATED)).all()


def _rated(rows: Sequence[Row[Any]], now: datetime) -> _Rated | None:
    """Return the newest reports of a stream, without the oldest of them, and the time since that one.

    None if there are none. The times are those of this registry, not of the stream.
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


def _stream(connection: Connection, row: Row[Any], now: datetime) -> StreamState:
    reports = _newest(connection, row.query)
    bodies = [_body(reported) for reported in reports]
    state, heard = _body(row), time_of(row.time)
    status = _status(heard, state, now)
    rated = _rated(reports, now) if status == "running" else None
    messages = deliveries = None
    if rated is not None:
        # A backfill or a replay reads messages that the stream has counted.
        own = (body.get("messages", 0) for body in rated.bodies if body.get("kind", "stream") == "stream")
        messages = sum(own) / rated.seconds
        deliveries = sum(body.get("deliveries", 0) for body in rated.bodies) / rated.seconds
    dead = sum(body.get("dead_lettered", 0) + body.get("refused", 0) for body in bodies)
    newest = bodies[0] if bodies else None
    numbers = (messages, deliveries, dead, len(bodies))
    name = state.get("name") or row.query
    return StreamState(row.query, name, row.source or "", heard, state, newest, status, *numbers)


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
