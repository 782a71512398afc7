"""A registry whose process is killed again and again while clients write to it.

``python -m tests.crash.programs.registry.registry --kills 500``. Each round a process opens the registry,
where four clients register, replace, remove, pause, apply several changes at once and import, and a publisher
follows; it is killed (SIGKILL) at a random instant. What each client was about to do, and what was
acknowledged, stands in a file. Then

- the database verifies, and every acknowledged change is in the log, under the revision that was told;
- a change that was not acknowledged is there as a whole or not at all;
- a registration that is repeated with its Idempotency-Key is there once, whether it had arrived or not;
- the snapshot folder is caught up to exactly what the registry has.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from selectroute.index.snapshot import Snapshot
from selectroute.registry.changes import Idempotency, Operation
from selectroute.registry.errors import NotFoundError
from selectroute.registry.model import SubscriptionSpec
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from tests.crash.programs.harness import (
    CLEAN,
    Journal,
    kill,
    kill_all,
    let_work,
    lines_of,
    program,
    sqlite_in,
    start,
)
from tests.crash.programs.serving import Threads

CLIENTS = 4
KILLS_A_DATABASE = 40
IMPORTED = 300
MOST = 40  # changes between two kills
EARLY_SECONDS = 0.5  # within which some are killed while they open the registry


def spec_of(key: str, value: int = 0) -> SubscriptionSpec:
    return SubscriptionSpec(f"a = {value} AND k = '{key}'", topic=f"t/{value % 5}", labels={"key": key})


def drawn_kind(chance: Random) -> str:
    """Draw what a client does next."""
    return chance.choices(["register", "apply", "import", "change"], [6, 2, 0.3, 4])[0]


def work(url: str, path: Path, name: str, started: Any) -> None:
    """Write until killed."""
    registry, journal = Registry.open(url, verify=False), Journal(path)
    publisher = RegistryPublisher(registry)
    threading.Thread(target=publisher.follow, args=(threading.Event(),), daemon=True).start()
    clients = Threads()
    for number in range(CLIENTS):
        clients.start(client, registry, journal, f"{name}-{number}")
    started.set()
    clients.join()


def client(registry: Registry, journal: Journal, name: str) -> None:
    chance, mine = Random(name), []
    for number in range(1_000_000):
        key, kind = f"{name}-{number}", drawn_kind(chance)
        if kind == "register":
            journal.write(about="register", key=key)
            added = registry.register(spec_of(key), idempotency=Idempotency("crash", key, key))
            journal.write(done=key, revision=added.revision, ids=[added.id])
            mine.append(added.id)
        elif kind == "apply":
            journal.write(about="apply", key=key, count=3)
            applied = registry.apply([Operation("add", None, spec_of(key, part)) for part in range(3)])
            ids = [each.id for each in applied.subscriptions]
            journal.write(done=key, revision=applied.revision, ids=ids)
            mine += ids
        elif kind == "import":
            journal.write(about="import", key=key, count=IMPORTED)
            lines = (json.dumps(spec_of(key, part).to_json()) for part in range(IMPORTED))
            journal.write(done=key, revision=registry.import_(lines).revision, count=IMPORTED)
        elif mine:
            change(registry, journal, chance, mine, key)


def change(registry: Registry, journal: Journal, chance: Random, mine: list[str], key: str) -> None:
    """Change a subscription that only this client changes."""
    id, op = chance.choice(mine), chance.choice(["replace", "pause", "resume", "remove"])
    before = registry.get(id).revision
    journal.write(about="change", key=key, id=id, op=op)
    if op == "replace":
        revision = registry.replace(id, spec_of(key, 1), expected=before).revision
    elif op == "pause":
        revision = registry.pause(id, expected=before).revision
    elif op == "resume":
        revision = registry.resume(id, expected=before).subscription.revision
    else:
        registry.remove(id, expected=before)
        mine.remove(id)
        journal.write(removed=id)
        return
    if revision != before:
        journal.write(done=key, revision=revision, ids=[id])


class Killed:
    """A database, whose process is killed again and again: see `Life`."""

    def __init__(self, home: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._url, self._journal = sqlite_in(home), home / "journal"

    def live(self, chance: Random, name: str) -> None:
        started = CLEAN.Event()
        worker = start(work, self._url, self._journal, name, started)
        if chance.random() < 0.9:
            while not started.wait(0.05) and worker.is_alive():
                pass
            let_work(self._done, MOST, worker.is_alive, chance)
        else:
            time.sleep(chance.random() * EARLY_SECONDS)
            assert worker.is_alive(), "the clients ended by themselves: see above"
        kill(worker)
        self.counts["kills"] += 1

    def check(self) -> None:
        lines, journal = lines_of(self._journal), Journal(self._journal)
        answered = {line["done"] for line in lines if "done" in line}
        asked = {line["key"] for line in lines if line.get("about") == "register"}
        with Registry.open(self._url) as registry:  # which verifies it
            self.counts |= check_log(registry, lines)
            for key in asked - answered:
                had_arrived = bool(registry.list(label=f"key={key}").items)
                registry.register(spec_of(key), idempotency=Idempotency("crash", key, key))
                self.counts[f"repeated, had {'' if had_arrived else 'not '}arrived"] += 1
                times = len(registry.list(label=f"key={key}").items)
                assert times == 1, f"a repeated registration is there {times} times"
                journal.write(done=key)
            check_published(registry)

    def _done(self) -> int:
        return self._journal.read_bytes().count(b'"done"') if self._journal.exists() else 0


def live(snapshot: Snapshot) -> dict[str, str]:
    """Id → selector of what is not removed in a snapshot."""
    dead, rows = snapshot.dead, snapshot.subscriptions.select(["id", "selector"]).to_pylist()
    return {row["id"]: row["selector"] for at, row in enumerate(rows) if dead is None or not dead[at]}


def selectors_of(lines: Iterable[str]) -> dict[str, str]:
    """Id → selector of what is active in an export."""
    rows = map(json.loads, lines)
    return {row["id"]: row["selector"] for row in rows if row["status"] == "active"}


def check_published(registry: Registry) -> None:
    """The snapshot folder can be caught up to exactly what the registry has."""
    with RegistryPublisher(registry) as publisher:
        assert publisher.catch_up() == registry.revision
        wanted = selectors_of(registry.export())
        assert live(publisher.snapshot) == wanted, "the snapshot has other subscriptions than the registry"


def check_log(registry: Registry, lines: list[dict[str, Any]]) -> Counter[str]:
    """The log against what was told and what was tried."""
    by_revision, by_key, removed = defaultdict(list), defaultdict(list), set()
    for change in registry.follow_changes(0):
        by_revision[change.revision].append(change.id)
        if change.op == "add" and change.subscription is not None:
            by_key[change.subscription.labels["key"]].append(change.revision)
        if change.op == "remove":
            removed.add(change.id)
    acknowledged = 0
    for line in lines:
        if "removed" in line:
            assert line["removed"] in removed, f"the removal of {line['removed']} is lost"
        elif "ids" in line:
            ids = by_revision[line["revision"]]
            assert sorted(ids) == sorted(line["ids"]), (
                f"revision {line['revision']} is not what was told: {line}"
            )
        elif "done" in line and "count" in line:
            assert len(by_revision[line["revision"]]) == line["count"], f"an import is lost: {line}"
        else:
            if "count" in line:
                revisions = by_key[line["key"]]
                assert len(revisions) in (0, line["count"]), f"there is a part of {line}: {len(revisions)}"
                assert len(set(revisions)) <= 1, f"in several revisions: {line}"
            continue
        acknowledged += 1
    for id in removed:
        try:
            registry.get(id)
        except NotFoundError:
            continue
        raise AssertionError(f"{id} is removed and there")
    return Counter({"acknowledged changes": acknowledged})


def run(root: Path, seed: int, kills: int) -> Counter[str]:
    CLEAN.set_forkserver_preload([__name__])
    return kill_all(Killed, root, seed, kills, KILLS_A_DATABASE)


if __name__ == "__main__":
    program("kill a registry's process while clients write", run, kills=500)
