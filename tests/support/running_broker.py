"""A broker that runs in a thread of the tests, and what a JMS client in Java needs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from selectroute.broker.accounts import Accounts
from selectroute.broker.durable import DurableSubscriptions
from selectroute.broker.server import BrokerServer
from selectroute.queues.sql.queue import SqlQueues
from selectroute.registry.registry import Registry
from selectroute.service.subscriptions.publishing import Publishing
from selectroute.spark.session import JavaError
from selectroute.storage import Location
from selectroute.testing.jars import JarError, Module, fetch
from tests.support.amqp import SocketClient
from tests.support.components import missing


class RunningBroker:
    """A broker that runs; `stop` it."""

    def __init__(self, url: str, snapshots: Path) -> None:
        self.url = url
        self.registry = Registry.open(url)
        self.queues = SqlQueues(url)
        self.publishing = Publishing(self.registry, Location.of(snapshots))
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


def run_client(
    folder: Path, name: str, source: str, version: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Compile a class that uses a version of Qpid JMS, and run it; without Java or its jars skip the test."""
    if shutil.which("javac") is None:
        pytest.skip("there is no javac, which compiles a JMS client")
    try:
        jars = fetch(
            f"qpid-jms-{version}", [Module("org.apache.qpid", "qpid-jms-client", version)], transitive=True
        )
    except (JarError, JavaError) as error:
        missing(str(error))
    file = folder / f"{name}.java"
    file.write_text(source, encoding="utf-8")
    path = os.pathsep.join(map(str, (*jars, folder)))
    subprocess.run(["javac", "-d", folder, "-cp", path, file], check=True)
    command = ["java", "-cp", path, name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
