"""The storages and table formats that a job may have: tests of what a job does are the same on each."""

import pytest

_HERE_AND_S3 = [
    "parquet",
    pytest.param("delta", marks=pytest.mark.nightly),
    pytest.param("s3", marks=pytest.mark.nightly),
]
_HDFS = pytest.param("hdfs", marks=[pytest.mark.nightly, pytest.mark.xdist_group("hadoop")])

ON_EVERY_STORAGE = pytest.mark.parametrize("world", _HERE_AND_S3, indirect=True)
"""Mark of tests whose `world` is on this machine, with tables of either format, and in an object store."""

ON_HDFS_TOO = pytest.mark.parametrize("world", [*_HERE_AND_S3, _HDFS], indirect=True)
"""Mark of tests whose `world` is on HDFS, too, where each of them takes ten seconds: one of each kind."""
