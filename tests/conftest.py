"""What several folders of tests share: one Spark session for the whole run."""

from __future__ import annotations

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
