"""A database behind a service: SQLite, at night also PostgreSQL. Both are held to the registry's contract."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import POSTGRES


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[*POSTGRES, pytest.mark.nightly])])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/registry.db"
    return str(request.getfixturevalue("postgres")())
