"""Process of a broker: it listens, serves its clients, and stops when all that has begun is durable."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from selectroute import __version__
from selectroute.amqp.connection import TICK_SECONDS, Connection, Event
from selectroute.amqp.errors import CONNECTION_FORCED, AmqpError
from selectroute.amqp.output import ConnectionLimits
from selectroute.amqp.sasl import ANONYMOUS, PLAIN
from selectroute.broker.accounts import Accounts
from selectroute.broker.amqp import CAPABILITIES, AmqpClient
from selectroute.broker.broker import MessageBroker
from selectroute.broker.durable import DurableSubscriptions
from selectroute.queues.errors import MQError
from selectroute.queues.sql.queue import SqlQueues

MOST_CONNECTIONS: Final = 10_000
"""Connections at once; one more is closed."""

MOST_PENDING_BYTES: Final = 64 << 20
"""Bytes of messages that are not durable yet, from which on nothing more is read of clients."""

_WRITE_BYTES: Final = 4 << 20
"""Bytes that wait for a client to read, from which on it gets no more messages."""

_CLOSE_SECONDS: Final = 5.0
"""Time that a client has to close, once the broker has."""


class BrokerServer:
    """Server of a broker's clients, on one event loop.

    Args:
        queues: the queues in a database.
        durable: the subscriptions of the registry.
        accounts: who may connect.
        limits: what is taken from each client.
    """

    def __init__(
        self,
        queues: SqlQueues,
        durable: DurableSubscriptions,
        accounts: Accounts,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.broker = MessageBroker(queues, durable, self.schedule_writes, self._lost_messages)
        self.accounts = accounts
        self.limits = limits or ConnectionLimits()
        self.clients: dict[str, AmqpClient] = {}
        """Clients by their container, of those of which only one may be connected."""
        self.protocols: set[ClientProtocol] = set()
        self.paused: set[ClientProtocol] = set()
        """Clients that are not read of."""
        self.unwritten: dict[ClientProtocol, None] = {}
        """Clients with bytes to send."""
        self._is_scheduled = False

    async def serve(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        started: Callable[[], None] = lambda: None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Serve until a signal, or until `stop` is set. Raises `StoreError` if the database fails."""
        stopped = stop or asyncio.Event()
        loop = asyncio.get_running_loop()
        if stop is None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stopped.set)
        await self.broker.start()
        server = await loop.create_server(partial(ClientProtocol, self), sock=listening, ssl=tls)
        tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self.broker.watch())]
        started()
        try:
            await stopped.wait()
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            self._close_all(AmqpError(CONNECTION_FORCED, "the broker stops"))
            await self.broker.close()

    def schedule_writes(self) -> None:
        """Write to all clients after what runs now."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_scheduled = False
        self.broker.pump()
        while self.unwritten:
            protocol, _ = self.unwritten.popitem()
            protocol.write()
        while self.paused and self.broker.pending_bytes <= MOST_PENDING_BYTES:
            self.paused.pop().resume_reading()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = asyncio.get_running_loop().time()
            for protocol in [*self.protocols]:
                protocol.tick(now)

    def _lost_messages(self, error: MQError) -> None:
        self._close_all(AmqpError(CONNECTION_FORCED, f"the broker has lost its messages: {error}"))

    def _close_all(self, error: AmqpError) -> None:
        for protocol in [*self.protocols]:
            protocol.close(error)


class ClientProtocol(asyncio.Protocol):
    """Transport of a client."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._transport: Any = None
        mechanisms = [PLAIN, ANONYMOUS] if server.accounts.admits_anybody else [PLAIN]
        self._connection = Connection(
            "selectroute",
            mechanisms,
            capabilities=CAPABILITIES,
            properties={"product": "selectroute", "version": __version__},
            limits=server.limits,
        )
        self._client = AmqpClient(
            server.broker, self._connection, server.accounts, server.clients, self._wrote
        )

    # ---- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection."""
        self._transport = transport
        if len(self._server.protocols) >= MOST_CONNECTIONS:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(_WRITE_BYTES)
        self._server.protocols.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._handle(self._connection.receive(data))
        if self._server.broker.pending_bytes > MOST_PENDING_BYTES and not self._transport.is_closing():
            self._transport.pause_reading()
            self._server.paused.add(self)

    def resume_reading(self) -> None:
        """Read again: what was pending is durable."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        """Take the end of the connection."""
        self._server.protocols.discard(self)
        self._server.paused.discard(self)
        self._server.unwritten.pop(self, None)
        self._handle(self._connection.lost())

    def pause_writing(self) -> None:
        """Send no more messages: the client does not read them."""
        self._client.is_blocked = True

    def resume_writing(self) -> None:
        """Send messages again."""
        self._client.resume()
        self._wrote()

    # ---- the server's calls

    def write(self) -> None:
        """Write what the connection has for the client, and end it if it is closed."""
        output = self._connection.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(output)
        if self._connection.is_closed:
            self._transport.close()

    def tick(self, now: float) -> None:
        """Keep the connection's time-outs."""
        self._handle(self._connection.tick(now))

    def close(self, error: AmqpError) -> None:
        """Close the connection, and abort it if the client does not close, too."""
        self._handle(self._connection.close(error))
        self.write()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self._transport.abort)

    # ---- inside

    def _handle(self, events: list[Event]) -> None:
        self._client.handle(events)
        self._wrote()

    def _wrote(self) -> None:
        self._server.unwritten[self] = None
        self._server.schedule_writes()
