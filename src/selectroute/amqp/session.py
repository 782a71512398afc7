"""Sessions of a connection, and their links: messages come by a `Receiver`, and go by a `Sender`.

Ends are named from the server's side: to what a JMS producer attaches is a `Receiver`. Numbers of deliveries
and transfers are of 32 bits and wrap (RFC 1982).
"""

from __future__ import annotations

import struct
from collections import deque
from enum import Enum
from typing import Any, Final, NamedTuple

from selectroute.amqp.errors import (
    HANDLE_IN_USE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    AmqpError,
)
from selectroute.amqp.output import ConnectionOutput
from selectroute.amqp.performatives import (
    MAX_UINT,
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Error,
    Flow,
    Rejected,
    SourceTerminus,
    State,
    TargetTerminus,
    TransactionalState,
    Transfer,
    difference,
    read,
)
from selectroute.amqp.sections import read_message, read_value
from selectroute.amqp.types import uint

_SETTLED: Final = 1
"""Mode of a sender that settles what it sends."""

_U32: Final = struct.Struct(">I")
_ACCEPTED: Final = Accepted()


# ---- events


class AttachReceived(NamedTuple):
    """Attach of a link by the client; `attach` or `refuse` of the link answers, now or later."""

    link: Receiver | Sender


class IncomingMessage(NamedTuple):
    """Message that a client sends."""

    id: int
    is_settled: bool
    """True if the client wants no answer."""
    txn_id: bytes | None
    """Transaction that the message belongs to."""
    payload: bytes


class TransferReceived(NamedTuple):
    """Whole message of the client; `settle` or `reject` of the link answers, unless it is settled."""

    link: Receiver
    delivery: IncomingMessage


class TransactionDeclared(NamedTuple):
    """Begin of a transaction; `declared` or `reject` of the link answers."""

    link: Receiver
    delivery: IncomingMessage


class TransactionDischarged(NamedTuple):
    """End of a transaction, by a commit or a rollback; `settle` or `reject` of the link answers."""

    link: Receiver
    delivery: IncomingMessage
    txn_id: bytes
    is_rollback: bool


class DeliveriesSettled(NamedTuple):
    """New state of deliveries, as the objects that they were sent with.

    Without a state they are settled, and no outcome is known.
    """

    link: Sender
    deliveries: list[Any]
    state: State | None


class CreditChanged(NamedTuple):
    """Credit for a link; if the link is draining, `Sender.drained` says that nothing is left."""

    link: Sender


class LinkDetached(NamedTuple):
    """End of a link; the deliveries that it has not settled are in `Sender.unsettled`."""

    link: Link
    is_closed: bool
    """True if what the link stands for ends, too: a durable subscription, a temporary queue."""


# ---- links


class LinkState(Enum):
    """State of a link."""

    ATTACHING = "attaching"
    """The client has asked, and has no answer yet."""
    ATTACHED = "attached"
    DETACHING = "detaching"
    """This end has detached, and the client has not yet: what it sends meanwhile is ignored."""
    DETACHED = "detached"


class Link:
    """Link of a session.

    Attributes:
        request: the client's attach, with its source and target.
        owner: what the server has for the link.
        answers_late: whether `answer_close` answers a close of the link, when what it asks for is done.
    """

    def __init__(self, session: Session, request: Attach) -> None:
        self.session = session
        self.request = request
        self.name = request.name
        self.handle = request.handle
        self.state = LinkState.ATTACHING
        self.owner: Any = None
        self.answers_late = False

    @property
    def is_attaching(self) -> bool:
        """True while the client waits for the answer to its attach."""
        return self.state is LinkState.ATTACHING

    def _attach(
        self, source: SourceTerminus | None, target: TargetTerminus | Coordinator | None, **fields: Any
    ) -> bool:
        """Answer the client's attach; return False if the link has ended meanwhile."""
        if self.state is not LinkState.ATTACHING:
            return False
        session, request = self.session, self.request
        capabilities = session.output.capabilities
        modes = request.snd_settle_mode, None
        answer = Attach(self.name, self.handle, not request.role, *modes, source, target, **fields)
        session.write(answer._replace(offered_capabilities=capabilities))
        self.state = LinkState.ATTACHED
        return True

    def detach(self, error: AmqpError | None = None) -> None:
        """End the link from this side, if it has not ended."""
        if self.state in (LinkState.DETACHING, LinkState.DETACHED):
            return
        self._release()
        self.session.write(Detach(self.handle, True, None if error is None else error_of(error)))
        self.state = LinkState.DETACHING

    def on_detach(self, detach: Detach) -> None:
        """Take the client's detach."""
        if self.state is not LinkState.DETACHING:
            self._release()
            if not (detach.closed and self.answers_late):
                self.session.write(Detach(self.handle, bool(detach.closed)))
            self.session.output.emit(LinkDetached(self, bool(detach.closed)))
        self.state = LinkState.DETACHED

    def answer_close(self, error: AmqpError | None = None) -> None:
        """Answer the client's close of the link."""
        self.session.write(Detach(self.handle, True, None if error is None else error_of(error)))

    def _release(self) -> None:
        """Let the session forget what the link has not settled."""

    def lost(self) -> None:
        """End the link with its session."""
        if self.state is not LinkState.DETACHING:
            self.session.output.emit(LinkDetached(self, False))
        self.state = LinkState.DETACHED


class Receiver(Link):
    """Link by which a client sends messages, or commands of transactions.

    Attributes:
        credit: number of messages that the client may still send.
    """

    def __init__(self, session: Session, request: Attach) -> None:
        super().__init__(session, request)
        self.credit = 0
        self._delivery_count = request.initial_delivery_count or 0
        self._partial = bytearray()
        self._first: Transfer | None = None

    @property
    def is_coordinator(self) -> bool:
        """True if the link carries commands of transactions."""
        return isinstance(self.request.target, Coordinator)

    def attach(self, target: TargetTerminus | Coordinator, credit: int) -> None:
        """Answer the client's attach, and give it credit."""
        limit = self.session.output.limits.message
        if self._attach(self.request.source, target, max_message_size=limit):
            self.grant(credit)

    def refuse(self, error: AmqpError) -> None:
        """Refuse the client's attach."""
        if self._attach(self.request.source, None):
            self.detach(error)

    def grant(self, credit: int) -> None:
        """Let the client send so many messages from now on."""
        self.credit = credit
        self.session.write_flow(self.handle, self._delivery_count, credit)

    def on_transfer(self, transfer: Transfer, part: bytes) -> None:
        """Take a message or a part of one."""
        if self.state is LinkState.DETACHING:
            return
        first = self._first
        if first is None:
            if transfer.delivery_id is None:
                raise AmqpError(INVALID_FIELD, "the first transfer of a message has no delivery-id")
            if not self.credit:
                self._fail(AmqpError(TRANSFER_LIMIT_EXCEEDED, "the link has no credit"))
                return
            self.credit -= 1
            self._delivery_count = (self._delivery_count + 1) & MAX_UINT
            first = transfer
        if len(self._partial) + len(part) > self.session.output.limits.message:
            limit = f"{self.session.output.limits.message:,} bytes"
            self._fail(AmqpError(MESSAGE_SIZE_EXCEEDED, f"the message is longer than {limit}"))
        elif transfer.aborted:
            self._reset()
        elif transfer.more:
            self._first = first
            self._partial += part
        else:
            payload = part
            if self._first is not None:
                payload = bytes(self._partial + part)
                self._reset()
            self._receive(first, bool(transfer.settled or first.settled), payload)

    def settle(self, delivery: IncomingMessage, state: State) -> None:
        """Give a message its outcome, and settle it; in a transaction the outcome is provisional."""
        if delivery.txn_id is not None and isinstance(state, Accepted):
            state = TransactionalState(delivery.txn_id, state)
        self.session.settle(delivery.id, state)

    def reject(self, delivery: IncomingMessage, error: AmqpError) -> None:
        """Refuse a message, and say why."""
        self.session.settle(delivery.id, Rejected(error_of(error)))

    def declared(self, delivery: IncomingMessage, txn_id: bytes) -> None:
        """Tell the client the id of its transaction."""
        self.session.settle(delivery.id, Declared(txn_id))

    def _receive(self, first: Transfer, is_settled: bool, payload: bytes) -> None:
        state = first.state
        txn_id = state.txn_id if isinstance(state, TransactionalState) else None
        delivery = IncomingMessage(first.delivery_id or 0, is_settled, txn_id, payload)
        output = self.session.output
        if not self.is_coordinator:
            output.emit(TransferReceived(self, delivery))
            return
        command = read(read_value(read_message(payload)), (Declare, Discharge))
        if isinstance(command, Discharge):
            output.emit(TransactionDischarged(self, delivery, command.txn_id, bool(command.fail)))
        elif command.global_id is None:
            output.emit(TransactionDeclared(self, delivery))
        else:
            self.reject(delivery, AmqpError(NOT_IMPLEMENTED, "there are no distributed transactions"))

    def _reset(self) -> None:
        self._first = None
        self._partial = bytearray()

    def _fail(self, error: AmqpError) -> None:
        """End the link, because of what the client sent."""
        self._reset()
        self.session.output.emit(LinkDetached(self, False))
        self.detach(error)


class Sender(Link):
    """Link by which messages go to a client.

    Attributes:
        credit: number of messages that the client still takes.
        is_draining: whether the client wants its credit to be used or given back at once.
        settles: whether what is sent is settled at once, as the client wants it.
        unsettled: what was sent, as the objects that it was sent with, by delivery id.
    """

    def __init__(self, session: Session, request: Attach) -> None:
        super().__init__(session, request)
        self.credit = 0
        self.is_draining = False
        self.unsettled: dict[int, Any] = {}
        self._delivery_count = 0
        self.settles = request.snd_settle_mode == _SETTLED

    @property
    def can_send(self) -> bool:
        """True if a message can be sent now."""
        return self.credit > 0 and self.state is LinkState.ATTACHED and self.session.can_send

    def attach(self, source: SourceTerminus) -> None:
        """Answer the client's attach; it may have given credit already."""
        self._attach(source, self.request.target, initial_delivery_count=0)

    def refuse(self, error: AmqpError) -> None:
        """Refuse the client's attach."""
        if self._attach(None, self.request.target, initial_delivery_count=0):
            self.detach(error)

    def send(self, payload: bytes, delivery: Any) -> None:
        """Send a message; `delivery` stands for it in `unsettled` and in events, unless `settles`."""
        session = self.session
        id = session.next_delivery_id()
        self._delivery_count = (self._delivery_count + 1) & MAX_UINT
        self.credit -= 1
        tag = _U32.pack(id)
        # handle, delivery-id, delivery-tag, message-format, settled
        settled = b"\x41" if self.settles else b"\x42"
        fields = uint(self.handle) + b"\x70" + tag + b"\xa0\x04" + tag + b"\x43" + settled
        session.write_transfer(fields, payload)
        if not self.settles:
            self.unsettled[id] = delivery
            session.senders[id] = self

    def drained(self) -> None:
        """Give the credit back: there is no message for the client."""
        self._delivery_count = (self._delivery_count + self.credit) & MAX_UINT
        self.credit = 0
        self.is_draining = False
        self.session.write_flow(self.handle, self._delivery_count, 0, drain=True)

    def _release(self) -> None:
        for id in self.unsettled:
            self.session.senders.pop(id, None)

    def on_flow(self, flow: Flow) -> None:
        """Take the client's credit."""
        if flow.link_credit is not None:
            # The client may not have seen the newest deliveries.
            seen = difference(flow.delivery_count or 0, self._delivery_count)
            self.credit = max(0, flow.link_credit + seen)
        self.is_draining = bool(flow.drain)
        if self.state is LinkState.ATTACHED:
            self.session.output.emit(CreditChanged(self))
        if flow.echo:
            self.session.write_flow(self.handle, self._delivery_count, self.credit)


class Session:
    """Session of a connection.

    Attributes:
        senders: the links of deliveries that are not settled, by delivery id.
    """

    def __init__(self, output: ConnectionOutput, channel: int, begin: Begin) -> None:
        self.output = output
        self.channel = channel
        self.senders: dict[int, Sender] = {}
        self._links: dict[int, Link] = {}
        self._next_incoming = begin.next_outgoing_id
        self._incoming_window = output.limits.window
        self._next_outgoing = 0
        self._remote_window = begin.incoming_window
        self._next_delivery = 0
        self._waiting: deque[bytes] = deque()
        self._accepted: list[int] = []
        self._has_ended = False
        limits = output.limits
        self.write(Begin(channel, 0, limits.window, MAX_UINT >> 1, limits.links - 1))

    @property
    def links(self) -> list[Link]:
        """Links that have not ended."""
        return [*self._links.values()]

    @property
    def can_send(self) -> bool:
        """True if the client's window is open."""
        return self._remote_window > 0 and not self._waiting

    # ---- what the client sends

    def on_attach(self, attach: Attach) -> None:
        """Take the attach of a link."""
        if attach.handle in self._links:
            raise AmqpError(HANDLE_IN_USE, f"the handle {attach.handle} is in use")
        if attach.handle >= self.output.limits.links:
            raise AmqpError(NOT_ALLOWED, f"handles are below {self.output.limits.links}")
        link: Receiver | Sender = Sender(self, attach) if attach.role else Receiver(self, attach)
        self._links[attach.handle] = link
        self.output.emit(AttachReceived(link))

    def on_detach(self, detach: Detach) -> None:
        """Take the detach of a link."""
        link = self._link(detach.handle)
        del self._links[detach.handle]
        link.on_detach(detach)

    def on_flow(self, flow: Flow) -> None:
        """Take the client's window, and the credit of a link."""
        was_closed = not self.can_send
        self._remote_window = flow.incoming_window + difference(
            flow.next_incoming_id or 0, self._next_outgoing
        )
        self._send_waiting()
        if was_closed and self.can_send:
            for link in self._links.values():
                if isinstance(link, Sender) and link.can_send:
                    self.output.emit(CreditChanged(link))
        if flow.handle is not None:
            link = self._link(flow.handle)
            if isinstance(link, Sender):
                link.on_flow(flow)
                return
        if flow.echo:
            self.write_flow()

    def on_transfer(self, transfer: Transfer, part: bytes) -> None:
        """Take a message or a part of one."""
        self._next_incoming = (self._next_incoming + 1) & MAX_UINT
        self._incoming_window -= 1
        link = self._link(transfer.handle)
        if not isinstance(link, Receiver):
            raise AmqpError(NOT_ALLOWED, "a transfer on a link that the client receives by")
        link.on_transfer(transfer, part)
        if self._incoming_window <= self.output.limits.window // 2:
            self.write_flow()

    def on_disposition(self, disposition: Disposition) -> None:
        """Take the state of deliveries that were sent."""
        if not disposition.role:
            return  # the client settles what it sent: here that is settled by its outcome
        state = disposition.state
        if state is None and not disposition.settled:
            return
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        count = ((last - first) & MAX_UINT) + 1
        # A range may span four billion ids, of which few are deliveries.
        if count <= len(self.senders):
            ids = [id for id in ((first + n) & MAX_UINT for n in range(count)) if id in self.senders]
        else:
            ids = [id for id in self.senders if (id - first) & MAX_UINT < count]
        by_link: dict[Sender, list[Any]] = {}
        for id in ids:
            link = self.senders.pop(id)
            by_link.setdefault(link, []).append(link.unsettled.pop(id))
        for link, deliveries in by_link.items():
            self.output.emit(DeliveriesSettled(link, deliveries, state))
        if not disposition.settled and ids:
            outcome = state.outcome if isinstance(state, TransactionalState) else state
            self.write(Disposition(False, first, last, True, outcome))

    def lost(self) -> None:
        """End all links with the session."""
        for link in self._links.values():
            link.lost()
        self._links.clear()
        self.senders.clear()
        self._has_ended = True

    # ---- what goes to the client

    def write(self, performative: Any) -> None:
        """Write a frame of this session, unless it has ended."""
        if not self._has_ended:
            self.output.write(performative, self.channel)

    def write_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        *,
        drain: bool = False,
    ) -> None:
        """Write the state of the windows, and of a link. The client may send a whole window again."""
        self._incoming_window = self.output.limits.window
        windows = (self._next_incoming, self._incoming_window, self._next_outgoing, MAX_UINT >> 1)
        self.write(Flow(*windows, handle, delivery_count, credit, None, drain or None))

    def next_delivery_id(self) -> int:
        """Return the id of a new delivery."""
        id = self._next_delivery
        self._next_delivery = (id + 1) & MAX_UINT
        return id

    def write_transfer(self, fields: bytes, payload: bytes) -> None:
        """Write a message, in as many frames as it needs; those beyond the window wait.

        Args:
            fields: the first five fields of its transfers, encoded.
            payload: the message.
        """
        room = self.output.max_frame - _TRANSFER_SIZE
        if len(payload) <= room:
            self._transfer(_transfer(5, fields) + payload)
            return
        for begin in range(0, len(payload), room):
            more = b"\x41" if begin + room < len(payload) else b"\x42"
            self._transfer(_transfer(6, fields + more) + payload[begin : begin + room])

    def settle(self, delivery_id: int, state: State) -> None:
        """Settle what the client sent. Accepted deliveries one after another are settled by one frame."""
        if state == _ACCEPTED:
            self._accepted.append(delivery_id)
        else:
            self.write(Disposition(True, delivery_id, None, True, state))

    def flush(self) -> None:
        """Write the settlements of accepted deliveries."""
        accepted, self._accepted = self._accepted, []
        first = 0
        for end in range(1, len(accepted) + 1):
            if end == len(accepted) or accepted[end] != (accepted[end - 1] + 1) & MAX_UINT:
                last = None if end - first == 1 else accepted[end - 1]
                self.write(Disposition(True, accepted[first], last, True, _ACCEPTED))
                first = end

    def _transfer(self, body: bytes) -> None:
        if self._remote_window > 0 and not self._waiting:
            self._write_transfer(body)
        else:
            self._waiting.append(body)

    def _send_waiting(self) -> None:
        while self._waiting and self._remote_window > 0:
            self._write_transfer(self._waiting.popleft())

    def _write_transfer(self, body: bytes) -> None:
        self._next_outgoing = (self._next_outgoing + 1) & MAX_UINT
        self._remote_window -= 1
        self.output.write_frame(self.channel, body)

    def _link(self, handle: int) -> Link:
        link = self._links.get(handle)
        if link is None:
            raise AmqpError(UNATTACHED_HANDLE, f"there is no link with the handle {handle}")
        return link


def error_of(error: AmqpError) -> Error:
    """Return an error as the other end is told of it."""
    return Error(error.condition, error.description, error.info)


_TRANSFER_SIZE: Final = 64
"""Most bytes of a frame with a transfer, without its part of the message."""


def _transfer(count: int, fields: bytes) -> bytes:
    """Encode a transfer from its encoded fields."""
    return b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, count)) + fields
