"""Settings of a registry: its format, its own id, the folder that it is published to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select

from selectroute.registry.tables import setting
from selectroute.store.digests import sealed
from selectroute.store.errors import DamagedError


def read_setting(connection: Connection, name: str) -> str | None:
    """A setting's value, None if it is not set. Raises `DamagedError`."""
    row = connection.execute(select(setting).where(setting.c.name == name)).one_or_none()
    if row is None:
        return None
    if row.seal != setting_seal(row):
        raise DamagedError(f"the table setting is damaged in the row of {name!r}")
    value: str = row.value
    return value


def write_setting(connection: Connection, name: str, value: str | None) -> None:
    """Set a setting; None unsets it."""
    connection.execute(delete(setting).where(setting.c.name == name))
    if value is not None:
        row = {"name": name, "value": value, "seal": sealed(name, value)}
        connection.execute(insert(setting), row)


def setting_seal(row: Any) -> bytes:
    """The seal of a row of the table ``setting``."""
    return sealed(row.name, row.value)
