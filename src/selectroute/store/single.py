"""Autocommitted statements in SQLite, without SQLAlchemy's overhead for each.

With a disk that syncs quickly, the overhead is three times the cost of a statement by key. The statement is
still SQLAlchemy's, compiled once, with parameters.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.sql.base import Executable


class AutocommitStatements:
    """Connection whose statements are a transaction each. Not thread-safe: writers hold the store's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: PoolProxiedConnection | None = None
        self._compiled: dict[Executable, tuple[str, list[str], dict[str, Any]]] = {}

    def run(self, statement: Executable, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows as SQLite's driver does, once durable. Raises sqlite3.Error."""
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled[statement] = self._compile(statement)
        text, names, constants = compiled
        given = {**constants, **given}
        if self._connection is None:
            self._connection = self._engine.raw_connection()
            self._connection.detach()  # does not count against the pool's size
        cursor = self._connection.cursor()
        try:
            # The statement is a transaction by itself, committed when its last row is fetched.
            cursor.execute(text, [given[name] for name in names])
            return list(cursor.fetchall())
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _compile(self, statement: Any) -> tuple[str, list[str], dict[str, Any]]:
        compiled = statement.compile(dialect=self._engine.dialect)
        return str(compiled), list(compiled.positiontup or ()), dict(compiled.params)
