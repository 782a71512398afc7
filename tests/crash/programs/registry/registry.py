"""A registry whose process is killed again and again while clients write to it.

``python -m tests.crash.programs.registry.registry --kills 500``. Each round a process opens the registry,
where four clients register, replace, remove, pause, apply several changes at once and import, and a publisher
follows; it is killed (SIGKILL) at a random instant. What each client was about to do, and what was
acknowledged, stands in a file. Then another process checks that

- the database verifies, and every acknowledged change is in the log, under the revision that was told;
- a change that was not acknowledged is there as a whole or not at all;
- a registration that is repeated with its Idempotency-Key is there once, whether it had arrived or not;
- the snapshot folder is caught up to exactly what the registry has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from selectroute.index.specification import SubscriptionSpec
from selectroute.registry.changes import Idempotency, Operation
from selectroute.registry.errors import NotFoundError
from selectroute.registry.publisher import RegistryPublisher
from selectroute.registry.registry import Registry
from tests.crash.programs.command import let_work
from tests.crash.programs.long_run import Journal, long_run, options

CLIENTS = 4
KILLS_A_DATABASE = 40
IMPORTED = 300
EARLY_SECONDS = 0.5  # within which some are killed while they open the registry

_fork = multiprocessing.get_context("fork")  # a child that need not import everything first


def spec_of(key: str, value: int = 0) -> SubscriptionSpec:
    return SubscriptionSpec(f"a = {value} AND k = '{key}'", topic=f"t/{value % 5}", labels={"key": key})


def work(url: str, journal_path: Path, seed: int, started: Any) -> None:
    """Write until killed."""
    registry = Registry.open(url, verify=False)
    journal = Journal(journal_path)
    publisher = RegistryPublisher(registry)
    threading.Thread(target=publisher.follow, args=(threading.Event(),), daemon=True).start()
    clients = [
        threading.Thread(target=client, args=(registry, journal, f"{seed}-{number}"))
        for number in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    started.set()
    for one in clients:
        one.join()


def client(registry: Registry, journal: Journal, name: str) -> None:
    chance = random.Random(name)
    mine: list[str] = []
    for number in range(1_000_000):
        key = f"{name}-{number}"
        kind = chance.choices(["register", "apply", "import", "change"], [6, 2, 0.3, 4])[0]
        if kind == "register":
            journal.write(about="register", key=key)
            one = registry.register(spec_of(key), idempotency=Idempotency("crash", key, key))
            journal.write(done=key, revision=one.revision, ids=[one.id])
            mine.append(one.id)
        elif kind == "apply":
            journal.write(about="apply", key=key, count=3)
            applied = registry.apply([Operation("add", None, spec_of(key, part)) for part in range(3)])
            ids = [one.id for one in applied.subscriptions]
            journal.write(done=key, revision=applied.revision, ids=ids)
            mine += ids
        elif kind == "import":
            journal.write(about="import", key=key, count=IMPORTED)
            lines = (json.dumps(spec_of(key, part).to_json()) for part in range(IMPORTED))
            journal.write(done=key, revision=registry.import_(lines).revision, count=IMPORTED)
        elif mine:
            change_one(registry, journal, chance, mine, key)


def change_one(
    registry: Registry, journal: Journal, chance: random.Random, mine: list[str], key: str
) -> None:
    """Change a subscription that only this client changes."""
    id = chance.choice(mine)
    op = chance.choice(["replace", "pause", "resume", "remove"])
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


def check(url: str, journal_path: Path, tally: Any) -> None:
    """Everything that must hold after a kill. Raises AssertionError."""
    lines = [json.loads(line) for line in journal_path.read_bytes().splitlines()]
    with Registry.open(url) as registry:  # which verifies it
        counts = Counter(check_log(registry, lines))
        asked = {line["key"]: line for line in lines if line.get("about") == "register"}
        added = Counter(
            change.subscription.labels["key"]
            for change in registry.follow_changes(0)
            if change.op == "add" and change.subscription is not None
        )
        answered = {line["done"] for line in lines if "done" in line}
        for key in asked.keys() - answered:
            registry.register(spec_of(key), idempotency=Idempotency("crash", key, key))
            counts["repeated, had arrived" if added[key] else "repeated, had not arrived"] += 1
            found = registry.list(label=f"key={key}").items
            assert len(found) == 1, f"a repeated registration is there {len(found)} times"
        check_published(registry)
    # What was repeated is acknowledged now.
    journal = Journal(journal_path)
    for key in asked.keys() - answered:
        journal.write(done=key)
    tally.put(counts)


def check_published(registry: Registry) -> None:
    """The snapshot folder can be caught up to exactly what the registry has."""
    with RegistryPublisher(registry) as publisher:
        assert publisher.catch_up() == registry.revision
        snapshot = publisher.snapshot
        dead = snapshot.dead
        live = [id for n, id in enumerate(snapshot.ids.to_pylist()) if dead is None or not dead[n]]
        wanted = [one["id"] for one in map(json.loads, registry.export()) if one["status"] == "active"]
        assert sorted(live) == wanted, "the snapshot has other subscriptions than the registry"


def check_log(registry: Registry, lines: list[dict[str, Any]]) -> Counter[str]:
    """The log against what was told and what was tried."""
    by_revision: dict[int, list[Any]] = defaultdict(list)
    by_key: dict[str, list[Any]] = defaultdict(list)
    removed = set()
    for change in registry.follow_changes(0):
        by_revision[change.revision].append(change)
        if change.op == "add" and change.subscription is not None:
            by_key[change.subscription.labels["key"]].append(change)
        if change.op == "remove":
            removed.add(change.id)
    counts: Counter[str] = Counter()
    for line in lines:
        if "removed" in line:
            assert line["removed"] in removed, f"the removal of {line['removed']} is lost"
            counts["acknowledged"] += 1
        elif "ids" in line:
            found = sorted(change.id for change in by_revision[line["revision"]])
            assert found == sorted(line["ids"]), f"revision {line['revision']} is not what was told: {line}"
            counts["acknowledged"] += 1
        elif "done" in line and "count" in line:
            assert len(by_revision[line["revision"]]) == line["count"], f"an import is lost: {line}"
            counts["acknowledged"] += 1
        elif "count" in line:
            found = by_key[line["key"]]
            assert len(found) in (0, line["count"]), f"there is a part of {line}: {len(found)}"
            assert len({change.revision for change in found}) <= 1
    for id in removed:
        try:
            registry.get(id)
        except NotFoundError:
            continue
        raise AssertionError(f"{id} is removed and there")
    return counts


def done_in(journal: Path) -> int:
    """How many changes are acknowledged there."""
    return journal.read_bytes().count(b'"done"') if journal.exists() else 0


def run(kills: int, seed: int, root: Path, most: int = 40) -> Counter[str]:
    """So many kills, most of them before `most` more changes are done; returns what was counted.

    Raises AssertionError if a check failed.
    """
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    acknowledged: dict[Path, int] = {}
    for kill in range(kills):
        home = root / f"registry-{kill // KILLS_A_DATABASE}"
        home.mkdir(exist_ok=True)
        url, journal = f"sqlite:///{home}/registry.db", home / "journal"
        started = _fork.Event()
        worker = _fork.Process(
            target=work, args=(url, journal, seed * 1_000_000 + kill, started), daemon=True
        )
        worker.start()
        if chance.random() < 0.9:
            while not started.wait(0.05) and worker.is_alive():
                pass
            let_work(partial(done_in, journal), most, worker.is_alive, chance)
        else:
            time.sleep(chance.random() * EARLY_SECONDS)
        assert worker.is_alive(), "the clients ended by themselves: see above"
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
        if not journal.exists():
            journal.touch()
        tally = _fork.Queue()
        checker = _fork.Process(target=check, args=(url, journal, tally))
        checker.start()
        try:
            while True:
                try:
                    counts = tally.get(timeout=0.2)
                    break
                except Exception:
                    assert checker.is_alive() or checker.exitcode == 0, f"kill {kill} in {home}: see above"
        finally:
            checker.join()
        total["kills"] += 1
        acknowledged[home] = counts.pop("acknowledged", 0)  # of all its rounds: its journal is checked whole
        total += counts
    total["acknowledged changes"] = sum(acknowledged.values())
    return total


def kill_command(what: str, killed: Callable[[int, int, Path], Counter[str]]) -> None:
    """A command line of kills and a seed: runs `killed` on them in an empty folder, and says what held."""
    given = options(what, kills=500).parse_args()
    with long_run() as frame:
        frame.held(killed(given.kills, given.seed, frame.folder))


if __name__ == "__main__":
    kill_command("kill a registry's process while clients write", run)
