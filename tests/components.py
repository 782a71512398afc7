"""What some tests need and a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

POSTGRES = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]
"""Marks of tests on PostgreSQL: one server for all of a run."""


def missing(reason: str) -> NoReturn:
    """Skip the tests that need it; where SELECTROUTE_TESTS_NEED_ALL is set, as in .ci/run, they fail."""
    if os.environ.get("SELECTROUTE_TESTS_NEED_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)
