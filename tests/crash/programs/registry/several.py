"""Several services on one database, each killed in its turn while clients write to all of them.

``python -m tests.crash.programs.registry.several --kills 100 [--url postgresql+psycopg://…]``. Clients of
each service register, change and import as in `service`. Every second time the service that publishes is
killed (SIGKILL), and else any of them; it is started again. Then

- the others go on: within five seconds of the kill a revision that is committed then is published;
- one of them publishes, and no other does: if the killed one did, another has taken its place;
- what any service acknowledged is in the log under the revision that was told, and every revision has its
  changes: there is no gap, and none is told by two services;
- the snapshot folder can be caught up.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from selectroute.registry.registry import Registry
from tests.crash.programs.command import LOST, Connection, let_work, wait_until
from tests.crash.programs.long_run import long_run, options
from tests.crash.programs.registry.registry import check_log, check_published
from tests.crash.programs.registry.service import PRELOADED, START_SECONDS, Round, answers, free_port, serve

SERVICES = 3
TAKEN_OVER_SECONDS = 5.0
ANSWER_SECONDS = 30.0
_PUBLISHES = "selectroute_registry_publisher 1.0"

_clean = multiprocessing.get_context("forkserver")


class Member:
    """One service of several, and its clients."""

    def __init__(self, url: str, home: Path, name: str) -> None:
        self._name = name
        self._life = 0
        self._log = home / f"serve-{name}.log"
        self._options = ["--registry", url, "--snapshots", str(home / "snapshots"), "--log-level", "warning"]
        self.lines: list[dict[str, Any]] = []

    def start(self, seed: str) -> None:
        """Start the service, and its clients when it answers."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        options = [*self._options, "--port", str(port)]
        self._process = _clean.Process(target=serve, args=(options, self._log), daemon=True)
        self._process.start()
        wait_until(lambda: answers(self.url) or not self.is_alive, START_SECONDS, f"start: {self._log}")
        assert self.is_alive, f"the service ended by itself: see {self._log}"
        self._life += 1
        self.round = Round(self.url, f"{seed}-{self._name}-{self._life}")
        self.round.start()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def kill(self) -> float:
        """Kill the service, and take what its clients were told; return the time of the kill."""
        assert self.is_alive and not self.round.failed, f"a service that nobody killed: see {self._log}"
        self.round.ending.set()
        at = time.monotonic()
        os.kill(self._process.pid or 0, signal.SIGKILL)
        self._process.join()
        self.round.join()
        self.lines += self.round.lines
        return at

    @property
    def told(self) -> list[dict[str, Any]]:
        """What its clients asked and were told so far; a snapshot of a list that grows."""
        return self.lines if self.round.ending.is_set() else [*self.lines, *self.round.lines]


def published(member: Member) -> int:
    """The revision that a service has at hand for its callers."""
    connection = Connection(member.url)
    try:
        found = connection.ask("GET", "/readyz").data
        return int(found.get("published") or 0)
    except LOST:
        return 0
    finally:
        connection.close()


def publishers(members: Sequence[Member]) -> list[Member]:
    """The services that say that they publish."""
    return [one for one in members if _PUBLISHES in _metrics(one)]


def _metrics(member: Member) -> list[str]:
    with urlopen(f"{member.url}/metrics", timeout=ANSWER_SECONDS) as answer:
        text: str = answer.read().decode()
    return text.splitlines()


def the_publisher(members: Sequence[Member], seconds: float) -> Member:
    """Wait until one service publishes, and no other does; return it."""
    found: list[Member] = []

    def is_one() -> bool:
        found[:] = publishers(members)
        return len(found) == 1

    wait_until(is_one, seconds, "one service that publishes")
    return found[0]


def run(kills: int, seed: int, root: Path, url: str | None = None, most: int = 40) -> Counter[str]:
    """So many kills, each before the clients have noted `most` lines more; returns what was counted.

    Raises AssertionError if something did not hold.
    """
    _clean.set_forkserver_preload(PRELOADED)
    url = url or f"sqlite:///{root}/registry.db"
    chance, slowest, replaced = random.Random(seed), 0.0, 0
    with Registry.open(url) as made:
        made.set("snapshots", str(root / "snapshots"))
    members = [Member(url, root, str(number)) for number in range(SERVICES)]
    for one in members:
        one.start(str(seed))
    with ExitStack() as ended, Registry.open(url, verify=False) as registry:
        for one in members:
            ended.callback(lambda one=one: one.is_alive and os.kill(one._process.pid or 0, signal.SIGKILL))
        for number in range(kills):
            let_work(
                lambda: sum(len(one.told) for one in members),
                most,
                lambda: all(one.is_alive and not one.round.failed for one in members),
                chance,
            )
            publisher = the_publisher(members, TAKEN_OVER_SECONDS)
            killed = chance.choice(members) if number % 2 else publisher
            at = killed.kill()
            newest = registry.revision
            others = [one for one in members if one is not killed]
            wait_until(
                lambda wanted=newest, of=others: all(published(one) >= wanted for one in of),
                at + TAKEN_OVER_SECONDS - time.monotonic(),
                f"revision {newest} published by another",
            )
            now = the_publisher(others, at + TAKEN_OVER_SECONDS - time.monotonic())
            slowest = max(slowest, time.monotonic() - at)
            assert killed is publisher or now is publisher, "two publishers without a kill of the first"
            replaced += killed is publisher
            killed.start(str(seed))
        for one in members:
            one.kill()
        counts = check_log(registry, [line for one in members for line in one.told])
        found = sorted({change.revision for change in registry.follow_changes(0)})
        assert found == list(range(1, registry.revision + 1)), "a revision is missing"
        revisions = Counter(line["revision"] for one in members for line in one.told if "revision" in line)
        assert max(revisions.values()) == 1, "two changes were told the same revision"
        registry.verify()
        check_published(registry)
    counts["kills"] = kills
    counts["kills of the publisher"] = replaced
    counts["milliseconds until another published, at most"] = round(slowest * 1_000)
    return counts


def main() -> None:
    """The command line."""
    parser = options("kill one of several services on one database", kills=100)
    parser.add_argument("--url", help="an empty database; SQLite in a temporary folder by default")
    parser.add_argument("--postgresql", action="store_true", help="start a PostgreSQL for it")
    given = parser.parse_args()
    with long_run() as frame, ExitStack() as opened:
        url = given.url
        if given.postgresql:
            from tests.support.servers.postgresql import server

            url = opened.enter_context(server())()
        frame.held(run(given.kills, given.seed, frame.folder, url))


if __name__ == "__main__":
    main()
