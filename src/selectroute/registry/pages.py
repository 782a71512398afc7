"""Pages of subscriptions: by filters, in the order of their ids, as long as one likes."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, func

from selectroute.registry.errors import InvalidSpecError
from selectroute.registry.log.cursors import cursor_of, read_cursor
from selectroute.registry.log.rows import subscription_of, subscriptions_with_state, topic_key
from selectroute.registry.log.tables import label, subscription
from selectroute.registry.model import Page

MAX_LIMIT: Final = 1_000

Filters = dict[str, str]
"""What is asked for, by the name of the filter: topic, status, dialect, name, label."""

_ORDER: Final = ("name", "label", "topic", "status", "dialect")
"""The filters, those first that leave the fewest; the first one's index is read, the others are compared."""


def page(connection: Connection, filters: Filters, limit: int, cursor: str | None) -> Page:
    """Return one page. Raises `InvalidSpecError` for a limit, a cursor or a filter that is none."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidSpecError("/limit", f"a limit is 1 to {MAX_LIMIT:,}")
    rows = connection.execute(statement_of(filters, limit, cursor)).all()
    items = [subscription_of(row) for row in rows[:limit]]
    return Page(items, _cursor(items[-1].id, filters) if len(rows) > limit else None)


def statement_of(filters: Filters, limit: int, cursor: str | None) -> Select[Any]:
    """Return what reads a page, and one row more if there is one."""
    statement = _filtered(subscriptions_with_state(), filters)
    # The index by labels is in the order of its own ids; SQLite does not see that they are the same.
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
                raise InvalidSpecError("/label", "labels are filtered by NAME=VALUE")
            statement = statement.join(label, label.c.id == subscription.c.id).where(
                label.c.name == key, label.c.value == of_label
            )
        else:
            column: ColumnElement[Any] = subscription.c["topic_key" if name == "topic" else name]
            # SQLite has no statistics to choose by: hide all columns but the best one from it.
            compared = column if first else func.coalesce(column, "")
            statement = statement.where(compared == (topic_key(value) if name == "topic" else value))
        first = False
    return statement


def _digest(filters: Filters) -> str:
    return hashlib.sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]


def _cursor(last: str, filters: Filters) -> str:
    return cursor_of(_digest(filters), last)


def _read_cursor(cursor: str, filters: Filters) -> str:
    digest, last = read_cursor(cursor, 2)
    if digest != _digest(filters):
        raise InvalidSpecError("/cursor", "the cursor is of other filters; begin again without one")
    return last
