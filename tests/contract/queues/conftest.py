"""Every test of the contract runs on each kind of queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from selectroute.queues.memory import MemoryQueue
from selectroute.queues.queue import Queue
from selectroute.queues.settings import QueueSettings
from tests.support.components import DATABASES, database_url


class Clock:
    """A clock that stands still until it is moved; seconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made_in(url: str) -> Callable[..., Queue]:
    """What makes queues in one database, one after the other."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    from selectroute.queues.sql.queue import SqlQueue

    numbers = itertools.count()
    return lambda settings, clock: SqlQueue.create(url, f"Q{next(numbers)}", settings, clock=clock)


@pytest.fixture(params=["memory", *DATABASES])
def make(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Callable[..., Queue]]:
    """A function that makes an empty queue, on the clock."""
    opened: list[Queue] = []
    maker: Any = MemoryQueue if request.param == "memory" else made_in(database_url(request, "queues"))

    def made(**settings: Any) -> Queue:
        opened.append(maker(QueueSettings(**settings), clock=clock))
        return opened[-1]

    yield made
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(make: Callable[..., Queue]) -> Queue:
    return make()


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a database of queues."""
    return database_url(request, "queues")
