"""The one row that says how far the registry is: newest revision, digest of the log, how many rows there are.

Whoever writes locks it, so that revisions are committed in their order.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from selectroute.registry.tables import counter
from selectroute.store.digests import START, sealed
from selectroute.store.errors import DamagedError


def counter_seal(revision: int, digest: bytes, changes: int, subscriptions: int) -> bytes:
    """The seal of the counter's row."""
    return sealed(revision, digest.hex(), changes, subscriptions)


def read_counter(connection: Connection, *, lock: bool = False) -> Any:
    """The counter's row, checked; with `lock`, nobody else begins a revision until this transaction ends."""
    statement = select(counter)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    if row is None or row.seal != counter_seal(row.revision, row.digest, row.changes, row.subscriptions):
        raise DamagedError("the table counter is damaged")
    return row


def first_counter() -> dict[str, Any]:
    """The counter's row of a new registry."""
    return {
        "name": "registry",
        "revision": 0,
        "digest": START,
        "changes": 0,
        "subscriptions": 0,
        "seal": counter_seal(0, START, 0, 0),
    }
