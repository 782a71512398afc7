"""Verification of stored rows: the log by its chain of digests, the view by the log."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, exists, func, literal_column, select, text, tuple_

from selectroute.registry.changes import Progress, Verified
from selectroute.registry.log.change_log import BLOCK, rows_after
from selectroute.registry.log.rows import checked_body, read_counter, subscriptions_with_state
from selectroute.registry.log.tables import change, label, request, row_seal, setting, subscription, token
from selectroute.selector.explain.sentences import counted
from selectroute.store.digests import START, row_digest
from selectroute.store.errors import DamagedError


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
