"""A broker in a thread, on a database of its own."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed (the extra `service`)")

from selectroute.broker.accounts import Accounts
from selectroute.broker.durable import DurableSubscriptions
from selectroute.broker.server import BrokerServer
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.subscriptions.publishing import Publishing
from tests.support.amqp import SocketClient


class RunningBroker:
    """A broker that runs; `stop` it."""

    def __init__(self, url: str) -> None:
        self.registry = Registry.open(url)
        self.queues = SqlQueues(url)
        self.publishing = Publishing(self.registry)
        self.publishing.start()
        durable = DurableSubscriptions(self.registry, self.queues, self.publishing)
        self.server = BrokerServer(self.queues, durable, Accounts(self.registry.tokens, is_open=True))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(30)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.server.serve(self._listening, None, self._started.set, self._stop)

    def client(self, container: str = "client", **options) -> SocketClient:
        """Connect a client."""
        return SocketClient(self.port, container, **options)

    def stop(self) -> None:
        """Stop the broker, and close its database."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            self._listening.close()
            self.publishing.stop()
            self.queues.close()
            self.registry.close()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/broker.db"


@pytest.fixture
def start(url):
    """A function that starts a broker on the database of the test."""
    running: list[RunningBroker] = []

    def starting() -> RunningBroker:
        running.append(RunningBroker(url))
        return running[-1]

    yield starting
    for broker in running:
        broker.stop()


@pytest.fixture
def broker(start):
    return start()
