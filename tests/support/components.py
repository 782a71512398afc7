"""What some tests need and a machine may lack."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import pytest

NIGHTLY = bool(os.environ.get("SELECTROUTE_TESTS_NIGHTLY"))
"""True in .ci/nightly, where tests of generated work do more of it."""

POSTGRES = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]
"""Marks of tests on PostgreSQL: one server for all of a run."""

DATABASES = ["sqlite", pytest.param("postgresql", marks=POSTGRES)]
"""Kinds of databases, as parameters of a test or a fixture."""

KAFKA = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]
"""Marks of tests on Kafka: one broker for all of them, another for those that use Spark, too."""


def after_first(mark: pytest.MarkDecorator, *cases: object) -> list[Any]:
    """Return cases of a test, all of which but the first carry a mark: the first is for the tier before."""
    return [
        cases[0],
        *(pytest.param(*(case if isinstance(case, tuple) else [case]), marks=mark) for case in cases[1:]),
    ]


def database_url(request: pytest.FixtureRequest, name: str) -> str:
    """The URL of a database of the kind that is the parameter of a fixture; in SQLite it is not there yet."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres")())
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/{name}.db"


def required() -> bool:
    """Whether nothing may be missing: SELECTROUTE_TESTS_NEED_ALL is set, as in .ci/run."""
    return bool(os.environ.get("SELECTROUTE_TESTS_NEED_ALL"))


def missing(reason: str) -> NoReturn:
    """Skip the tests that need it; where nothing may be missing they fail."""
    if required():
        pytest.fail(reason)
    pytest.skip(reason)
