"""`selectroute serve`, killed again and again while clients put messages over HTTP and get them.

``python -m tests.crash.programs.queues.queue_service --kills 100``. Each round the service is started,
clients put, get by ids that they first write down, get whatever is first, wait, and hang up while they wait;
then it is killed (SIGKILL) at a random instant. What was asked and answered is accounted for as in `queue`: a
message whose put was answered is on the queue, or its get was answered, or was under way when the service
died; none was got twice; and what a client waited for that hung up is there for the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.crash.programs.command import LOST, Connection, Threads, let_work, wait_until

from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.sql.queue import SqlQueue
from tests.crash.programs.queues.queue import account
from tests.crash.programs.registry.registry import kill_command
from tests.crash.programs.registry.service import START_SECONDS, answers, free_port, serve

CLIENTS = 6
KILLS_A_DATABASE = 10
NAME = "CRASH"
QUEUE = f"/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/{NAME}"

_clean = multiprocessing.get_context("forkserver")


class Client:
    """One client in one life of the service; ``journal`` is what `account` reads."""

    def __init__(self, url: str, name: str, ending: threading.Event) -> None:
        self.journal: list[dict[str, Any]] = []
        self.hung_up = 0
        self._connection = Connection(url)
        self._address = url.removeprefix("http://").split(":")
        self._name = name
        self._ending = ending
        self._chance = random.Random(name)

    def run(self) -> None:
        """Put and get until the service is gone."""
        try:
            for number in range(1_000_000):
                kind = self._chance.choices(["put", "get", "first", "hang up"], [6, 2, 3, 1])[0]
                if kind == "put":
                    self._put(f"{self._name}-{number}")
                elif kind == "get":
                    self._get()
                elif kind == "first":
                    self._take(None, f"wait={self._chance.choice([0, 0, 50])}")
                else:
                    self._hang_up()
        except LOST:
            assert self._ending.is_set(), "the service broke a connection off that nobody killed"

    def _put(self, key: str) -> None:
        self.journal.append({"putting": key})
        headers = {"content-type": "text/plain", "ibm-mq-md-correlationId": key}
        answer = self._connection.ask("POST", f"{QUEUE}/message", json.dumps(key).encode(), **headers)
        assert answer.status == 201, answer.data
        self.journal.append({"put": key})

    def _get(self) -> None:
        """Get one of the first messages by its id."""
        found = self._connection.ask("GET", f"{QUEUE}/messagelist?limit=4")
        assert found.status == 200, found.data
        keys = [one["properties"]["JMSCorrelationID"] for one in found.data["messages"]]
        if keys:
            key = self._chance.choice(keys)
            self._take(key, f"correlationId={quote(key)}")

    def _take(self, key: str | None, query: str) -> None:
        self.journal.append({"getting": key})
        answer = self._connection.ask("DELETE", f"{QUEUE}/message?{query}")
        assert answer.status in (200, 204), answer.data
        assert key is None or answer.data in (key, None), f"{answer.data} instead of {key}"
        self.journal.append({"got": answer.data} if answer.status == 200 else {"none": True})

    def _hang_up(self) -> None:
        """Wait for a message that does not come, and be gone."""
        host, port = self._address
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            head = (
                f"DELETE {QUEUE}/message?correlationId=nobody&wait=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            connection.sendall(head.encode())
            time.sleep(self._chance.random() * 0.02)
        self.hung_up += 1


class Life:
    """A database of queues and the services that live on it, one after the other."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.counts: Counter[str] = Counter()
        self._home = home
        self._url = f"sqlite:///{home}/registry.db"
        self._journals: list[list[dict[str, Any]]] = []
        self._hung_up = 0
        SqlQueue.create(self._url, NAME).close()

    def kill(self, chance: random.Random, seed: str, most: int) -> None:
        """One round. Raises AssertionError if something did not hold."""
        port, log = free_port(), self._home / "serve.log"
        options = ["--registry", self._url, "--port", str(port), "--log-level", "warning"]
        server = _clean.Process(target=serve, args=(options, log), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url) or not server.is_alive(), START_SECONDS, f"start: {log}")
        assert server.is_alive(), f"the service ended by itself: see {log}"
        ending, threads = threading.Event(), Threads()
        clients = [Client(url, f"{seed}-{number}", ending) for number in range(CLIENTS)]
        for client in clients:
            threads.start(client.run)
        let_work(
            lambda: sum(len(client.journal) for client in clients),
            most,
            lambda: server.is_alive() and not threads.failed,
            chance,
        )
        assert server.is_alive() and not threads.failed, f"a service that nobody killed: see {log}"
        ending.set()
        os.kill(server.pid or 0, signal.SIGKILL)
        server.join()
        threads.join()
        self._journals += [client.journal for client in clients]
        self._hung_up += sum(client.hung_up for client in clients)
        self._check()

    def _check(self) -> None:
        """The queue as the killed process left it."""
        with SqlQueue(self._url, NAME) as queue:
            cursor, there = queue.cursor(), []
            while True:
                try:
                    there.append(json.loads(cursor.next().body))
                except MQError as error:
                    assert error.reason == MQRC_NO_MSG_AVAILABLE, error
                    break
            assert queue.depth == len(there)
        assert not list(self._home.glob("*.owner-*")), "a lock of a dead process is left"
        self.counts = account(self._journals, there) + Counter({"hung up": self._hung_up})


def run(kills: int, seed: int, root: Path, most: int = 100) -> Counter[str]:
    """So many kills, each before the clients have noted `most` lines more; returns what was counted.

    Raises AssertionError if something did not hold.
    """
    _clean.set_forkserver_preload(["selectroute.cli.commands.serve", "selectroute.service.server"])
    chance = random.Random(seed)
    total: Counter[str] = Counter(kills=kills)
    for number in range(kills):
        if number % KILLS_A_DATABASE == 0:
            life = Life(root / f"queues-{number // KILLS_A_DATABASE}")
        life.kill(chance, f"{seed}-{number}", most)
        if number % KILLS_A_DATABASE == KILLS_A_DATABASE - 1 or number == kills - 1:
            total += life.counts
    return total


if __name__ == "__main__":
    kill_command("kill `selectroute serve` while clients put messages and get them", run)
