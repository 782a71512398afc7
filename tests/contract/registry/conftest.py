"""Every test of the contract runs on SQLite and on a real PostgreSQL; the latter where one can be started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.registry.registry import Registry
from tests.support.components import DATABASES, database_url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    return database_url(request, "registry")


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry.open(url) as opened:
        yield opened
