"""Several services on one database, each killed in its turn while clients write to all of them.

``python -m tests.crash.programs.registry.several --kills 100 [--postgresql]``. Clients of each service
register, change and import as in `service`. Every second time the service that publishes is killed (SIGKILL),
and else any of them; it is started again. Then

- the others go on: a revision that is committed at the kill is published; how long that took is printed;
- one of them publishes, and no other does: if the killed one did, another has taken its place;
- what any service acknowledged is in the log under the revision that was told, and every revision has its
  changes: there is no gap, and none is told by two services;
- the snapshot folder can be caught up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from urllib.request import urlopen

from selectroute.registry.registry import Registry
from tests.crash.programs.harness import CLEAN, POSTGRESQL, let_work, program, sqlite_in
from tests.crash.programs.registry.registry import CLIENTS
from tests.crash.programs.registry.service import start_clients
from tests.crash.programs.registry.sides import check_log, check_published
from tests.crash.programs.serving import LOST, PRELOADED, Connection, Service
from tests.support.waiting import wait_until

SERVICES = 3
MOST = 40  # lines that all clients note between two kills
TAKEN_OVER_SECONDS = 120.0  # what they take depends on the machine


def published(service: Service) -> int:
    """The revision that a service has at hand for its callers."""
    try:
        return int(Connection(service.url).ask("GET", "/readyz").data.get("published") or 0)
    except LOST:
        return 0


def the_publisher(services: Sequence[Service], until: float) -> Service:
    """Wait until one service says that it publishes, and no other does; return it."""
    publishers: list[Service] = []

    def is_single() -> bool:
        publishers[:] = []
        for service in services:
            with urlopen(f"{service.url}/metrics", timeout=30) as answer:
                if b"selectroute_registry_publisher 1.0" in answer.read().splitlines():
                    publishers.append(service)
        return len(publishers) == 1

    wait_until(is_single, until - time.monotonic(), "one service that publishes")
    return publishers[0]


def run(root: Path, seed: int, kills: int, database_in: Callable[[Path], str] = sqlite_in) -> Counter[str]:
    CLEAN.set_forkserver_preload([*PRELOADED, "tests.crash.programs.registry.service"])
    url, chance, slowest, replaced = database_in(root), Random(seed), 0.0, 0
    snapshots = str(root / "snapshots")
    with Registry.open(url) as registry:
        registry.set("snapshots", snapshots)
    services = [Service(url, root, "--snapshots", snapshots, name=f"{n}-") for n in range(SERVICES)]
    for number, service in enumerate(services):
        service.start()
        start_clients(service, CLIENTS, f"{seed}-{number}")
    with Registry.open(url, verify=False) as registry:
        for number in range(kills):
            let_work(
                lambda: sum(len(service.lines) for service in services),
                MOST,
                lambda: all(service.works() for service in services),
                chance,
            )
            publisher = the_publisher(services, time.monotonic() + TAKEN_OVER_SECONDS)
            killed = chance.choice(services) if number % 2 else publisher
            at = time.monotonic()
            killed.kill()
            newest = registry.revision
            others = [service for service in services if service is not killed]
            wait_until(
                lambda newest=newest, others=others: min(map(published, others)) >= newest,
                at + TAKEN_OVER_SECONDS - time.monotonic(),
                f"revision {newest} published by another",
            )
            now = the_publisher(others, at + TAKEN_OVER_SECONDS)
            slowest = max(slowest, time.monotonic() - at)
            assert killed is publisher or now is publisher, "two publishers without a kill of the first"
            replaced += killed is publisher
            killed.start()
            start_clients(killed, CLIENTS, f"{seed}-{services.index(killed)}-{number}")
        for service in services:
            service.kill()
        lines = [line for service in services for line in service.lines]
        counts = check_log(registry, lines)
        revisions = sorted({change.revision for change in registry.follow_changes(0)})
        assert revisions == list(range(1, registry.revision + 1)), "a revision is missing"
        told = Counter(line["revision"] for line in lines if "revision" in line)
        assert max(told.values()) == 1, "two changes were told the same revision"
        registry.verify()
        check_published(registry)
    slow = {"milliseconds until another published, at most": round(slowest * 1_000)}
    return counts + Counter({"kills": kills, "kills of the publisher": replaced, **slow})


if __name__ == "__main__":
    about = "kill one of several services on one database"
    program(about, run, kills=100, postgresql=POSTGRESQL)
