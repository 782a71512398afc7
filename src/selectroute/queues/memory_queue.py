"""A queue in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from threading import local
from typing import Literal

from selectroute.queues.admission import admit
from selectroute.queues.catalogue import Statistics
from selectroute.queues.errors import (
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_WAIT_INTERVAL_ERROR,
    failed,
)
from selectroute.queues.groups import Handle, Wanted
from selectroute.queues.holding import Holding, check_own
from selectroute.queues.memory_cursor import MemoryCursor
from selectroute.queues.memory_unit import MemoryUnit
from selectroute.queues.message import NO_ID, NO_TOKEN, UNLIMITED, Descriptor, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.queues.queue import Queue, Unit
from selectroute.queues.record import Record
from selectroute.queues.request import request_of
from selectroute.queues.settings import MAX_MESSAGE_LENGTH, QueueSettings
from selectroute.queues.waiting import Waiter
from selectroute.selector.selector import Selector


class MemoryQueue(Queue):
    """A queue that lives as long as its process. See `Queue` for what it does.

    >>> queue = MemoryQueue()
    >>> made = queue.put(b"hello", correl_id=b"order-7".ljust(24, b"\\0"), properties={"weight": 3000})
    >>> queue.get(selector="weight > 2500").body
    b'hello'

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
        self.settings = QueueSettings(
            order, default_priority, default_persistence, max_depth, max_message_length, dialect
        )
        self._holding = Holding(self.settings, clock)
        self.statistics: Statistics = self._holding.statistics
        self._threads = local()
        self._logical = False

    def put(
        self,
        body: bytes = b"",
        *,
        msg_id: bytes | None = None,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        last_in_group: bool = False,
        priority: int | None = None,
        persistence: bool | None = None,
        expiry: int = UNLIMITED,
        properties: Mapping[str, object] | None = None,
        syncpoint: Unit | None = None,
    ) -> Descriptor:
        """Put a message and return its descriptor; see `Queue.put`. O(1) but for shared ids."""
        ids = (msg_id, correl_id, group_id, msg_seq_number, offset, last_in_group)
        admitted = admit(self.settings, body, *ids, priority, persistence, expiry, properties)
        return self._holding.put(admitted, None if syncpoint is None else check_own(syncpoint, self._holding))

    def get(
        self,
        match: int = DEFAULT_MATCH,
        *,
        msg_id: bytes = NO_ID,
        correl_id: bytes = NO_ID,
        group_id: bytes = NO_ID,
        msg_seq_number: int = 1,
        offset: int = 0,
        msg_token: bytes = NO_TOKEN,
        selector: str | Selector | None = None,
        wait: float | None = None,
        logical_order: bool = False,
        syncpoint: Unit | None = None,
    ) -> Message:
        """Take the first match off the queue; see `Queue.get`. O(1), with an index of what is asked for."""
        request = request_of(
            match,
            msg_id,
            correl_id,
            group_id,
            msg_seq_number,
            offset,
            msg_token,
            selector,
            self.settings.dialect,
        )
        unit = None if syncpoint is None else check_own(syncpoint, self._holding)
        handle = self._handle(logical_order) if logical_order or self._logical else None
        wanted = Wanted(request, -1, handle if logical_order else None)
        waiter = None if wait is None else Waiter(wanted, unit=unit)
        if wait is not None:
            check_wait(wanted, wait)
        record = self._holding.take(wanted, unit, waiter)
        if record is None:
            if waiter is None or wait is None:
                raise failed(MQRC_NO_MSG_AVAILABLE)
            record = self._holding.waited(waiter, wait)
        if handle is not None and not logical_order:
            handle.position = None  # whoever gets something else leaves the group that was begun
        return self._holding.shown(record)

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
        holding = self._holding
        waiter = Waiter(wanted, deliver=lambda record: deliver(holding.shown(record)))
        record = holding.take(wanted, None, waiter)
        if record is not None:
            deliver(holding.shown(record))
        return lambda: holding.cancel(waiter)

    def cursor(self) -> MemoryCursor:
        """Return a new cursor; see `Queue.cursor`."""
        return MemoryCursor(self._look, self._holding)

    def unit(self) -> MemoryUnit:
        """Begin a unit of work; see `Queue.unit`."""
        return MemoryUnit(self._holding)

    @property
    def depth(self) -> int:
        """How many messages could be got now; see `Queue.depth`. O(1)."""
        return self._holding.depth

    def close(self) -> None:
        """Close the queue and let its messages go; see `Queue.close`."""
        self._holding.close()

    def _look(self, wanted: Wanted, wait: float | None) -> Record:
        """Browse for a cursor: what is wanted, left where it is."""
        waiter = None if wait is None else Waiter(wanted, browses=True)
        if wait is not None:
            check_wait(wanted, wait)
        record = self._holding.look(wanted, waiter)
        if record is None:
            if waiter is None or wait is None:
                raise failed(MQRC_NO_MSG_AVAILABLE)
            record = self._holding.waited(waiter, wait)
        return record

    def _handle(self, logical_order: bool) -> Handle:
        """The handle of this thread, which is in a group of its own."""
        self._logical = self._logical or logical_order
        handle: Handle | None = getattr(self._threads, "handle", None)
        if handle is None:
            handle = self._threads.handle = Handle()
        return handle


def check_wait(wanted: Wanted, wait: object) -> None:
    """Check how long to wait. Raises MQError 2090, and 2331 with a token: that is there now or never."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or math.isnan(wait) or wait < 0:
        raise failed(MQRC_WAIT_INTERVAL_ERROR, "a wait is 0 seconds or more")
    if wanted.request.msg_token is not None:
        raise failed(MQRC_MSG_TOKEN_ERROR, "nothing waits for a token")
