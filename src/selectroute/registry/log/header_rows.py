"""Header of a registry, one row: newest revision, digest of the log, counts of changes and subscriptions.

Each writer locks the row, so that revisions are committed in order.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from selectroute.registry.log.tables import counter, row_seal, setting
from selectroute.store.digests import START, row_digest
from selectroute.store.errors import DamagedError

# Built once: building a statement takes longer than executing it.
_COUNTER: Final = select(counter)
_COUNTER_LOCKED: Final = _COUNTER.with_for_update()
_UPDATE: Final = update(counter).values(
    {one.name: bindparam(one.name) for one in counter.columns if one.name != "name"}
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
