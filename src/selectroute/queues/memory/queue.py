"""Queue in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from selectroute.queues.errors import MQError
from selectroute.queues.memory.store import MemoryStore
from selectroute.queues.queue import Queue
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings


class MemoryQueue(Queue[MemoryStore]):
    """Queue in the memory of its process. See `Queue` for its methods.

    >>> queue = MemoryQueue()
    >>> made = queue.put(b"hello", correl_id=b"order-7".ljust(24, b"\\0"), properties={"weight": 3000})
    >>> queue.get(selector="weight > 2500").body
    b'hello'

    A put or get is O(1) except for shared ids, if its fields are indexed; so are `depth` and `unit`.
    ``statistics`` counts the comparisons of lookups and wake-ups. ``clock`` returns the seconds since 1970.
    """

    def __init__(
        self,
        *,
        order: Literal["priority", "fifo"] = "priority",
        default_priority: int = 4,
        default_persistence: bool = False,
        max_depth: int | None = None,
        max_message_length: int = MAX_MESSAGE_LENGTH,
        dialect: str = "ibm-jms",
        clock: Callable[[], float] = time.time,
    ) -> None:
        settings = QueueSettings(
            order, default_priority, default_persistence, max_depth, max_message_length, dialect
        )
        super().__init__(MemoryStore(settings, clock))

    def __repr__(self) -> str:
        try:
            depth = self.depth
        except MQError:  # it is closed
            return "MemoryQueue(closed)"
        return f"MemoryQueue({depth:,} message{'' if depth == 1 else 's'})"
