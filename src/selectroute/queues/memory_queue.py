"""A queue in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from selectroute.queues.errors import MQError
from selectroute.queues.groups import Wanted
from selectroute.queues.held_queue import HeldQueue
from selectroute.queues.holding import Holding
from selectroute.queues.message import NO_ID, NO_TOKEN, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.queues.request import request_of
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.queues.waiting import Waiter
from selectroute.selector.selector import Selector


class MemoryQueue(HeldQueue):
    """A queue that lives as long as its process. See `Queue` for what it does.

    >>> queue = MemoryQueue()
    >>> made = queue.put(b"hello", correl_id=b"order-7".ljust(24, b"\\0"), properties={"weight": 3000})
    >>> queue.get(selector="weight > 2500").body
    b'hello'

    A put or get is O(1) but for shared ids, with an index of what is asked for; so are `depth` and `unit`.
    ``statistics`` counts what lookups and wake-ups looked at. ``clock`` gives the seconds since 1970.
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
        self._memory = Holding(settings, clock)
        super().__init__(self._memory)

    def __repr__(self) -> str:
        try:
            depth = self.depth
        except MQError:  # it is closed
            return "MemoryQueue(closed)"
        return f"MemoryQueue({depth:,} message{'' if depth == 1 else 's'})"

    def get_later(
        self,
        deliver: Callable[[Message], None],
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        selector: str | Selector | None = None,
    ) -> Callable[[], bool]:
        """Wait as `get` does, but without a thread: `deliver` is called with the message, once.

        It is called by whoever puts the message, or here at once; it must be quick and not raise. Returns
        what ends the waiting, and says whether that was in time: if not, the message is delivered.
        """
        ids = (msg_id, correl_id, group_id, msg_seq_number, offset, NO_TOKEN)
        wanted = Wanted(request_of(match, *ids, selector, self.settings.dialect))
        holding = self._memory
        waiter = Waiter(wanted, deliver=lambda record: deliver(holding.shown(record)))
        record = holding.take(wanted, None, waiter)
        if record is not None:
            deliver(holding.shown(record))
        return lambda: holding.cancel(waiter)
