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

import itertools
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from selectroute.registry.registry import Registry
from tests.crash.programs.harness import CLEAN, kill_all, let_work, program, sqlite_in
from tests.crash.programs.registry.registry import (
    CLIENTS,
    IMPORTED,
    KILLS_A_DATABASE,
    check_log,
    check_published,
    drawn_kind,
    spec_of,
)
from tests.crash.programs.serving import NDJSON, PRELOADED, SUBSCRIPTIONS, Connection, Service

MANY_CLIENTS = 32
MOST = 60  # lines that four clients note between two kills
EARLY_SECONDS = 0.8  # within which some are killed while they start


def _body(key: str, value: int = 0) -> dict[str, Any]:
    """A specification as a client sends it."""
    spec = spec_of(key, value)
    return {"selector": spec.selector, "topic": spec.topic, "labels": dict(spec.labels)}


class Client:
    """One client in one life of a service: it notes in ``service.lines`` what `check_log` reads.

    ``open`` are the requests with a key that had no answer.
    """

    def __init__(self, service: Service, name: str, open: dict[str, tuple[str, dict[str, Any]]]) -> None:
        self._lines, self._ask, self._open = service.lines, Connection(service.url).ask, open
        self._name, self._chance = name, Random(name)
        self._mine: dict[str, int] = {}
        service.start_client(self._run)

    def _run(self) -> None:
        for number in itertools.count():
            key, kind = f"{self._name}-{number}", drawn_kind(self._chance)
            if kind == "register":
                self._keyed(key, SUBSCRIPTIONS, _body(key))
            elif kind == "apply":
                operations = [{"op": "add", **_body(key, part)} for part in range(3)]
                self._keyed(key, f"{SUBSCRIPTIONS}:batch", {"operations": operations})
            elif kind == "import":
                self._import(key)
            elif self._mine:
                self._change(key)

    def _keyed(self, key: str, path: str, body: dict[str, Any]) -> None:
        """Register or change with an Idempotency-Key."""
        self._lines.append({"about": "apply", "key": key, "count": len(body.get("operations", [0]))})
        self._open[key] = path, body
        answer = self._ask("POST", path, body, idempotency_key=key)
        assert answer.status == (201 if path == SUBSCRIPTIONS else 200), answer.data
        self._mine |= dict.fromkeys(_note(self._lines, key, answer.data), answer.data["revision"])
        del self._open[key]

    def _import(self, key: str) -> None:
        lines = "\n".join(json.dumps(_body(key, part)) for part in range(IMPORTED)).encode()
        self._lines.append({"about": "import", "key": key, "count": IMPORTED})
        answer = self._ask("POST", f"{SUBSCRIPTIONS}:import", lines, **NDJSON)
        if answer.status != 429:  # of many clients, some import at the same time
            assert answer.status == 200 and answer.data["rows"] == IMPORTED, answer.data
            self._lines.append({"done": key, "revision": answer.data["revision"], "count": IMPORTED})

    def _change(self, key: str) -> None:
        """Change a subscription that only this client changes, at the revision that it was told."""
        id = self._chance.choice(list(self._mine))
        method, step, body = self._chance.choice(
            [
                ("PUT", "", {**_body(key, 1), "id": id}),
                ("PATCH", "", {"selector": "b = 2"}),
                ("POST", ":pause", None),
                ("POST", ":resume", {"from": "last-processed"}),
                ("DELETE", "", None),
            ]
        )
        answer = self._ask(method, f"{SUBSCRIPTIONS}/{id}{step}", body, if_match=f'"{self._mine[id]}"')
        assert answer.status == 200, answer.data  # nobody else changes it: 412 would be a lost update
        if method == "DELETE":
            del self._mine[id]
            self._lines.append({"removed": id})
        elif answer.revision != self._mine[id]:
            self._mine[id] = answer.revision
            self._lines.append({"done": key, "revision": answer.revision, "ids": [id]})


def _note(lines: list[dict[str, Any]], key: str, data: dict[str, Any]) -> list[str]:
    """Note that a request with a key is done; return the ids of its subscriptions."""
    ids = [each["id"] for each in data.get("subscriptions", [data])]
    lines.append({"done": key, "revision": data["revision"], "ids": ids})
    return ids


class Killed:
    """A database and the service on it, over several kills: see `Life`."""

    def __init__(self, home: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._url = sqlite_in(home)
        self._service = Service(self._url, home)
        self._open: dict[str, tuple[str, dict[str, Any]]] = {}
        self._arrived: set[str] = set()

    def live(self, chance: Random, name: str) -> None:
        # Some are killed while they start, verify and catch the folder up.
        if self._service.lines and chance.random() < 0.1:
            self._service.begin()
            time.sleep(chance.random() * EARLY_SECONDS)
            self.counts["killed while it started"] += 1
        else:
            self._service.start()
            self._repeat()
            clients = MANY_CLIENTS if self.counts["kills"] % 2 else CLIENTS
            for number in range(clients):
                Client(self._service, f"{name}-{number}", self._open)
            # Each has asked something, or most would have nothing that can be lost.
            most = MOST * clients // CLIENTS
            let_work(lambda: len(self._service.lines), most, self._service.works, chance)
        self._service.kill()
        self.counts["kills"] += 1

    def check(self) -> None:
        with Registry.open(self._url) as registry:  # which verifies it
            self.counts |= check_log(registry, self._service.lines)
            check_published(registry)
            self._arrived = {key for key in self._open if registry.list(label=f"key={key}").items}

    def _repeat(self) -> None:
        """Send again, with their keys, the requests that had no answer."""
        ask = Connection(self._service.url).ask
        for key, (path, body) in self._open.items():
            answer, again = (ask("POST", path, body, idempotency_key=key) for _ in range(2))
            assert answer.status in (200, 201), answer.data
            assert answer.data == again.data, f"the key {key} has two answers"
            ids = _note(self._service.lines, key, answer.data)
            page = ask("GET", f"{SUBSCRIPTIONS}?label=key%3D{key}").data["items"]
            assert [each["id"] for each in page] == sorted(ids), f"{key} is there {len(page)} times"
            self.counts[f"repeated, had {'' if key in self._arrived else 'not '}arrived"] += 1
        self._open.clear()


def run(root: Path, seed: int, kills: int) -> Counter[str]:
    CLEAN.set_forkserver_preload([*PRELOADED, __name__])
    return kill_all(Killed, root, seed, kills, KILLS_A_DATABASE)


if __name__ == "__main__":
    program("kill `selectroute serve` while clients write over HTTP", run, kills=500)
