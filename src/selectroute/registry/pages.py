"""Pages of subscriptions by filters, in an order."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final, get_args

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, tuple_

from selectroute.index.errors import InvalidSpecError
from selectroute.index.specification import Status
from selectroute.registry.log.change_log import LogPosition, cursor_of, read_cursor
from selectroute.registry.log.rows import subscription_of, subscriptions_with_state, topic_key
from selectroute.registry.log.tables import change, label, subscription
from selectroute.registry.model import Order, Page

MAX_LIMIT: Final = 1_000

_WILD: Final = re.compile(r"[%_\\]")
"""Characters with a meaning in LIKE."""

Filters = dict[str, str]
"""Requested values by filter: topic, status, dialect, name, label."""

_FILTERS: Final = ("name", "label", "topic", "status", "dialect")
"""Filters, the most selective first: the index of the first one given is read, the others are compared."""


def page(
    connection: Connection, filters: Filters, limit: int, cursor: str | None, order: Order = "id"
) -> Page:
    """Return one page. Raises `InvalidSpecError` for an invalid limit, cursor, filter or order."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidSpecError("/limit", f"a limit must be 1 to {MAX_LIMIT:,}")
    if order not in get_args(Order):
        raise InvalidSpecError("/order", f"an order must be {', '.join(get_args(Order))}")
    rows = connection.execute(statement_of(filters, limit, cursor, order)).all()
    items = [subscription_of(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return Page(items, None)
    last = rows[limit - 1]
    place = LogPosition(last.revision, last.seq).cursor if order == "newest" else getattr(last, order)
    return Page(items, cursor_of(_digest(filters, order), place))


def ids_named(connection: Connection, text: str, after: str, limit: int) -> list[str]:
    """Return the first ids after one whose names have a text in them, in any case, in the order of the ids.
    O(subscriptions).
    """
    pattern = "%" + _WILD.sub(r"\\\g<0>", text) + "%"
    like = subscription.c.name.ilike(pattern, escape="\\")
    wanted = select(subscription.c.id).where(subscription.c.id > after, like)
    return [row.id for row in connection.execute(wanted.order_by(subscription.c.id).limit(limit))]


def statement_of(filters: Filters, limit: int, cursor: str | None, order: Order = "id") -> Select[Any]:
    """Return the query for a page and one more row, if there is one."""
    statement = _filtered(_NEWEST if order == "newest" else subscriptions_with_state(), filters, order)
    after = None if cursor is None else _read_cursor(cursor, filters, order)
    if order == "newest":
        place = change.c.revision, change.c.seq
        if after is not None:
            statement = statement.where(tuple_(*place) < tuple_(*LogPosition.of(after)))
        return statement.order_by(*(column.desc() for column in place)).limit(limit + 1)
    column = subscription.c[order]
    if order == "id" and "label" in filters and "name" not in filters:
        column = label.c.id  # that of the index by labels: SQLite does not see that both columns are equal
    if after is not None:
        statement = statement.where(column > after)
    return statement.order_by(column).limit(limit + 1)


_NEWEST: Final = select(subscription, change.c.body).join(
    change,
    # With the id, which is redundant, SQLite reads the log backwards and stops at the end of the page.
    and_(
        change.c.id == subscription.c.id,
        change.c.revision == subscription.c.revision,
        change.c.seq == subscription.c.seq,
    ),
)


def _filtered(statement: Select[Any], filters: Filters, order: Order) -> Select[Any]:
    first = True
    for name in _FILTERS:
        if name not in filters:
            continue
        value = filters[name]
        if name == "label":
            key, equals, of_label = value.partition("=")
            if not equals:
                raise InvalidSpecError("/label", "a filter by label must be NAME=VALUE")
            statement = statement.join(label, label.c.id == subscription.c.id).where(
                label.c.name == key, label.c.value == of_label
            )
        else:
            column: ColumnElement[Any] = subscription.c["topic_key" if name == "topic" else name]
            # SQLite has no statistics for its choice of an index: hide all columns but the best one. Where it
            # would have to sort most of the subscriptions, it reads them in their order instead.
            is_most = order != "id" and (name == "dialect" or value == Status.ACTIVE)
            compared = column if first and not is_most else func.coalesce(column, "")
            statement = statement.where(compared == (topic_key(value) if name == "topic" else value))
        first = False
    return statement


def _digest(filters: Filters, order: Order) -> str:
    asked = filters if order == "id" else {**filters, "order": order}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _read_cursor(cursor: str, filters: Filters, order: Order) -> str:
    digest, last = read_cursor(cursor, 2)
    if digest != _digest(filters, order):
        raise InvalidSpecError(
            "/cursor", "the cursor was issued for other filters or another order; begin again without one"
        )
    return last
