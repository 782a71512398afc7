"""A queue in a database whose processes are killed again and again while they put and get.

``python -m tests.crash.programs.queues.queue --kills 200``, with ``--postgresql`` in a PostgreSQL of its own.
Each round four processes put messages, get them (each by the id that it first wrote down), and do both in
units that they commit or back out. One after the other is killed (SIGKILL) at a random instant, while the
others go on and take over what it had. What each was about to do, and what was acknowledged, stands in its
journal. Then everything is accounted for:

- a message whose put was acknowledged is on the queue, or was got, or was just being got by one that died;
- no message was got twice, and none that was got is on the queue;
- a unit that was not acknowledged was done as a whole or not at all;
- nothing is in a unit any more, and in SQLite no lock of a dead process is left.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.sql.queue import SqlQueue
from tests.crash.programs.harness import (
    CLEAN,
    POSTGRESQL,
    Journal,
    kill,
    kill_all,
    let_work,
    lines_of,
    program,
    sqlite_in,
    start,
)
from tests.support.queue_calls import bodies, id_of

NAME = "CRASH"
PROCESSES = 4
ROUNDS_A_DATABASE = 10
MOST = 25  # puts between two kills


def work(url: str, path: Path, name: str, started: Any) -> None:
    chance, journal, queue = Random(name), Journal(path), SqlQueue(url, NAME)
    started.set()
    for number in itertools.count():
        key = f"{name}-{number}"
        kind = chance.choices(["put", "get", "first", "unit"], [5, 2, 2, 3])[0]
        try:
            if kind == "put":
                journal.write(putting=key)
                queue.put(key.encode(), correl_id=id_of(key), priority=chance.randrange(10))
                journal.write(put=key)
            elif kind == "get":
                # One of the first by its id, which is in the journal before it is got.
                cursor = queue.cursor()
                for _ in range(chance.randint(1, 4)):
                    message = cursor.next()
                journal.write(getting=message.body.decode())
                got = queue.get(correl_id=message.descriptor.correl_id)
                journal.write(got=got.body.decode())
            elif kind == "first":
                wait = chance.choice([None, 0.05])
                journal.write(getting=None)
                journal.write(got=queue.get(wait=wait).body.decode())
            else:
                do_unit(queue, journal, chance, key)
        except MQError as error:
            assert error.reason == MQRC_NO_MSG_AVAILABLE, error
            journal.write(none=True)


def do_unit(queue: SqlQueue, journal: Journal, chance: Random, key: str) -> None:
    """Get and put several messages in a unit, and commit it, back it out or forget it."""
    unit = queue.unit()
    gets = [queue.get(syncpoint=unit).body.decode() for _ in range(chance.randrange(3))]
    puts = [f"{key}.{part}" for part in range(chance.randrange(3))]
    journal.write(unit=key, puts=puts)
    for put in puts:
        queue.put(put.encode(), correl_id=id_of(put), syncpoint=unit)
    end = chance.choice(["commit", "commit", "backout", "forget"])
    if end == "commit":
        journal.write(ending=key, gets=gets, puts=puts)
        unit.commit()
        journal.write(ended=key)
    elif end == "backout":
        unit.backout()


def account(journals: list[list[dict[str, Any]]], there: list[str]) -> Counter[str]:
    """What the journals say against what is on the queue. Raises AssertionError."""
    lines = [line for journal in journals for line in journal]
    ended = {line["ended"] for line in lines if "ended" in line}
    units = [line for line in lines if "ending" in line]
    committed = [line for line in units if line["ending"] in ended]
    unsure = [line for line in units if line["ending"] not in ended]
    got = Counter(line["got"] for line in lines if "got" in line)
    got += Counter(key for line in committed for key in line["gets"])
    put = {line["put"] for line in lines if "put" in line}
    put |= {key for line in committed for key in line["puts"]}
    begun = {line["putting"] for line in lines if "putting" in line}
    begun |= {key for line in units for key in line["puts"]}
    # The last line of a process that was killed in the middle of a get.
    dying = [journal[-1]["getting"] for journal in journals if journal and "getting" in journal[-1]]
    nameless, named = dying.count(None), {key for key in dying if key}
    on_queue = Counter(there)
    twice = [key for key, count in (got + on_queue).items() if count > 1]
    assert not twice, f"got twice, or got and still there: {sorted(twice)[:5]}"
    known = got.keys() | on_queue.keys()
    assert known <= begun, f"never put: {sorted(known - begun)[:5]}"
    perhaps_got = set(named)
    for line in unsure:
        gets, puts = set(line["gets"]), set(line["puts"])
        perhaps_got |= gets
        done = bool(puts & known)
        # What another process is just getting when it dies is known no more, either way.
        sure = nameless == 0 and not (puts | gets) & named
        later = {key for other in unsure if other is not line for key in other["gets"]}
        if sure and not puts & later:
            assert puts <= known or not done, f"a part of a unit: {line}"
        assert not (done and gets & known), f"a unit was done, and what it got is back: {line}"
    lost = put - known - perhaps_got
    assert len(lost) <= nameless, f"{len(lost)} lost, {nameless} of them just being got: {sorted(lost)[:5]}"
    counts = {"acknowledged puts": len(put), "acknowledged gets": got.total()}
    return Counter(counts | {"units cut off": len(unsure), "gets cut off": len(dying)})


def check_queue(url: str, home: Path, journals: list[list[dict[str, Any]]]) -> Counter[str]:
    """Everything that must hold when all are dead."""
    with SqlQueue(url, NAME) as queue:
        there = [body.decode().strip('"') for body in bodies(queue)]
        assert queue.depth == len(there)
    assert not list(home.glob("*.owner-*")), "a lock of a dead process is left"
    return account(journals, there)


class Killed:
    """A database of queues, whose processes are killed again and again: see `Life`."""

    def __init__(self, database_in: Callable[[Path], str], home: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._url, self._home = database_in(home), home
        SqlQueue.create(self._url, NAME).close()

    def live(self, chance: Random, name: str) -> None:
        workers = []
        for which in range(PROCESSES):
            started = CLEAN.Event()
            path = self._home / f"{name}-{which}.journal"
            workers.append((start(work, self._url, path, f"{name}-{which}", started), started))
        for worker, started in workers:
            if chance.random() < 0.9:
                while not started.wait(0.05) and worker.is_alive():
                    pass
        chance.shuffle(workers)
        for worker, _ in workers:
            let_work(self._puts, MOST, worker.is_alive, chance)
            kill(worker)
            self.counts["kills"] += 1

    def check(self) -> None:
        journals = [lines_of(path) for path in sorted(self._home.glob("*.journal"))]
        self.counts = Counter(kills=self.counts["kills"]) + check_queue(self._url, self._home, journals)

    def _puts(self) -> int:
        return sum(path.read_bytes().count(b'"put"') for path in self._home.glob("*.journal"))


def run(root: Path, seed: int, kills: int, database_in: Callable[[Path], str] = sqlite_in) -> Counter[str]:
    CLEAN.set_forkserver_preload([__name__])
    return kill_all(partial(Killed, database_in), root, seed, kills, ROUNDS_A_DATABASE)


if __name__ == "__main__":
    about = "kill processes while they put to a queue and get from it"
    program(about, run, kills=200, postgresql=POSTGRESQL)
