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

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

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
from tests.crash.programs.registry.sides import InProcess, check_log, check_published, repeat, unanswered, use
from tests.crash.programs.serving import Threads

CLIENTS = 4
KILLS_A_DATABASE = 40
MOST = 40  # changes between two kills
EARLY_SECONDS = 0.5  # within which some are killed while they open the registry


def work(url: str, path: Path, name: str, started: Any) -> None:
    registry, journal = Registry.open(url, verify=False), Journal(path)
    publisher = RegistryPublisher(registry)
    threading.Thread(target=publisher.follow, args=(threading.Event(),), daemon=True).start()
    clients = Threads()
    for number in range(CLIENTS):
        clients.start(use, InProcess(registry), journal.write, f"{name}-{number}")
    started.set()
    clients.join()


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
        lines = lines_of(self._journal)
        asked = unanswered(lines)
        with Registry.open(self._url) as registry:  # which verifies it
            self.counts |= check_log(registry, lines)
            side = InProcess(registry)
            arrived = {key for key in asked if side.ids(key)}
            self.counts += repeat(side, asked, arrived, Journal(self._journal).write)
            check_published(registry)

    def _done(self) -> int:
        return self._journal.read_bytes().count(b'"done"') if self._journal.exists() else 0


def run(root: Path, seed: int, kills: int) -> Counter[str]:
    CLEAN.set_forkserver_preload([__name__])
    return kill_all(Killed, root, seed, kills, KILLS_A_DATABASE)


if __name__ == "__main__":
    program("kill a registry's process while clients write", run, kills=500)
