"""Many clients that change the same subscriptions.

``python -m tests.crash.programs.registry.clients --operations 100000``

64 clients talk to a real `selectroute serve`. Each subscription has a counter among its labels. A client
reads it, counts one up by PATCH or PUT with the ETag that it read, and now and then sends an ETag that it
knows to be an old one. Then

- a counter stands at the number of 200 answers: no update is lost, none is done twice;
- an ETag that is known to be old is answered with 412, and 412 names a revision that is newer;
- every change has a revision of its own, a client sees those of a subscription ascend, and the change log has
  exactly those that were told, with the counters 0, 1, 2, …
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

from selectroute.registry.registry import Registry
from tests.crash.programs.harness import CLEAN, program, sqlite_in
from tests.crash.programs.serving import PRELOADED, SUBSCRIPTIONS, Answer, Connection, Service, Threads

COUNTERS = 24
"""Subscriptions: fewer than clients, so that they get in each other's way."""

_KINDS = {"read": 3.0, "patch": 4.0, "put": 3.0, "stale": 1.5, "without": 0.3}


class Told:
    """What all clients together were told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.revisions: dict[int, str] = {}
        self.counts: Counter[str] = Counter()

    def note(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def changed(self, id: str, revision: int) -> None:
        with self._lock:
            other = self.revisions.setdefault(revision, id)
            assert other == id, f"revision {revision} was told for {id} and for {other}"
            self.counts["changes"] += 1
            assert self.counts["changes"] == len(self.revisions), f"revision {revision} was told twice"


class Client:
    """One of them: what it has read, and what it does next."""

    def __init__(self, url: str, told: Told, seed: str, ids: list[str]) -> None:
        self._connection, self._told = Connection(url), told
        self._chance, self._ids = Random(seed), ids
        self._read: dict[str, dict[str, Any]] = {}
        self._old: dict[str, int] = {}

    def run(self, operations: int, threads: Threads) -> None:
        """Send so many requests, unless another client failed."""
        for _ in range(operations):
            if threads.failed:
                break
            id = self._chance.choice(self._ids)
            kind = self._chance.choices(list(_KINDS), list(_KINDS.values()))[0]
            if kind == "read" or id not in (self._old if kind == "stale" else self._read):
                self._see(id, self._ask("GET", id))
                self._told.note("reads")
            elif kind == "without":
                self._ask("PATCH", id, {"labels": {"count": "lost"}}).problem(428, "precondition-required")
                self._told.note("428 without If-Match")
            elif kind == "stale":
                # Try to write over a state that is known to be gone.
                answer = self._ask("PATCH", id, {"labels": {"count": "lost"}}, if_match=f'"{self._old[id]}"')
                problem = answer.problem(412, "stale-revision")
                assert problem["found"] > self._old[id], problem
                self._told.note("412 on purpose")
            else:
                self._count_up(id, kind)
        self._connection.close()

    def _ask(self, method: str, id: str, body: Any = None, **headers: str) -> Answer:
        return self._connection.ask(method, f"{SUBSCRIPTIONS}/{id}", body, **headers)

    def _see(self, id: str, answer: Answer) -> None:
        """Take a subscription as it was read or changed."""
        assert answer.status == 200, answer.data
        assert answer.revision == answer.data["revision"]
        before = self._read.get(id)
        if before is not None and answer.revision != before["revision"]:
            assert answer.revision > before["revision"], f"the revisions of {id} went back"
            assert int(answer.data["labels"]["count"]) > int(before["labels"]["count"]), f"{id} counted back"
            self._old[id] = before["revision"]
        self._read[id] = answer.data

    def _count_up(self, id: str, kind: str) -> None:
        known = self._read[id]
        etag, labels = f'"{known["revision"]}"', {"count": str(int(known["labels"]["count"]) + 1)}
        body = {"labels": labels} if kind == "patch" else {**known, "labels": labels}
        answer = self._ask(kind.upper(), id, body, if_match=etag)
        if answer.status == 412:
            problem = answer.problem(412, "stale-revision")
            assert problem["found"] > problem["expected"] == known["revision"], problem
            del self._read[id]
            self._old[id] = known["revision"]
            self._told.note("412 overtaken")
            return
        self._see(id, answer)
        assert answer.data["labels"] == labels and answer.revision > known["revision"]
        self._told.changed(id, answer.revision)


def check(registry: Registry, told: Told, ids: list[str]) -> None:
    """Hold counters and log against what was told. Raises AssertionError."""
    logged: defaultdict[str, list[int]] = defaultdict(list)
    revisions: dict[int, str] = {}
    for change in registry.follow_changes(0):
        assert change.subscription is not None and change.op in ("add", "replace"), change
        logged[change.id].append(int(change.subscription.labels["count"]))
        if change.op == "replace":
            assert change.revision not in revisions, f"revision {change.revision} has two changes"
            revisions[change.revision] = change.id
    assert revisions == told.revisions, "the log has other changes than were acknowledged"
    acknowledged = Counter(told.revisions.values())
    for id in ids:
        assert logged[id] == list(range(acknowledged[id] + 1)), f"{id} lost an update"
        count = int(registry.get(id).labels["count"])
        assert count == acknowledged[id], f"{id} stands at {count}, {acknowledged[id]} updates were told"


def run(root: Path, seed: int, operations: int, clients: int) -> Counter[str]:
    CLEAN.set_forkserver_preload(PRELOADED)
    told, threads, url = Told(), Threads(), sqlite_in(root)
    service = Service(url, root)
    service.start()
    first = Connection(service.url)
    bodies = [{"selector": f"a = {number}", "labels": {"count": "0"}} for number in range(COUNTERS)]
    ids = [first.ask("POST", SUBSCRIPTIONS, body).data["id"] for body in bodies]
    for number in range(clients):
        share = operations // clients + (number < operations % clients)
        threads.start(Client(service.url, told, f"{seed}-{number}", ids).run, share, threads)
    threads.join()
    service.stop()
    with Registry.open(url) as registry:  # which verifies it
        check(registry, told, ids)
    assert told.counts.total() == operations, told.counts
    return Counter(dict(sorted(told.counts.items())))


if __name__ == "__main__":
    program("many clients change the same subscriptions over HTTP", run, operations=100_000, clients=64)
