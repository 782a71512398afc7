"""Conversion of checked rows to subscriptions and changes, and back; the row of the counter.

The counter has the newest revision, the digest of the log, and the counts of changes and subscriptions. Each
writer locks it, so that revisions are committed in order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import Connection, Row, Select, and_, bindparam, delete, insert, select, update

from selectroute.index.errors import InvalidSpecError
from selectroute.registry.log.tables import change, counter, row_seal, setting, subscription
from selectroute.registry.model import Change, Subscription, time_of
from selectroute.store.engine import START, canonical, chained, row_digest
from selectroute.store.errors import DamagedError

# Built once: building a statement takes longer than executing it.
_COUNTER: Final = select(counter)
_COUNTER_LOCKED: Final = _COUNTER.with_for_update()
_UPDATE: Final = update(counter).values(
    {column.name: bindparam(column.name) for column in counter.columns if column.name != "name"}
)


def read_counter(connection: Connection, *, lock: bool = False) -> Any:
    """Return the counter's row, checked; with `lock`, other writers wait until this transaction ends."""
    row = connection.execute(_COUNTER_LOCKED if lock else _COUNTER).one_or_none()
    if row is None or row.seal != _counter(row.revision, row.digest, row.changes, row.subscriptions)["seal"]:
        raise DamagedError("the table counter is damaged")
    return row


def write_counter(
    connection: Connection, revision: int, digest: bytes, changes: int, subscriptions: int
) -> None:
    """Set the counter's row, with its seal."""
    connection.execute(_UPDATE, _counter(revision, digest, changes, subscriptions))


def insert_counter(connection: Connection) -> None:
    """Insert the counter's row of a new registry."""
    connection.execute(insert(counter), {"name": "registry", **_counter(0, START, 0, 0)})


def _counter(revision: int, digest: bytes, changes: int, subscriptions: int) -> dict[str, Any]:
    """Return the columns of the counter's row, with their seal."""
    row = {"revision": revision, "digest": digest, "changes": changes, "subscriptions": subscriptions}
    return {**row, "seal": row_digest(revision, digest.hex(), changes, subscriptions)}


# ---- settings of a registry: its format, its id, the folder that it is published to


def read_setting(connection: Connection, name: str) -> str | None:
    """Return a setting's value, None if it is not set. Raises `DamagedError`."""
    row = connection.execute(select(setting).where(setting.c.name == name)).one_or_none()
    if row is None:
        return None
    if row.seal != row_seal(row):
        raise DamagedError(f"the table setting is damaged in the row of {name!r}")
    value: str = row.value
    return value


def write_setting(connection: Connection, name: str, value: str | None) -> None:
    """Set a setting; None unsets it."""
    connection.execute(delete(setting).where(setting.c.name == name))
    if value is not None:
        row = {"name": name, "value": value, "seal": row_digest(name, value)}
        connection.execute(insert(setting), row)


_LONG_KEY: Final = 128
_CONTROL: Final = re.compile("[\x00-\x1f]")


def topic_key(topic: str | None) -> str | None:
    """Return the index key of a topic filter: itself, or its digest if it is too long for an index."""
    if topic is None or (len(topic) <= _LONG_KEY and not _CONTROL.search(topic)):
        return topic
    return "#sha256:" + hashlib.sha256(topic.encode()).hexdigest()


def body_of(state: Subscription) -> str:
    """Return a subscription as a line of JSON, without its revision, which the log has in a column."""
    data = state.to_json()
    del data["revision"]
    return orjson.dumps(data).decode()


def from_body(body: str, revision: int) -> Subscription:
    """Invert `body_of`. Raises ValueError, `InvalidSpecError`."""
    return Subscription.from_json({**orjson.loads(body), "revision": revision})


class ViewRow(NamedTuple):
    """Row of the table ``subscription``."""

    id: str
    name: str
    topic_key: str | None
    dialect: str
    status: str
    revision: int
    seq: int
    seal: bytes


def view_row(
    id: str, name: str, topic: str | None, dialect: str, status: str, position: tuple[int, int], body: str
) -> ViewRow:
    """Return the row of the view for a state of the log; `topic` is its `topic_key`."""
    state = id, name, topic, dialect, status, *position
    return ViewRow(*state, row_digest(*state, body))


def added_values(
    added: Iterable[tuple[str, str, str | None, str, str, str]], revision: int, first: int
) -> list[Any]:
    """Return the rows of the view for many subscriptions that one revision adds, as one list of values.

    The changes are numbered from `first` on. Each has an id, name, key of the topic, dialect, status and
    body. The rows have no revision. They are those of `view_row`, made in a third of the time.
    """
    at = canonical(revision).decode()
    values: list[Any] = []
    for seq, (id, name, topic, dialect, status, body) in enumerate(added, first):
        number = str(seq)
        data = (
            f"{len(id)}:{id}{len(name)}:{name}{'-' if topic is None else f'{len(topic)}:{topic}'}"
            f"{len(dialect)}:{dialect}{len(status)}:{status}{at}{len(number)}:{number}{len(body)}:{body}"
        )
        seal = hashlib.sha256(data.encode(errors="surrogatepass")).digest()
        values += (id, name, topic, dialect, status, seq, seal)
    return values


def subscriptions_with_state() -> Select[Any]:
    """Return a select of the table ``subscription`` with each body, NULL if the log has none."""
    logged = and_(change.c.revision == subscription.c.revision, change.c.seq == subscription.c.seq)
    return select(subscription, change.c.body).select_from(subscription.outerjoin(change, logged))


def checked_body(row: Row[Any]) -> str:
    """Return the body of a row of `subscriptions_with_state`. Raises `DamagedError`."""
    body: str | None = row.body
    if body is None or row.seal != row_digest(
        row.id, row.name, row.topic_key, row.dialect, row.status, row.revision, row.seq, body
    ):
        raise DamagedError(f"the table subscription is damaged in the row of {row.id!r}")
    return body


def subscription_of(row: Row[Any]) -> Subscription:
    """Return the subscription of a row of `subscriptions_with_state`. Raises `DamagedError`."""
    body = checked_body(row)
    try:
        return from_body(body, row.revision)
    except (ValueError, InvalidSpecError) as error:  # the seal matches, so this was written so
        raise DamagedError(f"the log has no subscription in the row of {row.id!r}: {error}") from error


def chained_rows(rows: Iterable[Row[Any]], previous: bytes) -> Iterator[Row[Any]]:
    """Yield the rows of the log, each checked against the previous digest.

    Raises `DamagedError`, naming the first row that was altered, or before which one is missing.
    """
    for row in rows:
        state: tuple[Any, ...] = tuple(row)  # the columns of the table
        digest = chained(previous, *state[:-1])
        if digest != state[-1]:
            raise DamagedError(
                f"the table change is damaged at revision {row.revision!r}, change {row.seq!r}, or before it"
            )
        previous = digest
        yield row


def change_of(row: Row[Any]) -> Change:
    """Return the change of a checked row of the log."""
    columns: tuple[Any, ...] = tuple(row)
    revision, _, op, id, body, resume_from, paused_at, time, actor, digest = columns
    after = None if op == "remove" else from_body(body, revision)
    return Change(revision, op, id, after, resume_from, paused_at, time_of(time), actor, digest.hex())


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into lists that fit the parameters of one statement."""
    rest = iter(ids)
    while some := list(islice(rest, 500)):
        yield some
