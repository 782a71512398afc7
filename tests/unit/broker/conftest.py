"""A broker in a thread, on a database of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from tests.support.running_broker import RunningBroker


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/broker.db"


@pytest.fixture
def start(url):
    """A function that starts a broker on the database of the test."""
    running: list[RunningBroker] = []

    def starting() -> RunningBroker:
        running.append(RunningBroker(url))
        return running[-1]

    yield starting
    for broker in running:
        broker.stop()


@pytest.fixture
def broker(start):
    return start()
