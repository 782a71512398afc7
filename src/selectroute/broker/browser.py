"""Browser of a queue: copies of its messages, from the first to the last, for one consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from selectroute.broker.mailbox import MailConsumer, MailDelivery, QueueMailbox
from selectroute.queues.message.record import StoredMessage
from selectroute.selector.errors import SelectRouteError

_MOST_READ: Final = 100
"""Messages that are read of the database at once, at most."""


class QueueBrowser:
    """Mailbox of a browser. Used by the event loop's thread alone.

    Args:
        queue: the queue.
        fed: called when messages were read, so that the browser can be fed.
    """

    def __init__(self, queue: QueueMailbox, fed: Callable[[QueueBrowser], None]) -> None:
        self.name = queue.name
        self.consumers: list[MailConsumer] = []
        self._queue = queue
        self._fed = fed
        self._after = -1
        self._read: list[StoredMessage] = []
        self._is_reading = False
        self._is_in_memory = queue.store is None

    def feed(self) -> None:
        """Give the consumer the next messages, first those of the database."""
        for consumer in self.consumers:
            while consumer.room > 0 and self._read:
                self._send(consumer, self._read.pop(0))
            if consumer.room <= 0 or self._is_reading:
                continue
            if self._is_in_memory:
                self._feed_of_memory(consumer)
            else:
                self._is_reading = True
                loop = asyncio.get_running_loop()
                future = loop.run_in_executor(None, self._next, consumer, min(consumer.room, _MOST_READ))
                future.add_done_callback(self._has_read)

    def put_back(self, delivery: MailDelivery, *, counts: bool) -> None:
        """Do nothing: the message is on its queue."""

    def _feed_of_memory(self, consumer: MailConsumer) -> None:
        while consumer.room > 0:
            lookup = consumer.lookup._replace(after=self._after)
            record = self._queue.memory.browse(lookup, None)
            if record is None:
                consumer.drain()
                return
            self._after = record.queue_key
            self._send(consumer, record)

    def _next(self, consumer: MailConsumer, most: int) -> list[StoredMessage]:
        """Return the next messages of the database."""
        store = self._queue.store
        assert store is not None
        listed = store.listed(consumer.lookup._replace(after=self._after), most)
        if not listed:
            return []
        self._after = listed[-1].queue_key
        whole = (store.at(record.queue_key) for record in listed)
        return [record for record in whole if record is not None]

    def _has_read(self, future: asyncio.Future[list[StoredMessage]]) -> None:
        self._is_reading = False
        error = future.exception()
        if error is not None and not isinstance(error, SelectRouteError):
            raise error
        self._read = [] if error is not None else future.result()
        if not self._read:
            self._is_in_memory, self._after = True, -1
        self._fed(self)

    @staticmethod
    def _send(consumer: MailConsumer, record: StoredMessage) -> None:
        consumer.recipient.send(MailDelivery(consumer, record, record.backout_count, is_copy=True))
