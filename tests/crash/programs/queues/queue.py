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
import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.programs.command import let_work
from tests.crash.programs.long_run import Journal, long_run, options

from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.lookup.match_options import MatchOptions
from selectroute.queues.sql.queue import SqlQueue

NAME = "CRASH"
PROCESSES = 4
ROUNDS_A_DATABASE = 10

_fork = multiprocessing.get_context("fork")  # a child that need not import everything first


def id_of(key: str) -> bytes:
    return key.encode().ljust(24, b"\0")


def work(url: str, folder: Path, name: str, started: Any) -> None:
    """Put and get until killed."""
    chance = random.Random(name)
    journal = Journal(folder / f"{name}.journal")
    queue = SqlQueue(url, NAME)
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
                get_one(queue, journal, chance)
            elif kind == "first":
                wait = chance.choice([None, 0.05])
                journal.write(getting=None)
                journal.write(got=queue.get(wait=wait).body.decode())
            else:
                do_unit(queue, journal, chance, key)
        except MQError as error:
            assert error.reason == MQRC_NO_MSG_AVAILABLE, error
            journal.write(none=True)


def get_one(queue: SqlQueue, journal: Journal, chance: random.Random) -> None:
    """Get one of the first messages by its id, which is in the journal before it is got."""
    cursor = queue.cursor()
    for _ in range(chance.randint(1, 4)):
        message = cursor.next()
    journal.write(getting=message.body.decode())
    got = queue.get(MatchOptions.CORREL_ID, correl_id=message.descriptor.correl_id)
    journal.write(got=got.body.decode())


def do_unit(queue: SqlQueue, journal: Journal, chance: random.Random, key: str) -> None:
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
    put = {line["put"] for line in lines if "put" in line} | {
        key for line in committed for key in line["puts"]
    }
    begun = {line["putting"] for line in lines if "putting" in line}
    begun |= {key for line in units for key in line["puts"]}
    # The last line of a process that was killed in the middle of a get.
    dying = [journal[-1]["getting"] for journal in journals if journal and "getting" in journal[-1]]
    nameless = dying.count(None)
    on_queue = Counter(there)
    twice = [key for key, count in (got + on_queue).items() if count > 1]
    assert not twice, f"got twice, or got and still there: {sorted(twice)[:5]}"
    known = got.keys() | on_queue.keys()
    assert known <= begun, f"never put: {sorted(known - begun)[:5]}"
    perhaps_got = {key for key in dying if key is not None}
    for line in unsure:
        perhaps_got |= set(line["gets"])
        puts = set(line["puts"])
        done = bool(puts & known)
        back = [key for key in line["gets"] if on_queue[key] or got[key]]
        # What another process is just getting when it dies is known no more, either way.
        sure = nameless == 0 and not (puts | set(line["gets"])) & {key for key in dying if key}
        later = {key for other in unsure if other is not line for key in other["gets"]}
        if sure and not puts & later:
            assert puts <= known or not done, f"a part of a unit: {line}"
        if done:
            assert not back, f"a unit was done, and what it got is back: {line}"
    lost = put - known - perhaps_got
    assert len(lost) <= nameless, (
        f"{len(lost)} lost, {nameless} of them were just being got: {sorted(lost)[:5]}"
    )
    return Counter(
        {
            "acknowledged puts": len(put),
            "acknowledged gets": got.total(),
            "units cut off": len(unsure),
            "gets cut off": len(dying),
        }
    )


def check(url: str, folder: Path, tally: Any) -> None:
    """Everything that must hold when all are dead. Raises AssertionError."""
    with SqlQueue(url, NAME) as queue:
        cursor, there = queue.cursor(), []
        while True:
            try:
                there.append(cursor.next().body.decode())
            except MQError as error:
                assert error.reason == MQRC_NO_MSG_AVAILABLE, error
                break
        assert queue.depth == len(there)
    assert not list(folder.glob("*.owner-*")), "a lock of a dead process is left"
    journals = [
        [json.loads(line) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.glob("*.journal"))
    ]
    tally.put(account(journals, there))


def puts_in(folder: Path) -> int:
    """How many puts are acknowledged in its journals."""
    return sum(path.read_bytes().count(b'"put"') for path in folder.glob("*.journal"))


def one_round(url: str, folder: Path, number: int, chance: random.Random, most: int) -> int:
    """Start the processes and kill them one by one; returns how many were killed."""
    workers = []
    for which in range(PROCESSES):
        started = _fork.Event()
        worker = _fork.Process(target=work, args=(url, folder, f"{number}-{which}", started), daemon=True)
        worker.start()
        workers.append((worker, started))
    for worker, started in workers:
        if chance.random() < 0.9:
            while not started.wait(0.05) and worker.is_alive():
                pass
    chance.shuffle(workers)
    for worker, _ in workers:
        let_work(partial(puts_in, folder), most, worker.is_alive, chance)
        assert worker.is_alive(), "a process ended by itself: see above"
        os.kill(worker.pid or 0, signal.SIGKILL)
        worker.join()
    return len(workers)


def sqlite_in(home: Path) -> str:
    """The URL of a SQLite database in a folder."""
    return f"sqlite:///{home}/queues.db"


def run(
    kills: int, seed: int, root: Path, most: int = 25, database_in: Callable[[Path], str] = sqlite_in
) -> Counter[str]:
    """At least so many kills, each before `most` more puts are done; returns what was counted.

    Raises AssertionError if a check failed.
    """
    chance = random.Random(seed)
    counted: dict[Path, Counter[str]] = {}
    url = ""
    killed = 0
    for number in itertools.count():
        if killed >= kills:
            break
        home = root / f"queue-{number // ROUNDS_A_DATABASE}"
        if not home.exists():
            home.mkdir()
            url = database_in(home)
            SqlQueue.create(url, NAME).close()
        killed += one_round(url, home, seed * 1_000_000 + number, chance, most)
        tally = _fork.Queue()
        checker = _fork.Process(target=check, args=(url, home, tally))
        checker.start()
        while True:
            try:
                counted[home] = tally.get(timeout=0.2)  # of all its rounds: its journals are read whole
                break
            except Exception:
                assert checker.is_alive() or checker.exitcode == 0, f"round {number} in {home}: see above"
        checker.join()
    total: Counter[str] = Counter(kills=killed)
    for counts in counted.values():
        total += counts
    return total


def main() -> None:
    parser = options("kill processes while they put to a queue and get from it", kills=200)
    parser.add_argument("--postgresql", action="store_true", help="instead of SQLite")
    given = parser.parse_args()
    with long_run() as frame, ExitStack() as opened:
        database_in: Callable[[Path], str] = sqlite_in
        if given.postgresql:
            from tests.support.servers import postgresql

            database_in = opened.enter_context(postgresql.server())
        frame.held(run(given.kills, given.seed, frame.folder, database_in=database_in))


if __name__ == "__main__":
    main()
