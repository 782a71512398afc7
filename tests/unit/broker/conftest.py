"""A broker in a thread, on a database of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.components import DATABASES, database_url
from tests.support.running_broker import RunningBroker


@pytest.fixture(params=DATABASES)
def url(request):
    return database_url(request, "broker")


@pytest.fixture
def start(url, tmp_path):
    """A function that starts a broker on the database of the test."""
    running: list[RunningBroker] = []

    def starting() -> RunningBroker:
        running.append(RunningBroker(url, tmp_path / "snapshots"))
        return running[-1]

    yield starting
    for broker in running:
        broker.stop()


@pytest.fixture
def broker(start):
    return start()
