"""Mailboxes: where messages wait for consumers, and what consumers have and have not settled.

::

    TopicMailbox   a consumer of a topic, or several that share a subscription: messages in memory
    QueueMailbox   a queue: messages that are not persistent in memory, the others in the database

A mailbox gives its messages to its consumers in turn, as far as each has room. A consumer of a queue that has
room and finds nothing waits: the next message that its selector selects is reserved for it when it is put.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from selectroute.broker.message import PublishedMessage
from selectroute.queues.errors import queue_full
from selectroute.queues.lookup import Lookup, LookupStatistics
from selectroute.queues.memory import MemoryStore
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import StoredMessage, arrived
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.store import SqlStore
from selectroute.queues.waiting import Waiter, Waiters

MOST_TAKEN: Final = 200
"""Messages that are taken of the database for a consumer at once, at most."""

MOST_WAITING: Final = 10_000
MOST_WAITING_BYTES: Final = 64 << 20
"""Messages, and their bytes, that wait for a consumer of a topic; beyond, the oldest are dropped."""


class Recipient(Protocol):
    """End of a consumer that a protocol serves."""

    @property
    def room(self) -> int:
        """Number of messages that can be sent to it now."""

    @property
    def is_draining(self) -> bool:
        """True if it wants to know that there is no more message for it."""

    def send(self, delivery: MailDelivery) -> None:
        """Send a message."""

    def drained(self) -> None:
        """Tell it that there is no more message."""


@dataclass(slots=True, eq=False)
class MailDelivery:
    """Message that was sent to a consumer and is not settled.

    Attributes:
        consumer: the consumer.
        message: the message, published or stored.
        count: how many earlier deliveries of it failed.
    """

    consumer: MailConsumer
    message: PublishedMessage | StoredMessage
    count: int
    is_stored: bool = False
    """True if the message is in the database, owned by this process."""
    is_copy: bool = False
    """True if the message is still on its queue: the consumer browses."""
    size: int = 0
    """Bytes that were sent."""


class MailConsumer:
    """Consumer of a mailbox.

    Attributes:
        lookup: conditions on messages of a queue.
    """

    __slots__ = (
        "has_ended",
        "is_looking",
        "lookup",
        "mailbox",
        "may_find",
        "recipient",
        "reserved",
        "waiter",
    )

    def __init__(self, mailbox: Mailbox, recipient: Recipient, lookup: Lookup) -> None:
        self.mailbox = mailbox
        self.recipient = recipient
        self.lookup = lookup
        self.reserved = 0
        """Messages that are on their way to it through the database."""
        self.may_find = True
        """True until a look into the database has found no message more."""
        self.is_looking = False
        self.waiter: Waiter | None = None
        self.has_ended = False

    @property
    def room(self) -> int:
        """Number of messages that it can be sent."""
        return 0 if self.has_ended else self.recipient.room - self.reserved

    def send(self, message: PublishedMessage | StoredMessage, count: int, *, is_stored: bool = False) -> None:
        """Send it a message."""
        self.recipient.send(MailDelivery(self, message, count, is_stored))

    def drain(self) -> None:
        """Tell it that there is no more message, if it wants to know and none is on its way."""
        if not self.has_ended and self.recipient.is_draining and not self.is_looking and not self.reserved:
            self.recipient.drained()


class Mailbox(Protocol):
    """Mailbox with consumers."""

    name: str
    consumers: list[MailConsumer]

    def feed(self) -> None:
        """Give messages to consumers that have room."""

    def put_back(self, delivery: MailDelivery, *, counts: bool) -> None:
        """Take a message in memory back that a consumer did not process; `counts` if it tried."""


class TopicMailbox:
    """Messages of a topic for a consumer, or for several that share them. Not safe for threads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consumers: list[MailConsumer] = []
        self.dropped = 0
        """Messages that were dropped because too many waited."""
        self._waiting: deque[tuple[PublishedMessage, int]] = deque()
        self._bytes = 0

    def put(self, message: PublishedMessage) -> None:
        """Add a message."""
        self._waiting.append((message, 0))
        self._bytes += len(message.body)
        while len(self._waiting) > MOST_WAITING or self._bytes > MOST_WAITING_BYTES:
            self._next()
            self.dropped += 1

    def feed(self) -> None:
        """Give messages to consumers that have room."""
        waiting, consumers = self._waiting, self.consumers
        while waiting:
            consumer = next((candidate for candidate in consumers if candidate.room > 0), None)
            if consumer is None:
                return
            message, count = self._next()
            if not message.expiration or message.expiration > time.time() * 1000:
                consumer.send(message, count)
                if len(consumers) > 1:  # the next message is another consumer's
                    consumers.remove(consumer)
                    consumers.append(consumer)
        for consumer in consumers:
            consumer.drain()

    def put_back(self, delivery: MailDelivery, *, counts: bool) -> None:
        """Take a message back, before those that wait."""
        assert isinstance(delivery.message, PublishedMessage)
        self._waiting.appendleft((delivery.message, delivery.count + counts))
        self._bytes += len(delivery.message.body)

    def _next(self) -> tuple[PublishedMessage, int]:
        message, count = self._waiting.popleft()
        self._bytes -= len(message.body)
        return message, count


class QueueMailbox:
    """Queue with its consumers. Not safe for threads.

    Args:
        name: the name of the queue.
        settings: its settings.
        store: its messages in the database; None for a temporary queue, which is in memory.
        look: called to take messages for a consumer, in the next transaction.
        release: called with a message of the database for which there is no consumer any more.
        clock: returns the seconds since 1970.
    """

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        store: SqlStore | None,
        look: Callable[[QueueMailbox, MailConsumer], None],
        release: Callable[[MailDelivery], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.store = store
        self.consumers: list[MailConsumer] = []
        self.memory = MemoryStore(settings, clock)
        self._look = look
        self._release = release
        self._pending = 0
        self._seen: tuple[int, int] | None = None
        self._clock = clock
        self._waiters = Waiters(LookupStatistics())
        self._of_waiter: dict[Waiter, MailConsumer] = {}

    def put(self, put: ValidatedPut) -> None:
        """Add a message in memory."""
        self.memory.put(put, None)
        self._woken(put)

    def check_room(self, count: int) -> None:
        """Raise MQError 2053 if the memory has no room for so many messages."""
        limit = self.memory.settings.max_depth
        if limit is not None and self.memory.depth + count > limit:
            raise queue_full(limit, self.name)

    def begin_put(self, put: ValidatedPut) -> MailConsumer | None:
        """Return the waiting consumer that gets a message on its way to the database; it keeps room for it.

        Without one, consumers look for the message when it is there. While they shall look for an earlier
        message none is returned, so that the order is kept.
        """
        consumer = None if self._pending else self._woken(put)
        if consumer is None:
            self._pending += 1
        else:
            consumer.reserved += 1
        return consumer

    def end_put(self, record: StoredMessage | None, consumer: MailConsumer | None) -> None:
        """Take note that a message is in the database, or None if it is not, and send it to its consumer."""
        if consumer is None:
            self.end_return()
        else:
            consumer.reserved -= 1
            if record is not None:
                self._send(consumer, record)

    @property
    def is_waited_on(self) -> bool:
        """True if a consumer waits for a message, which another process may put to the database."""
        return self.store is not None and self._waiters.count > 0

    def end_watch(self, changes: tuple[int, int]) -> bool:
        """Have consumers look again if the queue has changed in the database; return whether it has."""
        has_changed, self._seen = changes != self._seen, changes
        if has_changed:
            self._look_again()
        return has_changed

    def begin_return(self) -> None:
        """Take note that a message is going back to its place in the database."""
        self._pending += 1

    def end_return(self) -> None:
        """Have consumers look for a message that is there now."""
        self._pending -= 1
        self._look_again()

    def _look_again(self) -> None:
        for consumer in self.consumers:
            consumer.may_find = True

    def _woken(self, put: ValidatedPut) -> MailConsumer | None:
        """Return a waiting consumer that wants a message; it does not wait any more."""
        if not self._waiters.count:
            return None
        record = arrived(put, 0, False, b"", int(self._clock() * 1000))
        for waiter in self._waiters.offer(record):
            consumer = self._of_waiter.pop(waiter)
            consumer.waiter = None
            return consumer
        return None

    def _send(self, consumer: MailConsumer, record: StoredMessage) -> None:
        """Send a message of the database; if the consumer has ended meanwhile, it goes back."""
        if consumer.has_ended:
            self._release(MailDelivery(consumer, record, record.backout_count, is_stored=True))
        else:
            consumer.send(record, record.backout_count, is_stored=True)
            self._turn(consumer)

    def feed(self) -> None:
        """Give messages in memory to consumers that have room, and look for more of them in the database."""
        going = [consumer for consumer in self.consumers if consumer.room > 0]
        while going:
            for consumer in list(going):
                record = self.memory.take(consumer.lookup, None, None) if self.memory.depth else None
                if record is not None:
                    consumer.send(record, record.backout_count)
                    self._turn(consumer)
                if record is None or consumer.room <= 0:
                    going.remove(consumer)
        for consumer in self.consumers:
            if consumer.room > 0 and consumer.may_find and self.store is not None:
                if not consumer.is_looking:
                    consumer.is_looking = True
                    self.stop_waiting(consumer)
                    self._look(self, consumer)
                continue
            if consumer.room > 0:
                consumer.drain()  # which takes its room
            if consumer.room > 0:
                self._wait(consumer)
            else:
                self.stop_waiting(consumer)

    def end_look(self, consumer: MailConsumer, records: list[StoredMessage], most: int) -> None:
        """Give a consumer what a look into the database has found."""
        consumer.is_looking = False
        # What was put meanwhile is looked for again.
        consumer.may_find = len(records) == most or self._pending > 0
        for record in records:
            self._send(consumer, record)

    def put_back(self, delivery: MailDelivery, *, counts: bool) -> None:
        """Take a message in memory back to its place."""
        assert isinstance(delivery.message, StoredMessage)
        self.memory.put_back(delivery.message, counts=counts)

    def _turn(self, consumer: MailConsumer) -> None:
        """Let the next message be another consumer's."""
        if len(self.consumers) > 1 and consumer in self.consumers:
            self.consumers.remove(consumer)
            self.consumers.append(consumer)

    def _wait(self, consumer: MailConsumer) -> None:
        if consumer.waiter is None:
            consumer.waiter = Waiter(consumer.lookup)
            self._waiters.add(consumer.waiter)
            self._of_waiter[consumer.waiter] = consumer

    def stop_waiting(self, consumer: MailConsumer) -> None:
        """Reserve no message for a consumer, until it waits again."""
        if consumer.waiter is not None:
            self._waiters.remove(consumer.waiter)
            del self._of_waiter[consumer.waiter]
            consumer.waiter = None
