"""Pages of subscriptions by filters, in the order of their ids."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func, select

from selectroute.registry.errors import InvalidSpecError
from selectroute.registry.log.cursors import cursor_of, read_cursor
from selectroute.registry.log.rows import subscription_of, subscriptions_with_state, topic_key
from selectroute.registry.log.tables import label, subscription
from selectroute.registry.model import Page

MAX_LIMIT: Final = 1_000

_WILD: Final = re.compile(r"[%_\\]")
"""Characters with a meaning in LIKE."""

Filters = dict[str, str]
"""Requested values by filter: topic, status, dialect, name, label."""

_ORDER: Final = ("name", "label", "topic", "status", "dialect")
"""Filters, the most selective first: the index of the first one given is read, the others are compared."""


def page(connection: Connection, filters: Filters, limit: int, cursor: str | None) -> Page:
    """Return one page. Raises `InvalidSpecError` for an invalid limit, cursor or filter."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidSpecError("/limit", f"a limit must be 1 to {MAX_LIMIT:,}")
    rows = connection.execute(statement_of(filters, limit, cursor)).all()
    items = [subscription_of(row) for row in rows[:limit]]
    return Page(items, cursor_of(_digest(filters), items[-1].id) if len(rows) > limit else None)


def ids_named(connection: Connection, text: str, after: str, limit: int) -> list[str]:
    """Return the first ids after one whose names have a text in them, in any case, in the order of the ids.
    O(subscriptions).
    """
    pattern = "%" + _WILD.sub(r"\\\g<0>", text) + "%"
    like = subscription.c.name.ilike(pattern, escape="\\")
    wanted = select(subscription.c.id).where(subscription.c.id > after, like)
    return [row.id for row in connection.execute(wanted.order_by(subscription.c.id).limit(limit))]


def statement_of(filters: Filters, limit: int, cursor: str | None) -> Select[Any]:
    """Return the query for a page and one more row, if there is one."""
    statement = _filtered(subscriptions_with_state(), filters)
    # Order by the ids of the index by labels: SQLite does not see that both columns are equal.
    by_label = "label" in filters and "name" not in filters
    id = label.c.id if by_label else subscription.c.id
    if cursor is not None:
        statement = statement.where(id > _read_cursor(cursor, filters))
    return statement.order_by(id).limit(limit + 1)


def _filtered(statement: Select[Any], filters: Filters) -> Select[Any]:
    first = True
    for name in _ORDER:
        if name not in filters:
            continue
        value = filters[name]
        if name == "label":
            key, found, of_label = value.partition("=")
            if not found:
                raise InvalidSpecError("/label", "a filter by label must be NAME=VALUE")
            statement = statement.join(label, label.c.id == subscription.c.id).where(
                label.c.name == key, label.c.value == of_label
            )
        else:
            column: ColumnElement[Any] = subscription.c["topic_key" if name == "topic" else name]
            # SQLite has no statistics for its choice of an index: hide all columns but the best one.
            compared = column if first else func.coalesce(column, "")
            statement = statement.where(compared == (topic_key(value) if name == "topic" else value))
        first = False
    return statement


def _digest(filters: Filters) -> str:
    return hashlib.sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]


def _read_cursor(cursor: str, filters: Filters) -> str:
    digest, last = read_cursor(cursor, 2)
    if digest != _digest(filters):
        raise InvalidSpecError("/cursor", "the cursor was issued for other filters; begin again without one")
    return last
