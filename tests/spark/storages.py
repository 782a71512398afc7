"""The storages and table formats that a job may have: tests of what a job does are the same on each."""

from __future__ import annotations

import pytest

ON_EVERY_STORAGE = pytest.mark.parametrize(
    "world",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.nightly),
        pytest.param("s3", marks=pytest.mark.nightly),
        pytest.param("hdfs", marks=[pytest.mark.nightly, pytest.mark.xdist_group("hadoop")]),
    ],
    indirect=True,
)
"""Mark of tests whose `world` is on each of them."""
