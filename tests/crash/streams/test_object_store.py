"""Short runs of a job in an object store; `tests.crash.programs.streams.object_store` has the long ones."""

from __future__ import annotations

import pytest

from tests.support.components import after_first

pytestmark = pytest.mark.application


@pytest.fixture(autouse=True)
def parts():
    for name in ("pyspark", "moto", "obstore", "deltalake"):
        pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
def test_of_two_drivers_the_one_that_stood_still_ends(tmp_path, kind):
    from tests.crash.programs.streams.object_store import run_two

    assert "0 lost, 0 twice" in run_two(tmp_path, 3, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind, kills", after_first(pytest.mark.nightly, ("s3", 1), ("azure", 2), ("gcs", 2)))
def test_a_job_that_is_killed_loses_nothing_in_a_store_that_fails(tmp_path, kind, kills):
    from tests.crash.programs.streams.object_store import run_kills

    assert "0 lost, 0 twice" in run_kills(tmp_path, kills=kills, seed=5, rate=0.03, store=kind)
