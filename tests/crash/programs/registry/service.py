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

import time
from collections import Counter
from pathlib import Path
from random import Random

from selectroute.registry.registry import Registry
from tests.crash.programs.harness import CLEAN, kill_all, let_work, program, sqlite_in
from tests.crash.programs.registry.registry import CLIENTS, KILLS_A_DATABASE
from tests.crash.programs.registry.sides import OverHttp, check_log, check_published, repeat, unanswered, use
from tests.crash.programs.serving import PRELOADED, Service

MANY_CLIENTS = 32
MOST = 60  # lines that four clients note between two kills
EARLY_SECONDS = 0.8  # within which some are killed while they start


def start_clients(service: Service, clients: int, name: str) -> None:
    """Let clients write until the service is killed."""
    for number in range(clients):
        service.start_client(use, OverHttp(service), service.note, f"{name}-{number}")


class Killed:
    """A database and the service on it, over several kills: see `Life`."""

    def __init__(self, home: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._url = sqlite_in(home)
        self._service = Service(self._url, home)
        self._arrived: set[str] = set()

    def live(self, chance: Random, name: str) -> None:
        service = self._service
        # Some are killed while they start, verify and catch the folder up.
        if service.lines and chance.random() < 0.1:
            service.begin()
            time.sleep(chance.random() * EARLY_SECONDS)
            self.counts["killed while it started"] += 1
        else:
            service.start()
            self.counts += repeat(OverHttp(service), unanswered(service.lines), self._arrived, service.note)
            clients = MANY_CLIENTS if self.counts["kills"] % 2 else CLIENTS
            start_clients(service, clients, name)
            # Each has asked something, or most would have nothing that can be lost.
            let_work(lambda: len(service.lines), MOST * clients // CLIENTS, service.works, chance)
        service.kill()
        self.counts["kills"] += 1

    def check(self) -> None:
        lines = self._service.lines
        with Registry.open(self._url) as registry:  # which verifies it
            self.counts |= check_log(registry, lines)
            check_published(registry)
            self._arrived = {key for key in unanswered(lines) if registry.list(label=f"key={key}").items}


def run(root: Path, seed: int, kills: int) -> Counter[str]:
    CLEAN.set_forkserver_preload([*PRELOADED, __name__])
    return kill_all(Killed, root, seed, kills, KILLS_A_DATABASE)


if __name__ == "__main__":
    program("kill `selectroute serve` while clients write over HTTP", run, kills=500)
