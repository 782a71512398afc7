"""The databases of the registry's tests, behind a service."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.contract.registry.conftest import url  # noqa: F401
