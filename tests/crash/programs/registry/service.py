"""`selectroute serve`, killed again and again while clients write over HTTP.

``python -m tests.crash.programs.registry.service --kills 500``. Each round the service is started, clients
register and change several subscriptions at once with Idempotency-Keys, change single ones with If-Match and
import, and the service is killed (SIGKILL) at a random instant. Every second round has 32 clients, whose
changes are committed together. Then the database is held against what was answered, as `registry` does: what
was acknowledged is there under the revision that was told, what was not is there as a whole or not at all,
and the snapshot folder can be caught up. Behind the next start every request with a key that had no answer is
sent again with its key: each subscription is there once, whether the first request had arrived or not, and
under the revision that is told.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selectroute.registry.registry import Registry
from tests.crash.programs.command import LOST, SUBSCRIPTIONS, Connection, Threads, let_work, wait_until
from tests.crash.programs.registry.registry import (
    CLIENTS,
    IMPORTED,
    KILLS_A_DATABASE,
    check_log,
    check_published,
    kill_command,
    spec_of,
)

START_SECONDS = 120.0
MANY_CLIENTS = 32
EARLY_SECONDS = 0.8  # within which some are killed while they start

PRELOADED = [
    "selectroute.cli.commands.serve",
    "selectroute.service.server",
    "tests.crash.programs.registry.registry",
]
"""What the process that others are forked off imports."""

_clean = multiprocessing.get_context("forkserver")  # forked off a process that has the modules and no threads


def serve(options: Sequence[str], log: Path) -> None:
    """The command itself, in a process that need not import everything first."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, sys.stderr.fileno())
    from selectroute.cli import main

    sys.argv = ["selectroute", "serve", *options]
    main()


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _body(key: str, value: int = 0) -> dict[str, Any]:
    """A specification as a client sends it."""
    given = spec_of(key, value)
    return {"selector": given.selector, "topic": given.topic, "labels": dict(given.labels)}


class Round:
    """One life of a service: its clients, what they asked and what they were answered.

    ``lines`` is what `check_log` reads; ``open`` are the requests with a key that had no answer.
    """

    def __init__(self, url: str, seed: str, clients: int = CLIENTS) -> None:
        self._url = url
        self._seed = seed
        self._clients = clients
        self.lines: list[dict[str, Any]] = []
        self.open: dict[str, tuple[str, dict[str, Any]]] = {}
        self.ending = threading.Event()
        self._threads = Threads()

    def start(self) -> None:
        """Let the clients write until the service is gone."""
        for number in range(self._clients):
            self._threads.start(self._client, f"{self._seed}-{number}")

    def join(self) -> None:
        """Wait until all have noticed. Raises AssertionError for an answer that should not be."""
        self._threads.join()

    @property
    def failed(self) -> bool:
        """Whether a client got an answer that should not be."""
        return self._threads.failed

    def _client(self, name: str) -> None:
        connection, chance = Connection(self._url), random.Random(name)
        mine: dict[str, int] = {}
        try:
            for number in range(1_000_000):
                key = f"{name}-{number}"
                kind = chance.choices(["register", "apply", "import", "change"], [6, 2, 0.3, 4])[0]
                if kind == "change" and mine:
                    self._change(connection, chance, mine, key)
                elif kind == "import":
                    self._import(connection, key)
                elif kind != "change":
                    mine |= self._keyed(connection, key, *keyed_request(kind, key))
        except LOST:
            assert self.ending.is_set(), "the service broke a connection off that nobody killed"

    def _keyed(self, connection: Connection, key: str, path: str, body: dict[str, Any]) -> dict[str, int]:
        """Register or change with an Idempotency-Key; returns id → revision."""
        several = path != SUBSCRIPTIONS
        self.lines.append({"about": "apply", "key": key, "count": len(body["operations"]) if several else 1})
        self.open[key] = path, body
        answer = connection.ask("POST", path, body, idempotency_key=key)
        assert answer.status == (200 if several else 201), answer.data
        made = answer.data["subscriptions"] if several else [answer.data]
        revision = answer.data["revision"]
        self.lines.append({"done": key, "revision": revision, "ids": [one["id"] for one in made]})
        del self.open[key]
        return {one["id"]: revision for one in made}

    def _import(self, connection: Connection, key: str) -> None:
        lines = "\n".join(json.dumps(_body(key, part)) for part in range(IMPORTED)).encode()
        self.lines.append({"about": "import", "key": key, "count": IMPORTED})
        answer = connection.ask(
            "POST", f"{SUBSCRIPTIONS}:import", lines, **{"content-type": "application/x-ndjson"}
        )
        if answer.status == 429:  # of many clients, some import at the same time
            return
        assert answer.status == 200 and answer.data["rows"] == IMPORTED, answer.data
        self.lines.append({"done": key, "revision": answer.data["revision"], "count": IMPORTED})

    def _change(self, connection: Connection, chance: random.Random, mine: dict[str, int], key: str) -> None:
        """Change a subscription that only this client changes, at the revision that it was told."""
        id = chance.choice(list(mine))
        method, step, body = chance.choice(
            [
                ("PUT", "", {**_body(key, 1), "id": id}),
                ("PATCH", "", {"selector": "b = 2"}),
                ("POST", ":pause", None),
                ("POST", ":resume", {"from": "last-processed"}),
                ("DELETE", "", None),
            ]
        )
        path, etag = f"{SUBSCRIPTIONS}/{id}{step}", f'"{mine[id]}"'
        answer = connection.ask(method, path, body, if_match=etag)
        assert answer.status == 200, answer.data  # nobody else changes it: 412 would be a lost update
        if method == "DELETE":
            del mine[id]
            self.lines.append({"removed": id})
        elif answer.revision != mine[id]:
            mine[id] = answer.revision
            self.lines.append({"done": key, "revision": answer.revision, "ids": [id]})


def keyed_request(kind: str, key: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a request that is sent with this key."""
    if kind == "register":
        return SUBSCRIPTIONS, _body(key)
    operations = [{"op": "add", **_body(key, part)} for part in range(3)]
    return f"{SUBSCRIPTIONS}:batch", {"operations": operations}


def repeat(
    url: str, asked: dict[str, tuple[str, dict[str, Any]]], lines: list[dict[str, Any]], arrived: set[str]
) -> Counter[str]:
    """Send again, with their keys, the requests that had no answer; notes the answers among the lines."""
    counts: Counter[str] = Counter()
    connection = Connection(url)
    for key, (path, body) in asked.items():
        answers = [connection.ask("POST", path, body, idempotency_key=key) for _ in range(2)]
        assert answers[0].status in (200, 201), answers[0].data
        assert answers[0].data == answers[1].data, f"the key {key} has two answers"
        data = answers[0].data
        ids = sorted(one["id"] for one in data.get("subscriptions", [data]))
        page = connection.ask("GET", f"{SUBSCRIPTIONS}?label=key%3D{key}").data
        assert [one["id"] for one in page["items"]] == ids, f"{key} is there {len(page['items'])} times"
        lines.append({"done": key, "revision": data["revision"], "ids": ids})
        counts["repeated, had arrived" if key in arrived else "repeated, had not arrived"] += 1
    connection.close()
    return counts


class Database:
    """A database and the service on it, over several kills."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.log = home / "serve.log"
        self.url = f"sqlite:///{home}/registry.db"
        self.lines: list[dict[str, Any]] = []
        self._open: dict[str, tuple[str, dict[str, Any]]] = {}
        self._arrived: set[str] = set()

    def kill(self, chance: random.Random, seed: str, most: int, clients: int) -> Counter[str]:
        """One round, with so many clients. Raises AssertionError if something did not hold."""
        port = free_port()
        options = ["--registry", self.url, "--port", str(port), "--log-level", "warning"]
        server = _clean.Process(target=serve, args=(options, self.log), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{port}"
        # Some are killed while they start, verify and catch the folder up.
        early = bool(self.lines) and chance.random() < 0.1
        if early:
            time.sleep(chance.random() * EARLY_SECONDS)
            round = Round(url, seed)
        else:
            wait_until(lambda: answers(url) or not server.is_alive(), START_SECONDS, f"start: {self.log}")
            assert server.is_alive(), f"the service ended by itself: see {self.log}"
            counts = repeat(url, self._open, self.lines, self._arrived)
            self._open = {}
            round = Round(url, seed, clients)
            round.start()
            # Each has asked something, or most would have nothing that can be lost.
            more = most * clients // CLIENTS
            let_work(lambda: len(round.lines), more, lambda: server.is_alive() and not round.failed, chance)
        assert server.is_alive() and not round.failed, f"a service that nobody killed: see {self.log}"
        round.ending.set()
        os.kill(server.pid or 0, signal.SIGKILL)
        server.join()
        round.join()
        self.lines += round.lines
        self._open |= round.open
        if early:
            counts = Counter({"killed while it started": 1})
        self._check()
        return counts + Counter(kills=1)

    def _check(self) -> None:
        """The database as the killed process left it."""
        with Registry.open(self.url) as registry:  # which verifies it
            self.acknowledged = check_log(registry, self.lines)["acknowledged"]
            check_published(registry)
            self._arrived = {key for key in self._open if registry.list(label=f"key={key}").items}


def answers(url: str) -> bool:
    """Whether a service answers there."""
    connection = Connection(url)
    try:
        return connection.ask("GET", "/healthz").status == 200
    except LOST:
        return False
    finally:
        connection.close()


def run(kills: int, seed: int, root: Path, most: int = 60) -> Counter[str]:
    """So many kills, each before the clients have noted `most` lines more; returns what was counted.

    Raises AssertionError if something did not hold.
    """
    _clean.set_forkserver_preload(PRELOADED)
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    for number in range(kills):
        if number % KILLS_A_DATABASE == 0:
            database = Database(root / f"service-{number // KILLS_A_DATABASE}")
        total += database.kill(chance, f"{seed}-{number}", most, MANY_CLIENTS if number % 2 else CLIENTS)
        if number % KILLS_A_DATABASE == KILLS_A_DATABASE - 1 or number == kills - 1:
            total["acknowledged changes"] += database.acknowledged
    return total


if __name__ == "__main__":
    kill_command("kill `selectroute serve` while clients write over HTTP", run)
