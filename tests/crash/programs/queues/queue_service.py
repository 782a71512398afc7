"""`selectroute serve`, killed again and again while clients put messages over HTTP and get them.

``python -m tests.crash.programs.queues.queue_service --kills 100``. Each round the service is started,
clients put, get by ids that they first write down, get whatever is first, wait, and hang up while they wait;
then it is killed (SIGKILL) at a random instant. What was asked and answered is accounted for as in `queue`: a
message whose put was answered is on the queue, or its get was answered, or was under way when the service
died; none was got twice; and what a client waited for that hung up is there for the others.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from selectroute.queues.sql.queue import SqlQueue
from tests.crash.programs.harness import CLEAN, kill_all, let_work, program, sqlite_in
from tests.crash.programs.queues.queue import NAME, check_queue
from tests.crash.programs.serving import PRELOADED, Connection, Service

CLIENTS = 6
KILLS_A_DATABASE = 10
MOST = 100  # lines that all clients note between two kills
QUEUE = f"/ibmmq/rest/v3/messaging/qmgr/selectroute/queue/{NAME}"


class Client:
    """One client in one life of the service; ``journal`` is what `account` reads."""

    def __init__(self, service: Service, name: str) -> None:
        self.journal: list[dict[str, Any]] = []
        self.hung_up = 0
        self._url, self._name, self._chance = service.url, name, Random(name)
        self._ask = Connection(service.url).ask
        service.start_client(self._run)

    def _run(self) -> None:
        for number in itertools.count():
            kind = self._chance.choices(["put", "get", "first", "hang up"], [6, 2, 3, 1])[0]
            if kind == "put":
                self._put(f"{self._name}-{number}")
            elif kind == "get":
                self._get()
            elif kind == "first":
                self._take(None, f"wait={self._chance.choice([0, 0, 50])}")
            else:
                self._hang_up()

    def _put(self, key: str) -> None:
        self.journal.append({"putting": key})
        headers = {"content-type": "text/plain", "ibm-mq-md-correlationId": key}
        answer = self._ask("POST", f"{QUEUE}/message", json.dumps(key).encode(), **headers)
        assert answer.status == 201, answer.data
        self.journal.append({"put": key})

    def _get(self) -> None:
        """Get one of the first messages by its id."""
        page = self._ask("GET", f"{QUEUE}/messagelist?limit=4")
        assert page.status == 200, page.data
        keys = [message["properties"]["JMSCorrelationID"] for message in page.data["messages"]]
        if keys:
            key = self._chance.choice(keys)
            self._take(key, f"correlationId={quote(key)}")

    def _take(self, key: str | None, query: str) -> None:
        self.journal.append({"getting": key})
        answer = self._ask("DELETE", f"{QUEUE}/message?{query}")
        assert answer.status in (200, 204), answer.data
        assert key is None or answer.data in (key, None), f"{answer.data} instead of {key}"
        self.journal.append({"got": answer.data} if answer.status == 200 else {"none": True})

    def _hang_up(self) -> None:
        """Wait for a message that does not come, and be gone."""
        host, _, port = self._url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            path = f"{QUEUE}/message?correlationId=nobody&wait=20000"
            connection.sendall(f"DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(self._chance.random() * 0.02)
        self.hung_up += 1


class Killed:
    """A database of queues and the service on it, over several kills: see `Life`."""

    def __init__(self, home: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._url, self._home = sqlite_in(home), home
        self._service = Service(self._url, home)
        self._clients: list[Client] = []
        SqlQueue.create(self._url, NAME).close()

    def live(self, chance: Random, name: str) -> None:
        self._service.start()
        clients = [Client(self._service, f"{name}-{number}") for number in range(CLIENTS)]
        self._clients += clients
        let_work(lambda: sum(len(client.journal) for client in clients), MOST, self._service.works, chance)
        self._service.kill()
        self.counts["kills"] += 1

    def check(self) -> None:
        counts = check_queue(self._url, self._home, [client.journal for client in self._clients])
        hung_up = sum(client.hung_up for client in self._clients)
        self.counts = counts + Counter({"kills": self.counts["kills"], "hung up": hung_up})


def run(root: Path, seed: int, kills: int) -> Counter[str]:
    CLEAN.set_forkserver_preload(PRELOADED)
    return kill_all(Killed, root, seed, kills, KILLS_A_DATABASE)


if __name__ == "__main__":
    program("kill `selectroute serve` while clients put messages and get them", run, kills=100)
