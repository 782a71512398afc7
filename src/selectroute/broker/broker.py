"""Broker: destinations, their consumers, publishing, settlement and transactions. It knows no protocol.

::

    publish ─→ what is matched and persistent ─→ one transaction of many publishes ─→ durable, then accepted
            └→ consumers of topics, and queues in memory: at once
    consumer ←─ mailbox ←─ memory, or taken of the database in the same transactions
    outcome ─→ settled, put back, or a dead letter, in the same transactions
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from selectroute.broker.addresses import Address, AddressKind, queue_of, topic_of
from selectroute.broker.browser import QueueBrowser
from selectroute.broker.delayed import DELAYED, DelayedMessages
from selectroute.broker.durable import QUEUE_SETTINGS, DurableSubscriptions
from selectroute.broker.groups import Done, Groups
from selectroute.broker.mailbox import (
    Mailbox,
    MailConsumer,
    MailDelivery,
    QueueMailbox,
    Recipient,
    TopicMailbox,
)
from selectroute.broker.message import PublishedMessage
from selectroute.index.index import Index
from selectroute.queues.errors import MQRC_UNKNOWN_OBJECT_NAME, MQError, failed
from selectroute.queues.lookup import Lookup, match_of
from selectroute.queues.message.message import UNLIMITED
from selectroute.queues.message.put_validation import ValidatedPut
from selectroute.queues.message.record import StoredMessage
from selectroute.queues.settings import QueueSettings
from selectroute.queues.sql.queue import SqlQueues
from selectroute.queues.sql.store import SqlStore
from selectroute.queues.sql.transaction import QueuePut, QueueWork
from selectroute.selector.errors import SelectRouteError
from selectroute.selector.selector import Selector
from selectroute.store.errors import StoreError

DEAD_LETTERS: Final = "DLQ"
"""Name of the queue of messages that consumers reject, or fail to process too often."""

MOST_DELIVERIES: Final = 10
"""Deliveries of a message; one that fails as often is a dead letter."""

MOST_IN_TRANSACTION: Final = 100_000
"""Messages that a transaction may send and settle."""

WATCH_SECONDS: Final = 0.05
"""Time between two looks for what other processes put to queues; more if a look takes long."""

_TEMPORARY: Final = "temporary-"


class BrokerRefusalError(SelectRouteError):
    """Refusal of what a client wants, because it is in use, or beyond a limit."""


class DeliveryOutcome(Enum):
    """Outcome that a consumer gives a delivery."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """It is a dead letter."""
    RELEASED = "released"
    """The consumer has not looked at it."""
    FAILED = "failed"
    """The consumer could not process it."""


@dataclass(slots=True)
class BrokerTransaction:
    """Transaction of a client: what it sends and settles when it is committed."""

    sent: list[tuple[Address, PublishedMessage]] = field(default_factory=list)
    settled: list[tuple[MailDelivery, DeliveryOutcome]] = field(default_factory=list)

    def check_room(self, more: int = 1) -> None:
        """Raise BrokerRefusalError if the transaction cannot take so many messages more."""
        if len(self.sent) + len(self.settled) + more > MOST_IN_TRANSACTION:
            raise BrokerRefusalError(f"a transaction has at most {MOST_IN_TRANSACTION:,} messages")


@dataclass(slots=True, eq=False)
class _TopicSubscription:
    """Subscription of consumers to a topic that ends with the last of them."""

    id: str
    mailbox: TopicMailbox
    terms: tuple[object, ...]
    """Topic filter, selector and origin, which are the same for all that share it."""
    origin: object
    shared: tuple[str, str] | None


class MessageBroker:
    """Destinations of a broker's process, and what its clients do with them.

    Used by the thread of the event loop alone.

    Args:
        queues: the queues in a database; they stay open.
        durable: the subscriptions of the registry.
        flushed: called when messages were given to consumers out of turn, to write them.
        failed: called if the messages that consumers have are not this process's any more.
        clock: returns the seconds since 1970.
    """

    def __init__(
        self,
        queues: SqlQueues,
        durable: DurableSubscriptions,
        flushed: Callable[[], None] = lambda: None,
        failed: Callable[[MQError], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queues = queues
        self.durable = durable
        self._flushed = flushed
        self._clock = clock
        self._groups = Groups(self._feed_later, self._pump_and_flush, failed)
        self._mailboxes: dict[str, QueueMailbox] = {}
        self._opening: dict[str, list[tuple[Callable[[QueueMailbox], None], Done]]] = {}
        self._index = Index()
        self._subscriptions: dict[str, _TopicSubscription] = {}
        self._shared: dict[tuple[str, str], _TopicSubscription] = {}
        self._of_consumer: dict[MailConsumer, _TopicSubscription] = {}
        self._numbers = itertools.count(1)
        self.pending_bytes = 0
        """Bytes of messages that are not durable yet."""
        self._fed: dict[Mailbox, None] = {}
        self._claimed: Counter[str] = Counter()
        self._delayed: DelayedMessages | None = None

    async def start(self) -> None:
        """Open what every broker has. Raises `StoreError` if the database fails."""
        await self._opened_queue(DEAD_LETTERS)
        queue = await self._opened_queue(DELAYED)
        self._delayed = DelayedMessages(queue, self._publish_delayed, self._groups.look, self._clock)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.durable.load)
        await loop.run_in_executor(None, self._delayed.load)
        self._delayed.schedule()

    async def watch(self) -> None:
        """Find what other processes put to queues on which consumers wait, until this is cancelled."""
        loop = asyncio.get_running_loop()
        seconds = 0.0
        while True:
            await asyncio.sleep(max(WATCH_SECONDS, 20 * seconds))
            waited_on = {
                box.store.defined.id: box
                for box in self._mailboxes.values()
                if box.store and box.is_waited_on
            }
            if not waited_on:
                continue
            begin = loop.time()
            with suppress(StoreError):  # who uses the database otherwise meets the error
                database = next(iter(waited_on.values())).store.database  # type: ignore[union-attr]
                changes = await loop.run_in_executor(None, database.changes, [*waited_on])
                for id, counts in changes.items():
                    if waited_on[id].end_watch(counts):
                        self._feed_later(waited_on[id])
                self._pump_and_flush()
            seconds = loop.time() - begin

    async def close(self) -> None:
        """Complete what has begun."""
        await self._groups.close()

    # ---- destinations

    def with_queue(self, name: str, then: Callable[[QueueMailbox], None], refused: Done) -> None:
        """Call `then` with the mailbox of a queue by its name in JMS, at once if it is open.

        A queue that does not exist is created. Calls for one queue are made in their order.
        """
        mailbox = self._mailbox(name)
        if mailbox is not None:
            then(mailbox)
            return
        if name.startswith(_TEMPORARY):
            refused(
                failed(MQRC_UNKNOWN_OBJECT_NAME, f"the temporary queue {name:.80} does not exist any more")
            )
            return
        queue = queue_of(name)
        calls = self._opening.setdefault(queue, [])
        calls.append((then, refused))
        if len(calls) == 1:
            future = asyncio.get_running_loop().run_in_executor(None, self._open_store, queue)
            future.add_done_callback(partial(self._opened, queue))

    def _with_queues(self, names: Sequence[str], then: Callable[[], None], refused: Done) -> None:
        """Call `then` when queues are open; they are opened one after the other."""
        closed = iter(names)

        def open_next() -> None:
            name = next((name for name in closed if self._mailbox(name) is None), None)
            if name is None:
                then()
            else:
                self.with_queue(name, lambda _: open_next(), refused)

        open_next()

    def new_temporary(self, kind: AddressKind) -> str:
        """Return the name of a new temporary destination; a queue is in memory alone."""
        name = f"{_TEMPORARY}{kind.value}-{uuid.uuid4().hex}"
        if kind is AddressKind.QUEUE:
            self._mailboxes[name] = self._new_mailbox(name, QUEUE_SETTINGS, None)
        return name

    def claim(self, key: str, *, shared: bool) -> None:
        """Take note of a consumer of a durable subscription; BrokerRefusalError if there is another one."""
        if key in self._claimed and not shared:
            raise BrokerRefusalError("the durable subscription has a consumer")
        self._claimed[key] += 1

    def unclaim(self, key: str) -> None:
        """Take note of the end of a consumer of a durable subscription."""
        self._claimed[key] -= 1
        if not self._claimed[key]:
            del self._claimed[key]

    def is_claimed(self, key: str) -> bool:
        """Return whether a durable subscription has a consumer."""
        return key in self._claimed

    def forget_queue(self, name: str) -> None:
        """Forget the mailbox of a queue that is being deleted: of a temporary one, its messages."""
        self._mailboxes.pop(name, None)

    def _open_store(self, queue: str) -> SqlStore:
        with suppress(MQError):
            return self._queues.open(queue).store
        with suppress(MQError):  # another process was faster
            self._queues.create(queue, QUEUE_SETTINGS)
        return self._queues.open(queue).store

    def _opened(self, queue: str, future: asyncio.Future[SqlStore]) -> None:
        calls = self._opening.pop(queue)
        error = future.exception()
        if error is None:
            store = future.result()
            mailbox = self._new_mailbox(queue, store.settings, store)
            self._mailboxes[queue] = mailbox
            for then, _ in calls:
                then(mailbox)
        elif isinstance(error, SelectRouteError):
            for _, refused in calls:
                refused(error)
        else:
            raise error
        self._pump_and_flush()

    def _new_mailbox(self, queue: str, settings: QueueSettings, store: SqlStore | None) -> QueueMailbox:
        return QueueMailbox(queue, settings, store, self._groups.look, self._release, self._clock)

    async def _opened_queue(self, name: str) -> QueueMailbox:
        opened: asyncio.Future[QueueMailbox] = asyncio.get_running_loop().create_future()
        self.with_queue(name, opened.set_result, opened.set_exception)  # type: ignore[arg-type]
        return await opened

    def _publish_delayed(
        self, address: Address, message: PublishedMessage, delivery: MailDelivery | None
    ) -> None:
        """Publish a message that is due; what is refused is a dead letter."""
        settled = [] if delivery is None else [(delivery, DeliveryOutcome.ACCEPTED)]

        def done(error: SelectRouteError | None) -> None:
            if error is not None and delivery is not None:
                self.settle([delivery], DeliveryOutcome.REJECTED)
            self._pump_and_flush()

        self._commit([(address, message)], settled, done)

    def _release(self, delivery: MailDelivery) -> None:
        self.settle([delivery], DeliveryOutcome.RELEASED)

    def _mailbox(self, name: str) -> QueueMailbox | None:
        return self._mailboxes.get(name) or self._mailboxes.get(queue_of(name))

    # ---- consumers

    def consume_queue(
        self, queue: QueueMailbox, recipient: Recipient, selector: Selector | None, *, browses: bool = False
    ) -> MailConsumer:
        """Add a consumer of a queue; one that browses gets copies."""
        mailbox = QueueBrowser(queue, self._browsed) if browses else queue
        consumer = MailConsumer(mailbox, recipient, Lookup(match_of("jms", selector=selector)))
        mailbox.consumers.append(consumer)
        return consumer

    def consume_topic(
        self,
        name: str,
        recipient: Recipient,
        selector: Selector | None,
        *,
        origin: object = None,
        shared: tuple[str, str] | None = None,
    ) -> MailConsumer:
        """Add a consumer of a topic that is not durable.

        Args:
            name: the name of the topic in JMS, which may be a filter.
            recipient: the consumer's end.
            selector: its selector; None for all messages.
            origin: that of messages which it does not want; None for all.
            shared: scope and name of the subscription that it shares with others.

        Raises InvalidTopicFilterError, and BrokerRefusalError if those that share the subscription have
        another topic or selector.
        """
        topic = topic_of(name)
        terms = topic, None if selector is None else (selector.text, selector.dialect), origin
        subscription = None if shared is None else self._shared.get(shared)
        if subscription is None:
            subscription = _TopicSubscription(
                f"consumer-{next(self._numbers)}", TopicMailbox(name), terms, origin, shared
            )
            self._index.add(subscription.id, selector, topic=topic)
            self._subscriptions[subscription.id] = subscription
            if shared is not None:
                self._shared[shared] = subscription
        elif subscription.terms != terms:
            raise BrokerRefusalError("consumers that share the subscription have another topic or selector")
        consumer = MailConsumer(subscription.mailbox, recipient, Lookup(match_of("jms")))
        subscription.mailbox.consumers.append(consumer)
        self._of_consumer[consumer] = subscription
        return consumer

    def end(
        self, consumer: MailConsumer, unsettled: Sequence[MailDelivery], outcome: DeliveryOutcome
    ) -> None:
        """End a consumer, and give what it has not settled this outcome."""
        if consumer.has_ended:
            return
        consumer.has_ended = True
        mailbox = consumer.mailbox
        mailbox.consumers.remove(consumer)
        subscription = self._of_consumer.pop(consumer, None)
        if subscription is not None and not mailbox.consumers:
            self._index.remove(subscription.id)
            del self._subscriptions[subscription.id]
            if subscription.shared is not None:
                del self._shared[subscription.shared]
        if isinstance(mailbox, QueueMailbox):
            mailbox.stop_waiting(consumer)
        self.settle(unsettled, outcome)
        self._feed_later(mailbox)

    def room_changed(self, consumer: MailConsumer) -> None:
        """Note that a consumer has room, or wants to be drained; `pump` gives it messages."""
        self._feed_later(consumer.mailbox)

    def pump(self) -> None:
        """Give messages to consumers; call it after all that has arrived at once was handled."""
        while self._fed:
            mailbox, _ = self._fed.popitem()
            mailbox.feed()

    # ---- publishing and settling

    def publish(self, address: Address, message: PublishedMessage, done: Done) -> None:
        """Publish a message; `done` is called when it is as durable as it must be, or with its error."""
        self._commit([(address, message)], [], done)

    def settle(self, deliveries: Sequence[MailDelivery], outcome: DeliveryOutcome) -> None:
        """Settle deliveries, in the order in which they were made."""
        if outcome is DeliveryOutcome.ACCEPTED:  # of those in memory nothing is left
            deliveries = [delivery for delivery in deliveries if delivery.is_stored]
        if deliveries:
            self._commit([], [(delivery, outcome) for delivery in deliveries], lambda _: None)

    def commit(self, transaction: BrokerTransaction, done: Done) -> None:
        """Commit a transaction, whole or not at all."""
        self._commit(transaction.sent, transaction.settled, done)

    def rollback(self, transaction: BrokerTransaction) -> None:
        """Roll a transaction back: what it has settled comes again, as failed."""
        self.settle([delivery for delivery, _ in transaction.settled], DeliveryOutcome.FAILED)

    def _commit(
        self,
        sent: Sequence[tuple[Address, PublishedMessage]],
        settled: Sequence[tuple[MailDelivery, DeliveryOutcome]],
        done: Done,
    ) -> None:
        """Open the queues of what is sent, then do all of it."""
        now_ms = self._clock() * 1000
        targets: list[list[str]] = []
        closed: dict[str, None] = {}
        for address, message in sent:
            names = []
            if message.due <= now_ms:
                names = [address.name] if address.kind is AddressKind.QUEUE else self._durable_queues(message)
            targets.append(names)
            closed |= {name: None for name in names if self._mailbox(name) is None}
        if closed:
            self._with_queues([*closed], partial(self._commit, sent, settled, done), done)
            return
        if len(sent) == 1 and not settled and not targets[0] and sent[0][1].due <= now_ms:
            for mailbox in self.consumers_of(sent[0][1]):
                mailbox.put(sent[0][1])
                self._feed_later(mailbox)
            done(None)
            return
        try:
            plan = _Plan(self, sent, targets, settled)
        except MQError as error:
            done(error)
            return
        size = sum(len(message.body) for _, message in sent)
        self.pending_bytes += size

        def end(error: SelectRouteError | None) -> None:
            self.pending_bytes -= size
            done(error)

        plan.run(self._groups, end)

    def consumers_of(self, message: PublishedMessage) -> list[TopicMailbox]:
        """Return the mailboxes of the consumers of topics, not durable, that get a message."""
        if not self._subscriptions:
            return []
        chosen = (self._subscriptions[id] for id in self._index.match(message.selected))
        return [it.mailbox for it in chosen if it.origin is None or it.origin != message.origin]

    def _durable_queues(self, message: PublishedMessage) -> list[str]:
        return [
            match.queue
            for match in self.durable.match(message.selected)
            if match.not_from is None or match.not_from != message.origin
        ]

    def _feed_later(self, mailbox: Mailbox) -> None:
        self._fed[mailbox] = None

    def _browsed(self, browser: QueueBrowser) -> None:
        self._feed_later(browser)
        self._pump_and_flush()

    def _pump_and_flush(self) -> None:
        self.pump()
        self._flushed()


class _Plan:
    """Plan of what is done together, in the database and then in memory.

    `targets` are the names of the queues of each message that is sent; their mailboxes are open.

    Raises MQError for what cannot be done; then nothing is reserved.
    """

    def __init__(
        self,
        broker: MessageBroker,
        sent: Sequence[tuple[Address, PublishedMessage]],
        targets: Sequence[Sequence[str]],
        settled: Sequence[tuple[MailDelivery, DeliveryOutcome]],
    ) -> None:
        self._broker = broker
        self._now_ms = int(broker._clock() * 1000)
        self._work = QueueWork()
        self._stored: list[tuple[QueueMailbox, QueuePut]] = []
        self._receivers: list[MailConsumer | None] = []
        self._again: list[QueueMailbox] = []
        self._delayed: list[tuple[Address, PublishedMessage, QueuePut | None]] = []
        self._in_memory: list[tuple[QueueMailbox, ValidatedPut]] = []
        self._published: list[tuple[TopicMailbox, PublishedMessage]] = []
        self._returned: list[tuple[Mailbox, MailDelivery, bool]] = []
        for (address, message), queues in zip(sent, targets, strict=True):
            if message.due > self._now_ms:
                self._delay(address, message)
                continue
            for name in queues:
                mailbox = broker._mailbox(name)
                assert mailbox is not None
                self._put(mailbox, message.put(self._now_ms))
            if address.kind is AddressKind.TOPIC:
                self._published += [(mailbox, message) for mailbox in broker.consumers_of(message)]
        for delivery, outcome in settled:
            self._settle(delivery, outcome)
        self._check_room()

    def run(self, groups: Groups, done: Done) -> None:
        """Do it; call `done` when it is durable, or with its error."""
        for mailbox in self._again:
            mailbox.begin_return()
        for mailbox, put in self._stored:
            receiver = mailbox.begin_put(put.message)
            put.owned = receiver is not None
            self._receivers.append(receiver)
        work = self._work
        if work.puts or work.settled or work.put_back:
            groups.add(work, partial(self._end, done))
        else:
            self._end(done, None)

    def _end(self, done: Done, error: SelectRouteError | None) -> None:
        fed = self._broker._fed
        for mailbox in self._again:
            mailbox.end_return()
            fed[mailbox] = None
        for (mailbox, put), receiver in zip(self._stored, self._receivers, strict=True):
            mailbox.end_put(put.record if error is None else None, receiver)
            fed[mailbox] = None
        if error is None:
            for address, delayed, stored in self._delayed:
                assert self._broker._delayed is not None
                if stored is None:
                    self._broker._delayed.add(address, delayed)
                elif stored.record is not None:
                    self._broker._delayed.is_stored(stored.record, delayed.due)
            for queue, message in self._in_memory:
                queue.put(message)
                fed[queue] = None
            for topic, published in self._published:
                topic.put(published)
                fed[topic] = None
            for box, delivery, counts in reversed(self._returned):
                box.put_back(delivery, counts=counts)
                fed[box] = None
        done(error)

    def _delay(self, address: Address, message: PublishedMessage) -> None:
        delayed = self._broker._delayed
        assert delayed is not None and delayed.queue.store is not None
        if message.is_persistent:
            put = QueuePut(delayed.queue.store, delayed.put_of(address, message, self._now_ms))
            self._work.puts.append(put)
            self._delayed.append((address, message, put))
        else:
            self._delayed.append((address, message, None))

    def _put(self, mailbox: QueueMailbox, message: ValidatedPut) -> None:
        if mailbox.store is not None and message.persistence:
            put = QueuePut(mailbox.store, message)
            self._work.puts.append(put)
            self._stored.append((mailbox, put))
        else:
            self._in_memory.append((mailbox, message))

    def _settle(self, delivery: MailDelivery, outcome: DeliveryOutcome) -> None:
        """Plan what becomes of a message that was delivered."""
        if delivery.is_copy:
            return
        mailbox, message = delivery.consumer.mailbox, delivery.message
        is_last = outcome is DeliveryOutcome.FAILED and delivery.count + 1 >= MOST_DELIVERIES
        is_ended = outcome in (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED) or is_last
        if outcome is DeliveryOutcome.REJECTED or is_last:
            dead = self._broker._mailboxes[DEAD_LETTERS]
            self._put(
                dead, message.put(self._now_ms) if isinstance(message, PublishedMessage) else _copy(message)
            )
        counts = outcome is DeliveryOutcome.FAILED
        if not delivery.is_stored:
            if not is_ended:
                self._returned.append((mailbox, delivery, counts))
            return
        assert isinstance(mailbox, QueueMailbox) and mailbox.store is not None
        assert isinstance(message, StoredMessage)
        if is_ended:
            self._work.settled.append((mailbox.store, message.queue_key))
        else:
            self._work.put_back.append((mailbox.store, message.queue_key, int(counts)))
            self._again.append(mailbox)

    def _check_room(self) -> None:
        """Raise MQError 2053 if a queue in memory is full; the database checks its own."""
        if self._in_memory:
            for mailbox, count in Counter(mailbox for mailbox, _ in self._in_memory).items():
                mailbox.check_room(count)


def _copy(record: StoredMessage) -> ValidatedPut:
    """Return a stored message to put it on another queue, where it does not expire."""
    return ValidatedPut(
        record.body,
        record.msg_id,
        record.correl_id,
        record.group_id,
        record.msg_seq_number,
        record.offset,
        record.last_in_group,
        record.priority,
        record.persistence,
        UNLIMITED,
        record.properties,
        record.timestamp,
        0,
        record.is_amqp,
    )
