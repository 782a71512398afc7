"""Queues: the calls of IBM MQ (MQPUT, MQGET, browse, syncpoint) over a store of messages.

`Queue` checks the arguments of a call once and converts them to a `Match`; a `MessageStore` stores and
finds the messages. There are two stores: `MemoryStore` and `SqlStore`. `BulkResult` is the result of a
call on many messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import local
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, Unpack

from selectroute.queues.errors import (
    MQRC_HCONN_ERROR,
    MQRC_INCONSISTENT_BROWSE,
    MQRC_MSG_TOKEN_ERROR,
    MQRC_NO_MSG_AVAILABLE,
    MQRC_NO_MSG_UNDER_CURSOR,
    MQRC_WAIT_INTERVAL_ERROR,
    failed,
)
from selectroute.queues.lookup import Handle, Lookup, LookupStatistics, MatchOptions, match_of, position_after
from selectroute.queues.message.message import UNLIMITED, Descriptor, QueuedMessage
from selectroute.queues.message.put_validation import ValidatedPut, validate_put
from selectroute.queues.message.record import ARRIVALS, StoredMessage
from selectroute.queues.settings import QueueSettings
from selectroute.queues.unit import UnitOfWork, UnitStore
from selectroute.queues.waiting import Waiter
from selectroute.selector.fields import NO_ID


class BulkPosition(NamedTuple):
    """Position from which a purge or a move goes on.

    It is the arrival number of the last message that matched at the beginning, and the key up to which
    all is done.
    """

    last_arrival: int = ARRIVALS
    after: int = -1

    def __str__(self) -> str:
        return f"{self.last_arrival}-{self.after}"

    @classmethod
    def of(cls, text: str) -> BulkPosition:
        """Return the position of a text, as `str` makes it."""
        return cls(*map(int, text.split("-", 1)))


@dataclass(frozen=True, slots=True)
class MessageCount:
    """Number of messages that match; if it is not exact, there are at least so many."""

    count: int
    exact: bool


@dataclass(slots=True)
class Stayed:
    """Numbers of matching messages that stayed on their queue, by reason.

    The other queue is `full`; the messages are `too_long` for it; or other calls got them, or were
    getting them (`in_use`).
    """

    full: int = 0
    too_long: int = 0
    in_use: int = 0

    @property
    def total(self) -> int:
        """Number of all of them."""
        return self.full + self.too_long + self.in_use


@dataclass(slots=True)
class BulkResult:
    """Result of a purge or a move: how many messages matched when it began, and how many are done.

    `position` is where to go on, null if all matches were dealt with.
    """

    matched: MessageCount
    done: int = 0
    stayed: Stayed = field(default_factory=Stayed)
    position: str | None = None

    @property
    def is_complete(self) -> bool:
        """True if all matches were dealt with."""
        return self.position is None

    def with_more(self, part: BulkResult) -> BulkResult:
        """Return the result of this and of what went on from its position."""
        ours, theirs = self.stayed, part.stayed
        stayed = Stayed(ours.full + theirs.full, ours.too_long + theirs.too_long, ours.in_use + theirs.in_use)
        return BulkResult(self.matched, self.done + part.done, stayed, part.position)


class MessageStore(UnitStore, Protocol):
    """Storage of a queue: its messages, those in units, and the waiting calls.

    Every method is safe for threads; one that fails raises MQError and changes nothing. Units always come
    from `begin_unit` of this store.
    """

    settings: QueueSettings
    statistics: LookupStatistics

    @property
    def depth(self) -> int:
        """Number of messages available to a get now."""

    def put(self, message: ValidatedPut, unit: UnitOfWork[Any] | None) -> Descriptor:
        """Store a message, on the queue or in the unit."""

    def take(
        self, lookup: Lookup, unit: UnitOfWork[Any] | None, waiter: Waiter | None
    ) -> StoredMessage | None:
        """Take the first match off the queue; without one, `wait` may follow, and misses no arrival."""

    def browse(self, lookup: Lookup, waiter: Waiter | None) -> StoredMessage | None:
        """Return the first match, left on the queue; without one, `wait` may follow, as after `take`."""

    def wait(self, waiter: Waiter, seconds: float) -> StoredMessage:
        """Wait for the message of a waiter. Raises MQError 2033 after the timeout."""

    def at(self, queue_key: int) -> StoredMessage | None:
        """Return the message with a key."""

    def take_at(self, queue_key: int, unit: UnitOfWork[Any] | None) -> StoredMessage | None:
        """Take the message with a key off the queue."""

    def begin_unit(self) -> UnitOfWork[Any]:
        """Begin a unit of work."""

    def to_message(self, record: StoredMessage) -> QueuedMessage:
        """Return a record as a message for callers, with its remaining expiry."""

    def close(self) -> None:
        """Wake all waiting calls, back out all units and free the store's resources."""


_made = tuple.__new__  # a NamedTuple's own constructor takes twice as long

StoreT = TypeVar("StoreT", bound=MessageStore)


class Queue(Generic[StoreT]):
    """Queue of messages, each got once: the first one, or the first with given ids or of a selector.

    Safe for any number of threads. Every call that fails raises `MQError` and changes nothing.
    """

    def __init__(self, store: StoreT) -> None:
        self.settings = store.settings
        self.statistics = store.statistics
        self._store = store
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
        syncpoint: UnitOfWork[Any] | None = None,
    ) -> Descriptor:
        """Put a message and return its descriptor.

        Without a `msg_id`, or with 24 zero bytes, a unique one is generated. `expiry` is in tenths of a
        second. `properties` are those of ``sr.Message``, and the headers that an application may set:
        JMSType, JMSReplyTo, JMSDestination, JMSCorrelationID and JMSXGroupID. The text of the last two also
        gives the 24 bytes of `correl_id` and `group_id` if these are not given. With `syncpoint` the message
        becomes visible when that unit is committed, at the position of the put.

        Raises MQError: 2004 for a body that is not bytes, 2013, 2018 for a unit of another queue, 2030 for a
        body or 2478 for properties beyond the limit, 2047, 2050, 2053 on a full queue, 2206, 2207, 2232,
        2250, 2251, 2258, 2442 for the name and 2473 for the value of a property.
        """
        ids = (msg_id, correl_id, group_id, msg_seq_number, offset, last_in_group)
        message = validate_put(self.settings, body, *ids, priority, persistence, expiry, properties)
        return self._store.put(message, None if syncpoint is None else self._own(syncpoint))

    def get(
        self,
        *,
        wait: float | None = None,
        logical_order: bool = False,
        syncpoint: UnitOfWork[Any] | None = None,
        **options: Unpack[MatchOptions],
    ) -> QueuedMessage:
        """Take the first message that matches all `MatchOptions` off the queue.

        `wait` is the number of seconds to wait for a match, ``math.inf`` without end. With `syncpoint` the
        message comes back unless that unit is committed.

        `logical_order`: each thread has a current group. Inside a group, its next message is got, whatever
        its position on the queue. Outside a group, only messages that begin a group or are not in one are
        eligible, and the group of the message becomes the current one. Options that do not apply must agree
        with the message.

        Raises MQError: 2033 if there is none, 2018 for a unit of another queue, 2090 for a negative wait,
        2206, 2207, 2232, 2247, 2250, 2251, 2258, 2331 for an invalid token or a wait for a token, 2459 or
        2551 for an invalid selector.
        """
        match = match_of(self.settings.dialect, **options)
        unit = None if syncpoint is None else self._own(syncpoint)
        handle = self._handle(logical_order) if logical_order or self._logical else None
        lookup = _made(Lookup, (match, -1, handle if logical_order else None))
        waiter = None if wait is None else _waiter(lookup, wait, unit=unit)
        record = self._store.take(lookup, unit, waiter) or self._waited(waiter, wait)
        if handle is not None and not logical_order:
            handle.position = None  # a get without logical order leaves the current group
        return self._store.to_message(record)

    def browse(
        self, *, wait: float | None = None, logical_order: bool = False, **options: Unpack[MatchOptions]
    ) -> QueuedMessage:
        """Return the message that `get` would, left on the queue; a `cursor` browses the next ones."""
        return self.cursor().next(wait=wait, logical_order=logical_order, **options)

    def cursor(self) -> Cursor:
        """Return a new cursor, before the first message."""
        return Cursor(self)

    def unit(self) -> UnitOfWork[Any]:
        """Begin a unit of work, for the `syncpoint` of puts and gets of this queue."""
        return self._store.begin_unit()

    @property
    def depth(self) -> int:
        """Number of messages available to a get now: not in units, and not expired."""
        return self._store.depth

    def __len__(self) -> int:
        return self.depth

    def close(self) -> None:
        """Close the queue: waiting calls fail, units are backed out, and further calls raise MQError 2019."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _own(self, unit: object) -> UnitOfWork[Any]:
        """Check that a unit was begun on this queue, and return it. Raises MQError 2018."""
        if not isinstance(unit, UnitOfWork) or not unit.belongs_to(self._store):
            raise failed(MQRC_HCONN_ERROR, "the unit of work belongs to another queue")
        return unit

    def _handle(self, logical_order: bool) -> Handle:
        """Return the handle of this thread, with its current group."""
        self._logical = self._logical or logical_order
        handle: Handle | None = getattr(self._threads, "handle", None)
        if handle is None:
            handle = self._threads.handle = Handle()
        return handle

    def _waited(self, waiter: Waiter | None, seconds: float | None) -> StoredMessage:
        """Wait for the message of a waiter. Raises MQError 2033 after the timeout, or without a waiter."""
        if waiter is None or seconds is None:
            raise failed(MQRC_NO_MSG_AVAILABLE)
        return self._store.wait(waiter, seconds)


class Cursor:
    """Position on a queue while it is browsed. Not safe for threads.

    For the arguments of `first` and `next` see `Queue.get`. Concurrent puts and gets do not affect the
    position: `next` returns the first match after it.
    """

    __slots__ = ("_begun", "_handle", "_logical", "_queue", "_queue_key", "_store")

    def __init__(self, queue: Queue[Any]) -> None:
        self._queue = queue
        self._store: MessageStore = queue._store
        self._queue_key = -1
        self._begun = -1
        self._handle = Handle()
        self._logical: bool | None = None

    def first(
        self, *, wait: float | None = None, logical_order: bool = False, **options: Unpack[MatchOptions]
    ) -> QueuedMessage:
        """Move to the first match on the queue and return it. Raises MQError 2033 without moving."""
        match = match_of(self._queue.settings.dialect, **options)
        return self._move(Lookup(match, -1, Handle() if logical_order else None), wait)

    def next(
        self, *, wait: float | None = None, logical_order: bool = False, **options: Unpack[MatchOptions]
    ) -> QueuedMessage:
        """Move to the next match after the cursor and return it; from a new cursor, to the first match.

        Raises MQError 2033 without moving; 2259 if `logical_order` has changed since the last call.
        """
        match = match_of(self._queue.settings.dialect, **options)
        if self._logical not in (None, logical_order):
            raise failed(MQRC_INCONSISTENT_BROWSE, "the cursor browses in the other order; begin with first")
        if logical_order:  # groups after the last one browsed, wherever its messages are
            return self._move(Lookup(match, self._begun, self._handle), wait)
        return self._move(Lookup(match, self._queue_key), wait)

    def under(self) -> QueuedMessage:
        """Return the message under the cursor. Raises MQError 2034 if there is none, or none any more."""
        return self._under(self._store.at(self._queue_key))

    def get_under(self, *, syncpoint: UnitOfWork[Any] | None = None) -> QueuedMessage:
        """Get the message under the cursor. Raises MQError 2034 if there is none, or none any more."""
        unit = None if syncpoint is None else self._queue._own(syncpoint)
        return self._under(self._store.take_at(self._queue_key, unit))

    def _under(self, record: StoredMessage | None) -> QueuedMessage:
        if record is None:
            raise failed(MQRC_NO_MSG_UNDER_CURSOR)
        return self._store.to_message(record)

    def _move(self, lookup: Lookup, wait: float | None) -> QueuedMessage:
        handle = lookup.handle
        waiter = None if wait is None else _waiter(lookup, wait, browses=True)
        record = self._store.browse(lookup, waiter) or self._queue._waited(waiter, wait)
        if handle is not None:
            if handle.position is None:
                self._begun = record.queue_key
            handle.position = position_after(record, handle.position)
            self._handle = handle
        self._queue_key = record.queue_key
        self._logical = handle is not None
        return self._store.to_message(record)


def _waiter(
    lookup: Lookup, wait: object, *, browses: bool = False, unit: UnitOfWork[Any] | None = None
) -> Waiter:
    """Return the waiter of a call that waits.

    Raises MQError 2090 for an invalid interval, 2331 with a token: its message never arrives later.
    """
    if isinstance(wait, bool) or not isinstance(wait, int | float) or math.isnan(wait) or wait < 0:
        raise failed(MQRC_WAIT_INTERVAL_ERROR, "a wait must be 0 seconds or more")
    if lookup.match.msg_token is not None:
        raise failed(MQRC_MSG_TOKEN_ERROR, "a call cannot wait for a token")
    return Waiter(lookup, browses=browses, unit=unit)
