"""Messages with a delivery delay: they wait until they are due, persistent ones on a queue of their own.

Of a message on that queue the memory holds its time and its place. When it is due, it is taken and published
in one transaction.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

from selectroute.broker.addresses import Address, AddressKind
from selectroute.broker.mailbox import MailConsumer, MailDelivery, QueueMailbox
from selectroute.broker.message import PublishedMessage
from selectroute.queues.lookup import Lookup, Match
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import StoredMessage
from selectroute.selector.values import Long, Value

DELAYED: Final = "selectroute.delayed"
"""Name of the queue of persistent messages that are not due."""

_DUE: Final = "selectroute_due"
_ADDRESS: Final = "selectroute_address"
_MOST_AT_ONCE: Final = 1_000
_LONGEST_SECONDS: Final = 3_600.0
"""Longest time until the clock is read again: it may jump."""


class _Entry(NamedTuple):
    due: int
    number: int
    address: Address | None
    message: PublishedMessage | None
    """None for a message on the queue."""
    place: int


class DelayedMessages:
    """Messages that are not due. Used by the event loop's thread alone; a `Recipient` of the queue.

    Args:
        queue: the queue of persistent messages that are not due.
        publish: called with a message that is due, and its delivery if it was on the queue.
        look: takes messages of the database for a consumer, in the next transaction.
        clock: returns the seconds since 1970.
    """

    def __init__(
        self,
        queue: QueueMailbox,
        publish: Callable[[Address, PublishedMessage, MailDelivery | None], None],
        look: Callable[[QueueMailbox, MailConsumer], None],
        clock: Callable[[], float],
    ) -> None:
        self.queue = queue
        self._publish = publish
        self._look = look
        self._clock = clock
        self._entries: list[_Entry] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    room = 1
    is_draining = False

    def load(self) -> None:
        """Find what is on the queue since before this process. Blocks for a read of all of it."""
        store = self.queue.store
        assert store is not None
        lookup = Lookup(Match())
        while records := store.listed(lookup, _MOST_AT_ONCE):
            for record in records:
                due = (record.properties or {}).get(_DUE)
                self._entries.append(self._entry(due.value if isinstance(due, Long) else 0, record.queue_key))
            lookup = lookup._replace(after=records[-1].queue_key)
        heapq.heapify(self._entries)

    def put_of(self, address: Address, message: PublishedMessage, now_ms: int) -> ValidatedPut:
        """Return a message as the queue takes it."""
        put = message.put(now_ms)
        properties: dict[str, Value] = {**(put.properties or {})}
        properties[_DUE] = Long(message.due)
        properties[_ADDRESS] = f"{address.kind.value}://{address.name}"
        return put._replace(properties=properties)

    def add(self, address: Address, message: PublishedMessage) -> None:
        """Keep a message in memory until it is due."""
        self._push(_Entry(message.due, next(self._numbers), address, message, -1))

    def is_stored(self, record: StoredMessage, due: int) -> None:
        """Take note of a message on the queue."""
        self._push(self._entry(due, record.queue_key))

    def schedule(self) -> None:
        """Wait for the next message that is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._entries:
            seconds = min(max(self._entries[0].due / 1000 - self._clock(), 0.0), _LONGEST_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def send(self, delivery: MailDelivery) -> None:
        """Publish a message that was taken of the queue."""
        record = delivery.message
        assert isinstance(record, StoredMessage)
        text = (record.properties or {}).get(_ADDRESS)
        message = PublishedMessage.of_stored(record, (_DUE, _ADDRESS))
        address = Address.of(text if isinstance(text, str) else "", AddressKind.QUEUE)
        self._publish(address, message, delivery)

    def drained(self) -> None:
        """Do nothing: this recipient never drains."""

    def _due(self) -> None:
        """Publish what is due."""
        now = self._clock() * 1000
        for _ in range(_MOST_AT_ONCE):
            if not self._entries or self._entries[0].due > now:
                break
            entry = heapq.heappop(self._entries)
            if entry.message is not None and entry.address is not None:
                self._publish(entry.address, entry.message, None)
            else:
                self._take(entry.place)
        self.schedule()

    def _take(self, place: int) -> None:
        store = self.queue.store
        assert store is not None
        consumer = MailConsumer(self.queue, self, Lookup(Match(msg_token=store.token_of(place))))
        self._look(self.queue, consumer)

    def _entry(self, due: int, place: int) -> _Entry:
        return _Entry(due, next(self._numbers), None, None, place)

    def _push(self, entry: _Entry) -> None:
        heapq.heappush(self._entries, entry)
        if self._entries[0] is entry:
            self.schedule()
