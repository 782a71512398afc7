"""Every test of the contract runs on SQLite and on a real PostgreSQL; the latter where one can be started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.registry.registry import Registry
from tests.support.components import POSTGRES


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/registry.db"
    return str(request.getfixturevalue("postgres")())


@pytest.fixture
def registry(url: str) -> Iterator[Registry]:
    with Registry.open(url) as opened:
        yield opened
