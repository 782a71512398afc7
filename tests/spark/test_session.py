"""What a session of ours does not keep of batches that are done."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_what_was_found_of_the_files_of_a_frame_is_not_kept_for_others(spark):
    package = spark.sparkContext._jvm.org.apache.spark.sql.execution.datasources
    caches = getattr(getattr(package, "FileStatusCache$"), "MODULE$")
    kept_by = caches.getOrCreate(spark._jsparkSession)
    assert kept_by.getClass().getSimpleName() == "NoopCache$"
