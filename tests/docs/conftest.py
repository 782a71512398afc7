"""Folder in which the commands of pages run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import world
from tests.docs.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in a folder with messages and subscriptions; a stream in it routes what is there, and ends."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    world.fill(tmp_path)
    return Shell(tmp_path, **world.OF_A_JOB)
