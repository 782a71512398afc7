"""Clients of AMQP 1.0: what their frames ask of the broker, and what they are answered.

What Qpid JMS asks: capabilities of a terminus say topic or queue, filters of a source give the selector and
noLocal, a source with the mode ``copy`` is a browser's, a target without an address that of a producer
without a destination, a coordinator that of a transacted session.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from selectroute.amqp.connection import (
    Connection,
    ConnectionClosed,
    CredentialsReceived,
    Event,
    OpenReceived,
)
from selectroute.amqp.errors import (
    INTERNAL_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    UNAUTHORIZED_ACCESS,
    UNKNOWN_TRANSACTION,
    AmqpError,
)
from selectroute.amqp.performatives import (
    Accepted,
    Coordinator,
    Modified,
    Open,
    Rejected,
    Released,
    SourceTerminus,
    State,
    TransactionalState,
    names_in,
)
from selectroute.amqp.sasl import FAILED
from selectroute.amqp.sections import read_message
from selectroute.amqp.session import (
    AttachReceived,
    CreditChanged,
    DeliveriesSettled,
    IncomingMessage,
    Link,
    LinkDetached,
    Receiver,
    Sender,
    TransactionDeclared,
    TransactionDischarged,
    TransferReceived,
)
from selectroute.amqp.types import Described, Symbol
from selectroute.broker.accounts import Accounts, ClientAccount
from selectroute.broker.addresses import Address, AddressError, AddressKind, topic_of
from selectroute.broker.broker import BrokerRefusalError, BrokerTransaction, DeliveryOutcome, MessageBroker
from selectroute.broker.durable import DurableTerms, queue_of_durable
from selectroute.broker.jms import decode_properties, payload_of, published
from selectroute.broker.mailbox import MailConsumer, MailDelivery, QueueMailbox
from selectroute.queues.errors import MQRC_Q_FULL, MQRC_UNKNOWN_OBJECT_NAME, MQError
from selectroute.registry.authorization import Permission
from selectroute.registry.errors import ForbiddenError
from selectroute.registry.role import Role
from selectroute.selector.dialect import UnknownDialectError
from selectroute.selector.errors import InvalidSelectorError, SelectRouteError
from selectroute.selector.selector import Selector
from selectroute.store.errors import StoreError
from selectroute.topics.filter import InvalidTopicFilterError, TopicFilter

_SOLE: Final = "sole-connection-for-container"
CAPABILITIES: Final = ("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY", _SOLE)
"""Capabilities that Qpid JMS looks for."""

CREDIT: Final = 1_000
"""Messages that a producer may send before it gets more credit, which it does at the half."""

MOST_UNSETTLED: Final = 2_000
MOST_UNSETTLED_BYTES: Final = 16 << 20
"""Messages, and their bytes, that a consumer may have without settling them; one message it always may."""

_SELECTOR: Final = (0x0000_468C_0000_0004, "apache.org:selector-filter:string")
_NO_LOCAL: Final = (0x0000_468C_0000_0003, "apache.org:no-local-filter:list")
_KINDS: Final = {
    "queue": AddressKind.QUEUE,
    "temporary-queue": AddressKind.QUEUE,
    "topic": AddressKind.TOPIC,
    "temporary-topic": AddressKind.TOPIC,
}
_DESTINATION: Final = "x-opt-jms-dest"
_KIND_OF_DESTINATION: Final = (AddressKind.QUEUE, AddressKind.TOPIC, AddressKind.QUEUE, AddressKind.TOPIC)
_ACCEPTED: Final = Accepted()


class AmqpConsumer:
    """Consumer of a client: a `Recipient` of the broker."""

    def __init__(self, client: AmqpClient, link: Sender) -> None:
        self._client = client
        self.link = link
        self.consumer: MailConsumer | None = None
        self.durable: str | None = None
        """Key of the durable subscription that it has claimed."""
        self._bytes = 0

    @property
    def room(self) -> int:
        """Number of messages that can be sent to it now."""
        link = self.link
        if not link.can_send or self._client.is_blocked or self._bytes > MOST_UNSETTLED_BYTES:
            return 0
        return min(link.credit, MOST_UNSETTLED - len(link.unsettled))

    @property
    def is_draining(self) -> bool:
        """True if it wants to know that there is no more message for it."""
        return self.link.is_draining and self.link.credit > 0

    def send(self, delivery: MailDelivery) -> None:
        """Send a message."""
        payload = payload_of(delivery.message, delivery.count, int(time.time() * 1000))
        self.link.send(payload, delivery)
        if self.link.settles:
            self._client.broker.settle([delivery], DeliveryOutcome.ACCEPTED)
        else:
            delivery.size = len(payload)
            self._bytes += delivery.size
        self._client.wrote()

    def settled(self, deliveries: list[MailDelivery]) -> None:
        """Take note that the client has settled messages."""
        self._bytes -= sum(delivery.size for delivery in deliveries)

    def drained(self) -> None:
        """Tell it that there is no more message."""
        self.link.drained()
        self._client.wrote()


class AmqpLookup:
    """Link by which a client looks for a durable subscription; closing it ends the subscription."""

    def __init__(self, key: str) -> None:
        self.key = key


class AmqpProducer:
    """Producer of a client; without an address each message says its own."""

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.temporary: str | None = None
        """Name of the temporary destination that lives as long as this link."""


class AmqpClient:
    """Client that is connected: its links, its consumers and its transactions.

    Args:
        broker: the broker.
        connection: the state of its protocol.
        accounts: who may connect.
        clients: the clients by their container, if only one may have it.
        wrote: called when there are bytes to send.
    """

    def __init__(
        self,
        broker: MessageBroker,
        connection: Connection,
        accounts: Accounts,
        clients: dict[str, AmqpClient],
        wrote: Callable[[], None],
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.wrote = wrote
        self.is_blocked = False
        """True while the transport takes no more bytes."""
        self._accounts = accounts
        self._clients = clients
        self._container: str | None = None
        self._scope = ""
        self._account: ClientAccount | None = None
        self._transactions: dict[bytes, tuple[Link, BrokerTransaction]] = {}
        self._numbers = itertools.count(1)

    def handle(self, events: list[Event]) -> None:
        """Do what the client wants."""
        for event in events:
            handler: Any = _HANDLERS[type(event)]
            handler(self, event)

    def resume(self) -> None:
        """Send again, after the transport took no more bytes."""
        self.is_blocked = False
        for session in self.connection.sessions:
            for link in session.links:
                if isinstance(link.owner, AmqpConsumer) and link.owner.consumer is not None:
                    self.broker.room_changed(link.owner.consumer)

    # ---- the connection

    def _on_credentials(self, event: CredentialsReceived) -> None:
        """Check credentials in another thread: that reads the registry."""

        def answer(account: ClientAccount | None) -> None:
            self._account = account
            self.handle(self.connection.authenticate(is_accepted=account is not None))
            self.wrote()

        def fail(_: SelectRouteError) -> None:
            self.handle(self.connection.authenticate(is_accepted=False, code=FAILED))
            self.wrote()

        self._call(partial(self._accounts.authenticate, event.credentials.password), answer, fail)

    def _on_open(self, event: OpenReceived) -> None:
        opened: Open = event.open
        self._scope = opened.container_id
        if _SOLE in names_in(opened.desired_capabilities):
            if opened.container_id in self._clients:
                place = {Symbol("invalid-field"): Symbol("container-id")}
                error = AmqpError(INVALID_FIELD, "the client id is in use", place)
                self.handle(self.connection.refuse(error))
                return
            self._container = opened.container_id
            self._clients[opened.container_id] = self
        self.handle(self.connection.open())

    def _on_closed(self, _: ConnectionClosed) -> None:
        for _link, transaction in self._transactions.values():
            self.broker.rollback(transaction)
        self._transactions.clear()
        if self._container is not None and self._clients.get(self._container) is self:
            del self._clients[self._container]

    # ---- links

    def _on_attach(self, event: AttachReceived) -> None:
        link = event.link
        try:
            if isinstance(link, Receiver):
                self._attach_producer(link)
            else:
                assert isinstance(link, Sender)
                self._attach_consumer(link)
        except SelectRouteError as error:
            self._refuse_link(link, error)
        except AmqpError as error:
            link.refuse(error)

    def _attach_producer(self, link: Receiver) -> None:
        target = link.request.target
        if isinstance(target, Coordinator):
            link.attach(target, CREDIT)
            return
        if target is None:
            raise AmqpError(INVALID_FIELD, "there is no target")
        kind = _kind_of(target.capabilities)
        if target.dynamic:
            producer = AmqpProducer(None)
            producer.temporary = name = self.broker.new_temporary(kind or AddressKind.QUEUE)
            producer.address = Address(kind or AddressKind.QUEUE, name)
            target = target._replace(address=name)
        elif target.address is None:
            producer = AmqpProducer(None)
        else:
            producer = AmqpProducer(Address.of(target.address, kind))
            self._check(producer.address, Role.writer)
        link.owner = producer
        if producer.address is None or producer.address.kind is AddressKind.TOPIC:
            link.attach(target, CREDIT)
        else:
            self.broker.with_queue(
                producer.address.name,
                lambda _: self._attached(lambda: link.attach(target, CREDIT)),
                partial(self._refuse_link, link),
            )

    def _attach_consumer(self, link: Sender) -> None:
        source = link.request.source
        if source is None:
            self._look_up_durable(link)
            return
        capabilities = names_in(source.capabilities)
        kind = _kind_of(source.capabilities)
        if source.dynamic:
            name = self.broker.new_temporary(kind or AddressKind.QUEUE)
            address = Address(kind or AddressKind.QUEUE, name)
            source = source._replace(address=name)
        elif source.address is None:
            raise AmqpError(INVALID_FIELD, "there is no address")
        else:
            address = Address.of(source.address, kind)
            self._check(address, Role.reader if address.kind is AddressKind.TOPIC else Role.writer)
        selector, no_local, filters = _filters_of(source, address.dialect or "jms")
        source = source._replace(filter=filters or None)
        recipient = AmqpConsumer(self, link)
        link.owner = recipient
        scope = "" if "global" in capabilities else self._scope
        name = link.name.partition("|")[0]
        if address.kind is AddressKind.TOPIC and source.durable:
            text, dialect = ("", "jms") if selector is None else (selector.text, selector.dialect)
            topic = topic_of(address.name)
            TopicFilter.parse(topic)
            terms = DurableTerms(scope, name, topic, text, dialect, no_local)
            self._attach_durable(recipient, source, terms, shared="shared" in capabilities)
        elif address.kind is AddressKind.TOPIC:
            recipient.consumer = self.broker.consume_topic(
                address.name,
                recipient,
                selector,
                origin=self._scope if no_local else None,
                shared=(scope, name) if "shared" in capabilities else None,
            )
            link.attach(source)
            self.broker.room_changed(recipient.consumer)
        else:
            self.broker.with_queue(
                address.name,
                partial(self._consume_queue, recipient, selector, source),
                partial(self._refuse_link, link),
            )

    def _consume_queue(
        self,
        recipient: AmqpConsumer,
        selector: Selector | None,
        source: SourceTerminus,
        mailbox: QueueMailbox,
    ) -> None:
        link = recipient.link
        if link.is_attaching:
            browses = recipient.durable is None and source.distribution_mode == "copy"
            recipient.consumer = self.broker.consume_queue(mailbox, recipient, selector, browses=browses)
            link.attach(source)
            self.broker.room_changed(recipient.consumer)
        self.wrote()

    def _attach_durable(
        self, recipient: AmqpConsumer, source: SourceTerminus, terms: DurableTerms, *, shared: bool
    ) -> None:
        """Attach a consumer of a durable subscription, which is made or changed before."""
        self.broker.claim(terms.key, shared=shared)
        recipient.durable = terms.key
        recipient.link.answers_late = True
        refuse = partial(self._refuse_link, recipient.link)

        def attached(queue: str) -> None:
            consume = partial(self._consume_queue, recipient, None, source)
            self.broker.with_queue(queue, consume, refuse)

        self._call(partial(self.broker.durable.attach, terms, self._permission), attached, refuse)

    def _look_up_durable(self, link: Sender) -> None:
        """Attach a link that stands for a durable subscription: how Qpid JMS ends one."""
        scope = "" if "global" in names_in(link.request.desired_capabilities) else self._scope
        name = link.name.partition("|")[0]

        def attach(terms: DurableTerms | None) -> None:
            if terms is None:
                link.refuse(AmqpError(NOT_FOUND, f"there is no durable subscription {name:.80}"))
            else:
                link.owner, link.answers_late = AmqpLookup(terms.key), True
                topic = [Symbol("topic")]
                link.attach(
                    SourceTerminus(terms.topic, 1, "never", distribution_mode="copy", capabilities=topic)
                )
            self.wrote()

        self._call(
            partial(self.broker.durable.terms_of, scope, name), attach, partial(self._refuse_link, link)
        )

    def _remove_durable(self, link: Link, key: str) -> None:
        """Remove a durable subscription, and then answer the close of its link."""

        def answer(error: SelectRouteError | None) -> None:
            link.answer_close(None if error is None else _amqp_error(error))
            self.wrote()

        if self.broker.is_claimed(key):
            answer(BrokerRefusalError("the durable subscription has a consumer"))
            return
        self.broker.forget_queue(queue_of_durable(key))
        self._call(partial(self.broker.durable.remove, key, self._permission), lambda _: answer(None), answer)

    def _call(
        self,
        function: Callable[[], Any],
        then: Callable[[Any], None],
        refused: Callable[[SelectRouteError], None],
    ) -> None:
        """Call a function that blocks in another thread, and then one of the others with its result."""
        future = asyncio.get_running_loop().run_in_executor(None, function)

        def done(result: asyncio.Future[Any]) -> None:
            error = result.exception()
            if error is None:
                then(result.result())
            elif isinstance(error, SelectRouteError):
                refused(error)
            else:
                raise error

        future.add_done_callback(done)

    @property
    def _permission(self) -> Permission:
        assert self._account is not None
        return self._account.permission

    def _attached(self, attach: Callable[[], None]) -> None:
        attach()
        self.wrote()

    def _refuse_link(self, link: Any, error: SelectRouteError | None) -> None:
        if isinstance(link.owner, AmqpConsumer):
            self._unclaim(link.owner)
        link.refuse(_amqp_error(error))
        self.wrote()

    def _unclaim(self, consumer: AmqpConsumer) -> None:
        if consumer.durable is not None:
            self.broker.unclaim(consumer.durable)
            consumer.durable = None

    def _on_credit(self, event: CreditChanged) -> None:
        consumer = event.link.owner
        if isinstance(consumer, AmqpConsumer) and consumer.consumer is not None:
            self.broker.room_changed(consumer.consumer)

    def _on_detached(self, event: LinkDetached) -> None:
        link = event.link
        if isinstance(link.owner, AmqpConsumer):
            if link.owner.consumer is not None:
                assert isinstance(link, Sender)
                outcome = DeliveryOutcome.FAILED if _fails_by_default(link) else DeliveryOutcome.RELEASED
                self.broker.end(link.owner.consumer, [*link.unsettled.values()], outcome)
            key = link.owner.durable
            self._unclaim(link.owner)
            if key is not None and event.is_closed:
                self._remove_durable(link, key)
        elif isinstance(link.owner, AmqpLookup):
            if event.is_closed:
                self._remove_durable(link, link.owner.key)
        elif isinstance(link.owner, AmqpProducer):
            if link.owner.temporary is not None:
                self.broker.forget_queue(link.owner.temporary)
        else:
            ended = [id for id, (coordinator, _) in self._transactions.items() if coordinator is link]
            for id in ended:
                self.broker.rollback(self._transactions.pop(id)[1])

    # ---- messages

    def _on_transfer(self, event: TransferReceived) -> None:
        link, message = event.link, event.delivery
        self._replenish(link)
        try:
            sections = read_message(message.payload, decode_properties)
            address = link.owner.address or self._address_of(sections)
            topic = topic_of(address.name) if address.kind is AddressKind.TOPIC else None
            now_ms = int(time.time() * 1000)
            sent = published(sections, topic=topic, origin=self._scope, now_ms=now_ms)
            if message.txn_id is not None:
                transaction = self._transaction(message.txn_id)
                transaction.check_room()
                transaction.sent.append((address, sent))
                self._answer(link, message, None)
            else:
                self.broker.publish(address, sent, partial(self._answer, link, message))
        except AmqpError as error:
            self._reject(link, message, error)
        except SelectRouteError as error:
            self._reject(link, message, _amqp_error(error))

    def _address_of(self, sections: Any) -> Address:
        """Return the address that a message of an anonymous producer says."""
        to = sections.properties.to
        if to is None:
            raise AmqpError(INVALID_FIELD, "the message has no address, and its producer none either")
        kind = sections.annotations.get(_DESTINATION)
        is_known = isinstance(kind, int) and 0 <= kind < len(_KIND_OF_DESTINATION)
        address = Address.of(to, _KIND_OF_DESTINATION[kind] if is_known else None)
        self._check(address, Role.writer)
        return address

    def _answer(self, link: Receiver, message: IncomingMessage, error: SelectRouteError | None) -> None:
        """Accept a message, or refuse it."""
        if error is not None:
            self._reject(link, message, _amqp_error(error))
        elif not message.is_settled:
            link.settle(message, _ACCEPTED)
            self.wrote()

    def _reject(self, link: Receiver, message: IncomingMessage, error: AmqpError) -> None:
        if not message.is_settled:
            link.reject(message, error)
            self.wrote()

    def _replenish(self, link: Receiver) -> None:
        if link.credit < CREDIT // 2:
            link.grant(CREDIT)

    def _on_settled(self, event: DeliveriesSettled) -> None:
        event.link.owner.settled(event.deliveries)
        consumer = event.link.owner.consumer
        state, transaction = event.state, None
        if isinstance(state, TransactionalState):
            transaction, state = self._transactions.get(state.txn_id), state.outcome or _ACCEPTED
            if transaction is None:
                state = Modified(True)
        outcome = _outcome_of(state, event.link)
        if transaction is not None:
            transaction[1].settled.extend((delivery, outcome) for delivery in event.deliveries)
        else:
            self.broker.settle(event.deliveries, outcome)
        self.broker.room_changed(consumer)

    # ---- transactions

    def _transaction(self, id: bytes) -> BrokerTransaction:
        known = self._transactions.get(id)
        if known is None:
            raise AmqpError(UNKNOWN_TRANSACTION, "there is no such transaction")
        return known[1]

    def _on_declared(self, event: TransactionDeclared) -> None:
        self._replenish(event.link)
        id = next(self._numbers).to_bytes(8, "big")
        self._transactions[id] = event.link, BrokerTransaction()
        event.link.declared(event.delivery, id)

    def _on_discharged(self, event: TransactionDischarged) -> None:
        self._replenish(event.link)
        try:
            transaction = self._transaction(event.txn_id)
        except AmqpError as error:
            event.link.reject(event.delivery, error)
            return
        del self._transactions[event.txn_id]
        if event.is_rollback:
            self.broker.rollback(transaction)
            event.link.settle(event.delivery, _ACCEPTED)
        else:
            self.broker.commit(transaction, partial(self._committed, event, transaction))

    def _committed(
        self, event: TransactionDischarged, transaction: BrokerTransaction, error: SelectRouteError | None
    ) -> None:
        if error is not None:
            self.broker.rollback(transaction)
        self._answer(event.link, event.delivery, error)

    def _check(self, address: Address | None, needed: Role) -> None:
        assert self._account is not None and address is not None
        self._account.check(address, needed)


_HANDLERS: Final[dict[type, Callable[[AmqpClient, Any], None]]] = {
    CredentialsReceived: AmqpClient._on_credentials,
    OpenReceived: AmqpClient._on_open,
    ConnectionClosed: AmqpClient._on_closed,
    AttachReceived: AmqpClient._on_attach,
    LinkDetached: AmqpClient._on_detached,
    CreditChanged: AmqpClient._on_credit,
    TransferReceived: AmqpClient._on_transfer,
    DeliveriesSettled: AmqpClient._on_settled,
    TransactionDeclared: AmqpClient._on_declared,
    TransactionDischarged: AmqpClient._on_discharged,
}


def _kind_of(capabilities: Any) -> AddressKind | None:
    """Return the kind of destination that capabilities of a terminus say."""
    return next((_KINDS[name] for name in names_in(capabilities) if name in _KINDS), None)


def _filters_of(source: SourceTerminus, dialect: str) -> tuple[Selector | None, bool, dict[Any, Any]]:
    """Return the selector of a source, whether it is without local messages, and the filters that hold."""
    selector, no_local, held = None, False, {}
    for name, value in (source.filter or {}).items():
        if not isinstance(value, Described):
            continue
        if value.descriptor in _SELECTOR and isinstance(value.value, str):
            selector = Selector(value.value, dialect)
        elif value.descriptor in _NO_LOCAL:
            no_local = True
        else:
            continue
        held[name] = value
    return selector, no_local, held


def _fails_by_default(link: Sender) -> bool:
    source = link.request.source
    outcome = None if source is None else source.default_outcome
    return isinstance(outcome, Modified) and bool(outcome.delivery_failed)


def _outcome_of(state: State | None, link: Sender) -> DeliveryOutcome:
    match state:
        case Accepted():
            return DeliveryOutcome.ACCEPTED
        case Rejected():
            return DeliveryOutcome.REJECTED
        case Modified():
            if state.undeliverable_here:
                return DeliveryOutcome.REJECTED
            return DeliveryOutcome.FAILED if state.delivery_failed else DeliveryOutcome.RELEASED
        case Released():
            return DeliveryOutcome.RELEASED
        case _:
            return DeliveryOutcome.FAILED if _fails_by_default(link) else DeliveryOutcome.RELEASED


def _amqp_error(error: SelectRouteError | None) -> AmqpError:
    """Return an error as a client is told of it."""
    match error:
        case InvalidSelectorError() | UnknownDialectError() | InvalidTopicFilterError() | AddressError():
            condition = INVALID_FIELD
        case ForbiddenError():
            condition = UNAUTHORIZED_ACCESS
        case BrokerRefusalError():
            condition = RESOURCE_LOCKED
        case MQError() if error.reason == MQRC_Q_FULL:
            condition = RESOURCE_LIMIT_EXCEEDED
        case MQError() if error.reason == MQRC_UNKNOWN_OBJECT_NAME:
            condition = NOT_FOUND
        case StoreError():
            condition = INTERNAL_ERROR
        case _:
            condition = NOT_ALLOWED
    return AmqpError(condition, str(error))
