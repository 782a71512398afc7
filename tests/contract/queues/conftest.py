"""Every test of the contract runs on each kind of queue."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from selectroute.queues.memory import MemoryQueue
from selectroute.queues.queue import Queue
from tests.support.components import POSTGRES


class Clock:
    """A clock that stands still until it is moved; seconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made_in_memory(request: pytest.FixtureRequest) -> Callable[..., Queue]:
    return MemoryQueue


def made_in_sqlite(request: pytest.FixtureRequest) -> Callable[..., Queue]:
    return _made_in(f"sqlite:///{request.getfixturevalue('tmp_path')}/queues.db")


def made_in_postgresql(request: pytest.FixtureRequest) -> Callable[..., Queue]:
    return _made_in(request.getfixturevalue("postgres")())


def _made_in(url: str) -> Callable[..., Queue]:
    """What makes queues in one database, one after the other."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")
    from selectroute.queues.sql.queue import SqlQueue

    numbers = itertools.count()
    return lambda **settings: SqlQueue.create(url, f"Q{next(numbers)}", **settings)


KINDS: dict[str, Callable[[pytest.FixtureRequest], Callable[..., Queue]]] = {
    "memory": made_in_memory,
    "sqlite": made_in_sqlite,
    "postgresql": made_in_postgresql,
}
"""What makes an empty queue of each kind, from its settings and a clock."""


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=POSTGRES)])
def make(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Callable[..., Queue]]:
    """A function that makes an empty queue, on the clock."""
    opened: list[Queue] = []
    maker = KINDS[request.param](request)

    def made(**settings: Any) -> Queue:
        queue = maker(**({"clock": clock} | settings))
        opened.append(queue)
        return queue

    yield made
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(make: Callable[..., Queue]) -> Queue:
    return make()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of queues; in SQLite it is not there yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queues.db"
    made: Callable[[], str] = request.getfixturevalue("postgres")
    return made()
