"""Insertion of many rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table

_VALUES: Final = 32_766
"""Values in one statement, at most: as many as SQLite takes; PostgreSQL takes 65,535."""


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


@contextmanager
def indexes_later(connection: Connection, tables: Sequence[Table]) -> Iterator[None]:
    """Drop the indexes of these tables, and create them again at the end of the block, in the same
    transaction: for a block that inserts at least as many rows as the tables have. Unique and partial indexes
    stay. Does nothing in PostgreSQL, where dropping an index waits for all readers.

    SQLite sorts the rows of a new index, outside of memory if there are many, which takes a fraction of what
    inserting each at its place takes. Readers have the indexes of their own state of the database. If the
    block raises, the transaction must be rolled back.
    """
    dropped = []
    if connection.dialect.name == "sqlite":
        for table in tables:
            dropped += [
                one
                for one in sorted(table.indexes, key=lambda index: str(index.name))
                if not one.unique and one.dialect_options["sqlite"]["where"] is None
            ]
    for index in dropped:
        index.drop(connection)
    yield
    for index in dropped:
        index.create(connection)


@lru_cache(maxsize=64)
def _statement(dialect: Dialect, table: Table, rows: int) -> str:
    names = dialect.identifier_preparer
    columns = ", ".join(names.format_column(one) for one in table.columns)
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    row = f"({', '.join([mark] * len(table.columns))})"
    return f"INSERT INTO {names.format_table(table)} ({columns}) VALUES {', '.join([row] * rows)}"
