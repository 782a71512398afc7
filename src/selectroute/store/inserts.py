"""Insertion of many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table

_VALUES: Final = 4_096
"""Values in one statement, at most; SQLite takes 32,766, PostgreSQL 65,535."""


def insert_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with a value for every column of the table in its order.

    The values go to the driver as they are, in statements of many rows each: SQLAlchemy's own insertion looks
    at each value of each row, which takes longer than SQLite takes to store them. Few statements matter
    beside other threads: the driver gives up the interpreter's lock for each.
    """
    at_once = max(1, _VALUES // len(table.columns))
    for start in range(0, len(rows), at_once):
        some = rows[start : start + at_once]
        connection.exec_driver_sql(
            _statement(connection.dialect, table, len(some)), tuple(chain.from_iterable(some))
        )


@lru_cache(maxsize=64)
def _statement(dialect: Dialect, table: Table, rows: int) -> str:
    names = dialect.identifier_preparer
    columns = ", ".join(names.format_column(one) for one in table.columns)
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    row = f"({', '.join([mark] * len(table.columns))})"
    return f"INSERT INTO {names.format_table(table)} ({columns}) VALUES {', '.join([row] * rows)}"
