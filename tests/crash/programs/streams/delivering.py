"""A stream that delivers to queues and is killed again and again, while consumers take what comes.

``python -m tests.crash.programs.streams.delivering --kills 100``. The job routes batch by batch as in Spark,
but without it. Each kill (SIGKILL, at a random instant) ends it with whatever it was doing, and the next
start goes on. One queue is so short that the job waits for its consumer most of the time: in every other run
for as long as it takes, in the others for an instant only, so that what the queue has no room for becomes
dead letters. When all files are routed, each delivery must have been got exactly once, or be a dead letter
exactly once and not have been got, and be recorded exactly once.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.crash.programs.long_run import long_run, options

import selectroute as sr
from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.sql import task_puts
from selectroute.queues.sql.queue import SqlQueue
from selectroute.spark.batch.plans import begun_batches
from selectroute.spark.destinations.queue_writer import FULL
from selectroute.storage import Location
from tests.spark.queue_world import A, B, Queues, numbered
from tests.support.world import World

FILES = 12
MESSAGES = 150
SHORT = 40
"""Messages that queue A holds."""

CHUNK = 25

_clean = multiprocessing.get_context("forkserver")  # forked off a process that has the modules and no threads


def deliver(queues: Queues, begun: Any, done: Any, resumed: Any, wait: float) -> None:
    """Route what is there, from wherever the last process left it."""
    begun.set()
    task_puts._CHUNK = CHUNK  # type: ignore[misc]
    resumed.value += len(begun_batches(Location.of(queues.world.output / "pins")))

    def pause() -> bool:
        time.sleep(0.005)
        return False

    router = queues.router(pause, wait=wait, compact_every=3)
    for batch in range(FILES):
        router.commits.tables.maintain(lambda: False)
        router.route(batch, [queues.world.input / f"{batch:02}.jsonl"], "q")
    done.set()


def consume(url: str, name: str, journal: Path, ending: Any) -> None:
    """Get what comes until there is nothing more to come, and write down what it was."""
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with SqlQueue(url, name) as queue:
        while True:
            last = ending.is_set()
            try:
                got = queue.get(wait=0.05)
            except MQError as error:
                assert error.reason == MQRC_NO_MSG_AVAILABLE, error
                if last:
                    return
                continue
            line = {name: got.properties[f"selectroute_{name}"] for name in ("delivery_id", "subscription")}
            os.write(file, json.dumps(line).encode() + b"\n")


def prepare(home: Path, url: str, chance: random.Random, table_format: str = "parquet") -> Queues:
    """Subscriptions, queues and the messages."""
    queues = Queues(World(home, table_format=table_format), url)
    queues.world.input.mkdir(parents=True)
    queues.create("A", max_depth=SHORT)
    queues.create("B")
    queues.publish(
        1, all=("", A), odd=("n > 75", A), few=(f"n < {chance.randrange(150)}", B), none=("n < 3", None)
    )
    for batch in range(FILES):
        queues.world.drop_json(f"{batch:02}.jsonl", *numbered(MESSAGES))
    # The kernel is compiled, or read, before the first job is started and not in each.
    sr.Snapshot.open(queues.world.snapshots).match(pa.record_batch({"n": [1]}))
    return queues


def for_short_queue() -> Counter[str]:
    """All deliveries to queue A, by the selectors of `prepare`."""
    return Counter(
        f"{batch:02}.jsonl/0/{n}/{id}"
        for batch in range(FILES)
        for n in range(MESSAGES)
        for id in ("all", "odd")
        if id == "all" or n > 75
    )


def check(queues: Queues, journals: list[Path], expected: Counter[str] | None = None) -> Counter[str]:
    """Assert what must hold when all is routed and got, or refused: all that is `expected` on queue A; return
    the deliveries and dead letters counted.
    """
    got: Counter[str] = Counter()
    for journal in journals:
        got.update(json.loads(line)["delivery_id"] for line in journal.read_bytes().splitlines())
    world = queues.world
    recorded = Counter(
        f"{source}/0/{offset}/{subscription}"
        for source, offset, subscription, _ in world.deliveries().elements()
        if subscription != "none"
    )
    twice = [one for one, count in got.items() if count > 1]
    assert not twice, f"{len(twice)} got twice: {twice[:5]}"
    dead = Counter(
        f"{row['source']}/0/{row['offset']}/{row['subscription']}" for row in world.rows("dead-letters")
    )
    assert {row["reason"] for row in world.rows("dead-letters")} <= {FULL}
    both = got & dead
    assert not both, f"got, and dead letters: {list(both)[:5]}"
    assert got == recorded, f"lost: {list(recorded - got)[:5]}, never recorded: {list(got - recorded)[:5]}"
    got += dead
    if expected is not None:
        of_short = Counter({one: count for one, count in got.items() if not one.endswith("/few")})
        assert of_short == expected, f"neither got nor dead: {list(expected - of_short)[:5]}"
    lines = world.accounting()
    assert [line["batch"] for line in lines] == list(range(FILES))
    assert sum(line["refused"] for line in lines) == dead.total()
    assert sum(line["queued"] for line in lines) == got.total() - dead.total()
    assert not list((world.output / "_staging").iterdir())
    return Counter({"deliveries": got.total() - dead.total(), "dead letters of a full queue": dead.total()})


def until_done(
    queues: Queues, chance: random.Random, kills: int, longest: float, wait: float
) -> Counter[str]:
    """Start the job and kill it, so many times at most, until it is done; returns how often it was killed,
    and how often that was between the plan of a batch and its end.
    """
    killed = 0
    done, resumed = _clean.Event(), _clean.Value("i")
    while True:
        begun = _clean.Event()
        job = _clean.Process(target=deliver, args=(queues, begun, done, resumed, wait))
        job.start()
        begun.wait(60)
        if killed < kills:
            job.join(chance.random() * longest)
        else:
            job.join()
        if job.is_alive():
            os.kill(job.pid or 0, signal.SIGKILL)
            job.join()
            killed += 1
        else:
            assert done.is_set() and job.exitcode == 0, "the job ended by itself: see above"
            return Counter({"kills": killed, "of batches that were being put": resumed.value})


def run(
    kills: int,
    seed: int,
    root: Path,
    made: Callable[[Path], str],
    longest: float = 0.5,
    waits: tuple[float, ...] = (math.inf, 0.02),
    table_format: str = "parquet",
) -> Counter[str]:
    """At least so many kills; returns what was counted. Raises AssertionError if a check failed."""
    _clean.set_forkserver_preload([__name__, "selectroute.spark.tables.delta"])
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    for number in itertools.count():
        if counts["kills"] >= kills:
            return counts
        home = root / f"delivering-{number}"
        home.mkdir()
        queues = prepare(home, made(home), chance, table_format)
        ending = _clean.Event()
        journals = [home / f"{name}.journal" for name in "AB"]
        consumers = [
            _clean.Process(target=consume, args=(queues.url, name, journal, ending))
            for name, journal in zip("AB", journals, strict=True)
        ]
        for consumer in consumers:
            consumer.start()
        wait = waits[number % len(waits)]
        counts += until_done(queues, chance, kills - counts["kills"], longest, wait)
        ending.set()
        for consumer in consumers:
            consumer.join()
            assert consumer.exitcode == 0, "a consumer failed: see above"
        counts += check(queues, journals, for_short_queue())
    raise AssertionError


def in_sqlite(home: Path) -> str:
    """The database of one run."""
    return f"sqlite:///{home}/queues.db"


def main() -> None:
    parser = options("kill a stream while it delivers to queues", formats=True, kills=100)
    parser.add_argument("--postgresql", action="store_true", help="instead of SQLite")
    given = parser.parse_args()
    with long_run() as frame, ExitStack() as opened:
        database_in: Callable[[Path], str] = in_sqlite
        if given.postgresql:
            from tests.support.servers import postgresql

            database_in = opened.enter_context(postgresql.server())
        counts = run(given.kills, given.seed, frame.folder, database_in, table_format=given.table_format)
        frame.held(counts)


if __name__ == "__main__":
    main()
