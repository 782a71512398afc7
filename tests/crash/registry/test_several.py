"""A short run of several services on one database, on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (the extra `service`)")

from tests.crash.programs.harness import sqlite_in
from tests.crash.programs.registry import several
from tests.support.components import POSTGRES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def test_a_service_that_is_killed_is_replaced_by_another(tmp_path, request, database):
    database_in = sqlite_in if database == "sqlite" else request.getfixturevalue("postgres")
    counts = several.run(tmp_path, seed=1, kills=2, database_in=database_in)
    assert counts["kills"] == 2
    assert counts["kills of the publisher"] >= 1
    assert counts["acknowledged changes"] > 20
