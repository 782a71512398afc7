"""A database behind a service: SQLite, at night also PostgreSQL. Both are held to the registry's contract."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import POSTGRES, database_url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[*POSTGRES, pytest.mark.nightly])])
def url(request: pytest.FixtureRequest) -> str:
    return database_url(request, "registry")
