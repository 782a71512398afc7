"""Every test of the contract runs on each kind of queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from selectroute.queues.memory_queue import MemoryQueue
from selectroute.queues.queue import Queue


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


KINDS: dict[str, Callable[[pytest.FixtureRequest], Callable[..., Queue]]] = {"memory": made_in_memory}
"""What makes an empty queue of each kind, from its settings and a clock."""


@pytest.fixture(params=list(KINDS))
def make(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Callable[..., Queue]]:
    """A function that makes an empty queue, on the clock."""
    opened: list[Queue] = []

    def made(**settings: Any) -> Queue:
        queue = KINDS[request.param](request)(**({"clock": clock} | settings))
        opened.append(queue)
        return queue

    yield made
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(make: Callable[..., Queue]) -> Queue:
    return make()
