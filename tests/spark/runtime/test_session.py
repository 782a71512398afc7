"""A session of ours: what it keeps, and what it prints."""

import subprocess
import sys

import pytest


@pytest.mark.spark
def test_whoever_talks_to_a_session_needs_its_secret_which_no_setting_has(spark):
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.authenticate"] == settings["spark.network.crypto.enabled"] == "true"
    assert not [name for name in settings if "secret" in name]


@pytest.mark.slow
@pytest.mark.spark
def test_what_was_found_of_the_files_of_a_frame_is_not_kept_for_others(spark):
    package = spark.sparkContext._jvm.org.apache.spark.sql.execution.datasources
    caches = getattr(getattr(package, "FileStatusCache$"), "MODULE$")
    kept_by = caches.getOrCreate(spark._jsparkSession)
    assert kept_by.getClass().getSimpleName() == "NoopCache$"


@pytest.mark.slow
@pytest.mark.application
def test_a_session_that_starts_and_works_prints_nothing_of_its_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from selectroute.spark import local_session\n"
        "if __name__ == '__main__':\n"
        "    session = local_session('quiet', 1)\n"
        "    print(session.range(10).mapInArrow(lambda batches: batches, 'id long').count())\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
