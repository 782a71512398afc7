"""Whether everything that is stored is what was written: the log by its chain, the view by the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from selectroute.registry.changes import Verified
from selectroute.registry.log import rows_behind
from selectroute.registry.revision import read_counter
from selectroute.store.errors import DamagedError

Progress = Callable[[int, int], None]


def verify(connection: Connection, is_sqlite: bool, progress: Progress | None) -> Verified:
    """See `Registry.verify`."""
    newest = read_counter(connection)
    count = 0
    digest: Any = bytes(32)
    for row in rows_behind(connection, 0):
        count += 1
        digest = row.digest
    if digest != newest.digest or count != newest.changes:
        raise DamagedError("the table change has other rows at its end than the table counter says")
    return Verified(newest.revision, count, newest.subscriptions, newest.digest.hex())
