"""Browsing a queue, wherever its messages are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from selectroute.queues.errors import MQRC_INCONSISTENT_BROWSE, MQRC_NO_MSG_UNDER_CURSOR, failed
from selectroute.queues.groups import Handle, Wanted, position_after
from selectroute.queues.held_unit import check_own
from selectroute.queues.message import NO_ID, NO_TOKEN, Message
from selectroute.queues.options import DEFAULT_MATCH
from selectroute.queues.record import PLACE, Record
from selectroute.queues.request import request_of
from selectroute.selector.selector import Selector

if TYPE_CHECKING:
    from selectroute.queues.held_queue import Held
    from selectroute.queues.queue import Unit


class HeldCursor:
    """A place on a queue; see `Cursor`."""

    __slots__ = ("_begun", "_handle", "_holding", "_logical", "_look", "_place")

    def __init__(self, look: Callable[[Wanted, float | None], Record], holding: Held) -> None:
        self._look = look
        self._holding = holding
        self._place = -1
        self._begun = -1
        self._handle = Handle()
        self._logical: bool | None = None

    def first(
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
    ) -> Message:
        """Return the first match on the queue; see `Cursor.first`."""
        ids = (msg_id, correl_id, group_id, msg_seq_number, offset, msg_token)
        request = request_of(match, *ids, selector, self._holding.settings.dialect)
        return self._browse(Wanted(request, -1, Handle() if logical_order else None), wait)

    def next(
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
    ) -> Message:
        """Return the next match behind the cursor; see `Cursor.next`."""
        ids = (msg_id, correl_id, group_id, msg_seq_number, offset, msg_token)
        request = request_of(match, *ids, selector, self._holding.settings.dialect)
        if self._logical not in (None, logical_order):
            raise failed(MQRC_INCONSISTENT_BROWSE, "the cursor browses in the other order; begin with first")
        if logical_order:  # the groups behind the one that was browsed last, wherever its messages stand
            return self._browse(Wanted(request, self._begun, self._handle), wait)
        return self._browse(Wanted(request, self._place), wait)

    def _browse(self, wanted: Wanted, wait: float | None) -> Message:
        record = self._look(wanted, wait)
        handle = wanted.handle
        if handle is not None:
            if handle.position is None:
                self._begun = record[PLACE]
            handle.position = position_after(record, handle.position)
            self._handle = handle
        self._place = record[PLACE]
        self._logical = handle is not None
        return self._holding.shown(record)

    def under(self) -> Message:
        """Return the message on which the cursor stands; see `Cursor.under`."""
        record = self._holding.at(self._place)
        if record is None:
            raise failed(MQRC_NO_MSG_UNDER_CURSOR)
        return self._holding.shown(record)

    def get_under(self, *, syncpoint: Unit | None = None) -> Message:
        """Get the message on which the cursor stands; see `Cursor.get_under`."""
        unit = None if syncpoint is None else check_own(syncpoint, self._holding)
        record = self._holding.take_at(self._place, unit)
        if record is None:
            raise failed(MQRC_NO_MSG_UNDER_CURSOR)
        return self._holding.shown(record)
