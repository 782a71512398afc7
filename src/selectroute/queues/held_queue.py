"""What queues have in common, whoever holds their messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from threading import local
from typing import Any, Protocol

from selectroute.queues.admission import Admitted, admit
from selectroute.queues.catalogue import Statistics
from selectroute.queues.errors import (
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_WAIT_INTERVAL_ERROR,
    failed,
)
from selectroute.queues.groups import Handle, Wanted
from selectroute.queues.held_cursor import HeldCursor
from selectroute.queues.held_unit import HeldUnit, check_own
from selectroute.queues.message import NO_ID, NO_TOKEN, UNLIMITED, Descriptor, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.queues.queue import Queue, Unit
from selectroute.queues.record import Record
from selectroute.queues.request import request_of
from selectroute.queues.settings import QueueSettings
from selectroute.queues.waiting import Waiter
from selectroute.selector.selector import Selector


class Held(Protocol):
    """Where the messages of a queue are, those in units too, and who waits for them.

    The units are those that ``begin`` made. Every method is safe for threads; those that fail raise MQError
    and change nothing.
    """

    settings: QueueSettings
    statistics: Statistics

    @property
    def depth(self) -> int:
        """How many messages could be got now."""

    def put(self, admitted: Admitted, unit: Any) -> Descriptor:
        """Give a message its place, on the queue or in the unit."""

    def take(self, wanted: Wanted, unit: Any, waiter: Waiter | None) -> Record | None:
        """Take what is wanted off the queue; if there is nothing, `waiter` waits for it."""

    def look(self, wanted: Wanted, waiter: Waiter | None) -> Record | None:
        """Return what is wanted and leave it there; if there is nothing, `waiter` waits for it."""

    def waited(self, waiter: Waiter, seconds: float) -> Record:
        """Wait until there is what the waiter waits for. Raises MQError 2033 when the time is over."""

    def at(self, place: int) -> Record | None:
        """Return the message in a place."""

    def take_at(self, place: int, unit: Any) -> Record | None:
        """Take the message in a place off the queue."""

    def begin(self) -> HeldUnit:
        """Begin a unit."""

    def end(self, unit: Any, *, commit: bool) -> None:
        """End a unit: its puts, or else its gets, are on the queue from now on."""

    def shown(self, record: Record) -> Message:
        """Return a message as it is given out."""

    def close(self) -> None:
        """Let go of everything; whoever waits is told."""


class HeldQueue(Queue):
    """A queue over what holds its messages. See `Queue` for what it does."""

    def __init__(self, holding: Held) -> None:
        self.settings = holding.settings
        self.statistics = holding.statistics
        self._holding = holding
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
        """Put a message and return its descriptor; see `Queue.put`."""
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
        """Take the first match off the queue; see `Queue.get`."""
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

    def cursor(self) -> HeldCursor:
        """Return a new cursor; see `Queue.cursor`."""
        return HeldCursor(self._look, self._holding)

    def unit(self) -> HeldUnit:
        """Begin a unit of work; see `Queue.unit`."""
        return self._holding.begin()

    @property
    def depth(self) -> int:
        """How many messages could be got now; see `Queue.depth`."""
        return self._holding.depth

    def close(self) -> None:
        """Close the queue; see `Queue.close`."""
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
