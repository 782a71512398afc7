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
    world.write_messages(tmp_path)
    world.publish_subscriptions(tmp_path)
    return Shell(
        tmp_path,
        SELECTROUTE_AVAILABLE_NOW="1",
        SELECTROUTE_MAX_MESSAGE_BYTES=world.LIMIT,
    )
