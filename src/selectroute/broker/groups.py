"""Group commit: what has arrived while a transaction ran is the next transaction.

The event loop collects works and looks; one thread runs them, a group at a time. A group begins as soon as
the one before is durable, so a lone sender waits for a commit only, and many share one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from selectroute.broker.mailbox import MOST_TAKEN, MailConsumer, QueueMailbox
from selectroute.queues.errors import MQRC_BACKED_OUT, MQError
from selectroute.queues.sql.transaction import QueueTake, QueueWork, transact
from selectroute.selector.errors import SelectRouteError
from selectroute.store.errors import StoreError

MOST_WORKS: Final = 1_000
"""Works in a transaction, at most."""

RETRY_SECONDS: Final = 0.5
"""Time before settlements that the database refused are written again."""

CLOSE_SECONDS: Final = 10.0

Done = Callable[[SelectRouteError | None], None]
"""Called when a work is durable, or with the error for which it was not done."""


class _Item(NamedTuple):
    work: QueueWork
    done: Done


class _Look(NamedTuple):
    mailbox: QueueMailbox
    consumer: MailConsumer
    take: QueueTake


class Groups:
    """Transactions on the queues, one after the other. Used by the event loop's thread.

    Args:
        looked: called with each mailbox in which a look has ended.
        finished: called after each transaction, when all is given to those that wait for it.
        failed: called if another process considered this one dead: it owns no message any more.
    """

    def __init__(
        self,
        looked: Callable[[QueueMailbox], None],
        finished: Callable[[], None],
        failed: Callable[[MQError], None],
    ) -> None:
        self._looked = looked
        self._finished = finished
        self._failed = failed
        self._items: list[_Item] = []
        self._looking: list[tuple[QueueMailbox, MailConsumer]] = []
        self._thread = ThreadPoolExecutor(1, "selectroute-broker")
        self._is_running = self._is_due = False

    @property
    def waiting(self) -> int:
        """Number of works that have not begun."""
        return len(self._items)

    def add(self, work: QueueWork, done: Done) -> None:
        """Add a work to the next transaction."""
        self._items.append(_Item(work, done))
        self._schedule()

    def look(self, mailbox: QueueMailbox, consumer: MailConsumer) -> None:
        """Take messages of the database for a consumer in the next transaction."""
        self._looking.append((mailbox, consumer))
        self._schedule()

    async def close(self) -> None:
        """Write what is left, for `CLOSE_SECONDS` at most, and stop."""
        deadline = time.monotonic() + CLOSE_SECONDS
        while (self._items or self._is_running) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._thread.shutdown(wait=False)

    def _schedule(self) -> None:
        if not self._is_running and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Begin a transaction with all that has arrived."""
        self._is_due = False
        items, self._items = self._items[:MOST_WORKS], self._items[MOST_WORKS:]
        looking, self._looking = self._looking, []
        looks = []
        for mailbox, consumer in looking:
            room = min(consumer.room, MOST_TAKEN)
            if room > 0 and mailbox.store is not None:
                consumer.reserved += room
                looks.append(_Look(mailbox, consumer, QueueTake(mailbox.store, consumer.lookup, room)))
            else:
                mailbox.end_look(consumer, [], 0)
        if not items and not looks:
            return
        self._is_running = True
        loop = asyncio.get_running_loop()
        future = self._thread.submit(transact, [item.work for item in items], [look.take for look in looks])
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._end, items, looks, done))

    def _end(self, items: list[_Item], looks: list[_Look], future: Future[None]) -> None:
        self._is_running = False
        error = future.exception()
        for mailbox, consumer, take in looks:
            consumer.reserved -= take.most
            mailbox.end_look(consumer, take.records, take.most)
            self._looked(mailbox)
        if error is None:
            for item in items:
                item.done(item.work.error)
        elif isinstance(error, StoreError):
            self._retry(items, looks, error)
        elif isinstance(error, MQError):
            for item in items:
                item.done(error)
            if error.reason == MQRC_BACKED_OUT:
                self._failed(error)
        else:
            raise error
        self._finished()
        if self._items or self._looking:
            self._schedule()

    def _retry(self, items: list[_Item], looks: list[_Look], error: StoreError) -> None:
        """Refuse works that put something; write those that only settle again later, and look again."""
        self._items[:0] = [item for item in items if not item.work.puts]
        for item in items:
            if item.work.puts:
                item.done(error)
        self._is_running = True  # nothing else is tried before

        def retry() -> None:
            self._is_running = False
            for mailbox, consumer, _ in looks:
                consumer.may_find = True
                self._looked(mailbox)
            self._finished()
            self._schedule()

        asyncio.get_running_loop().call_later(RETRY_SECONDS, retry)
