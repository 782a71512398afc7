"""Insertion of many rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table

_VALUES: Final = 32_766
"""Values in one statement, at most: as many as SQLite takes; PostgreSQL takes 65,535."""


def insert_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows, each with a value for every column of the table in its order."""
    insert_values(connection, table, tuple(chain.from_iterable(rows)))


def insert_values(
    connection: Connection,
    table: Table,
    values: Sequence[Any],
    same: Mapping[str, str | int | None] = MappingProxyType({}),
) -> None:
    """Insert rows, given as the values of the first one in the order of the table's columns, then those of
    the second one, and so on, without the columns of ``same``, which have one value in all rows.

    The values go to the driver as they are, in statements of many rows each: SQLAlchemy's own insertion looks
    at each value of each row, which takes longer than SQLite takes to store them. Few statements matter
    beside other threads: the driver gives up the interpreter's lock for each.
    """
    width = len(table.columns) - len(same)
    step = max(1, (_VALUES - len(same)) // width) * width
    given = {name: value for name, value in same.items() if value is not None}
    names = tuple(one.name for one in table.columns if one.name not in same)
    for start in range(0, len(values), step):
        some = values[start : start + step]
        statement = _statement(connection.dialect, table, tuple(given), names, len(some) // width)
        connection.exec_driver_sql(statement, (*given.values(), *some))


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
def _statement(
    dialect: Dialect, table: Table, same: tuple[str, ...], columns: tuple[str, ...], rows: int
) -> str:
    names = dialect.identifier_preparer
    into = f"{names.format_table(table)} ({', '.join(map(names.quote, (*same, *columns)))})"
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    row = f"({', '.join([mark] * len(columns))})"
    values = f"VALUES {', '.join([row] * rows)}"
    if not same:
        return f"INSERT INTO {into} {values}"
    # Both databases name the columns of VALUES so.
    chosen = [*[mark] * len(same), *(f"column{number}" for number in range(1, len(columns) + 1))]
    return f"INSERT INTO {into} SELECT {', '.join(chosen)} FROM ({values}) AS given"
