"""Conversion of checked rows to subscriptions and changes, and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, Select, and_, select

from selectroute.registry.changes import Change
from selectroute.registry.errors import InvalidSpecError
from selectroute.registry.log.tables import change, subscription
from selectroute.registry.model import Subscription, time_of
from selectroute.store.digests import chained, row_digest
from selectroute.store.errors import DamagedError

_LONG_KEY: Final = 128
_CONTROL: Final = re.compile("[\x00-\x1f]")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def topic_key(topic: str | None) -> str | None:
    """Return the index key of a topic filter: itself, or its digest if it is too long for an index."""
    if topic is None or (len(topic) <= _LONG_KEY and not _CONTROL.search(topic)):
        return topic
    return "#sha256:" + hashlib.sha256(topic.encode()).hexdigest()


def body_of(one: Subscription) -> str:
    """Return a subscription as a line of JSON, without its revision, which the log has in a column."""
    data = one.to_json()
    del data["revision"]
    return _ENCODER.encode(data)


def from_body(body: str, revision: int) -> Subscription:
    """Invert `body_of`. Raises ValueError, `InvalidSpecError`."""
    return Subscription.from_json({**json.loads(body), "revision": revision})


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
    """Yield the rows of the log, each checked against the previous digest. Raises `DamagedError`, naming the
    first row that was altered, or before which one is missing.
    """
    for row in rows:
        state = row.op, row.id, row.body, row.resume_from, row.paused_at, row.time
        digest = chained(previous, row.revision, row.seq, *state)
        if digest != row.digest:
            raise DamagedError(
                f"the table change is damaged at revision {row.revision!r}, change {row.seq!r}, or before it"
            )
        previous = digest
        yield row


def change_of(row: Row[Any]) -> Change:
    """Return the change of a checked row of the log."""
    return Change(
        revision=row.revision,
        op=row.op,
        id=row.id,
        subscription=None if row.op == "remove" else from_body(row.body, row.revision),
        resume_from=row.resume_from,
        paused_at=row.paused_at,
        time=time_of(row.time),
        digest=row.digest.hex(),
    )


def batched(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into lists that fit the parameters of one statement."""
    rest = iter(ids)
    while some := list(islice(rest, 500)):
        yield some
