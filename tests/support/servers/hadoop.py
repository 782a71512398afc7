"""Hadoop for tests: one that is missing is a reason to skip, or a failure where nothing may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.components import missing


@contextmanager
def hadoop(folders: pytest.TempPathFactory, *, yarn: bool = False) -> Iterator[Any]:
    """HDFS with one node, and YARN if wanted."""
    pytest.importorskip("pyspark", reason="PySpark, whose Ivy fetches Hadoop, is not installed")
    from selectroute.selector.errors import SelectRouteError
    from selectroute.testing.hadoop import running

    try:
        with running(folders.mktemp("hadoop") / ("yarn" if yarn else "hdfs"), yarn=yarn) as found:
            yield found
    except SelectRouteError as error:
        missing(str(error))
