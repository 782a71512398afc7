"""What several folders of tests share: one Spark session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")
    from selectroute.spark import JavaError, local_session

    try:
        session = local_session("tests", 2, log_level="OFF")
    except JavaError as error:
        pytest.skip(str(error))
    yield session
    session.stop()
