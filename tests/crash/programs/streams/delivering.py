"""A stream that delivers to queues and is killed again and again, while consumers take what comes.

``python -m tests.crash.programs.streams.delivering --kills 100``. The job routes batch by batch as in Spark,
but without it. Each kill (SIGKILL, at a random instant) ends it with whatever it was doing, and the next
start goes on. One queue is so short that the job waits for its consumer most of the time: in every other run
for as long as it takes, in the others for an instant only, so that what the queue has no room for becomes
dead letters. When all files are routed, each delivery must have been got exactly once, or be a dead letter
exactly once and not have been got, and be recorded exactly once.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import selectroute as sr
from selectroute.queues.errors import MQRC_NO_MSG_AVAILABLE, MQError
from selectroute.queues.sql import deliveries
from selectroute.queues.sql.queue import SqlQueue
from selectroute.spark.batch.pins import begun_batches
from selectroute.spark.destinations.queues.writer import FULL
from selectroute.storage import Location
from tests.crash.programs.harness import (
    CLEAN,
    FORMATS,
    POSTGRESQL,
    Journal,
    kill,
    lines_of,
    program,
    same,
    sqlite_in,
    start,
)
from tests.spark.queue_world import A, B, Queues, numbered
from tests.support.waiting import wait_until
from tests.support.world import World

FILES = 12
MESSAGES = 150
SHORT = 40
"""Messages that queue A holds."""

CHUNK = 25


def deliver(queues: Queues, begun: Any, path: Path, wait: float) -> None:
    """Route what is there, from wherever the last process left it."""
    journal = Journal(path)  # and no shared Value, whose lock a killed job would keep
    begun.set()
    deliveries._CHUNK = CHUNK  # type: ignore[misc]
    journal.write(resumed=len(begun_batches(Location.of(queues.world.output / "pins"))))

    def pause() -> bool:
        time.sleep(0.005)
        return False

    router = queues.router(pause, wait=wait, compact_every=3)
    for batch in range(FILES):
        router.commits.tables.maintain(lambda: False)
        router.route(batch, [queues.world.input / f"{batch:02}.jsonl"], "q")
    journal.write(resumed=0, done=True)


def consume(url: str, name: str, path: Path, ending: Any) -> None:
    """Get what comes until there is nothing more to come, and write down what it was."""
    journal = Journal(path)
    with SqlQueue(url, name) as queue:
        while True:
            last = ending.is_set()
            try:
                got = queue.get(wait=0.05).properties
            except MQError as error:
                assert error.reason == MQRC_NO_MSG_AVAILABLE, error
                if last:
                    return
            else:
                journal.write(delivery_id=got["selectroute_delivery_id"])


def prepare(home: Path, url: str, chance: Random, table_format: str = "parquet") -> Queues:
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
    got = Counter(line["delivery_id"] for journal in journals for line in lines_of(journal))
    world = queues.world
    recorded = Counter(
        f"{source}/0/{offset}/{subscription}"
        for source, offset, subscription, _ in world.deliveries().elements()
        if subscription != "none"
    )
    same("recorded", recorded, Counter(set(recorded)))
    dead = Counter(
        f"{row['source']}/0/{row['offset']}/{row['subscription']}" for row in world.rows("dead-letters")
    )
    assert {row["reason"] for row in world.rows("dead-letters")} <= {FULL}
    both = got & dead
    assert not both, f"got, and dead letters: {list(both)[:5]}"
    same("got", got, recorded)
    got += dead
    if expected is not None:
        of_short = Counter({id: count for id, count in got.items() if not id.endswith("/few")})
        same("got or dead", of_short, expected)
    lines = world.accounting()
    assert [line["batch"] for line in lines] == list(range(FILES))
    assert sum(line["refused"] for line in lines) == dead.total()
    assert sum(line["queued"] for line in lines) == got.total() - dead.total()
    assert not list((world.output / "_staging").iterdir())
    return Counter({"deliveries": got.total() - dead.total(), "dead letters of a full queue": dead.total()})


def until_done(
    queues: Queues, chance: Random, kills: int, longest: float, wait: float, consumers: list[Any]
) -> Counter[str]:
    """Start the job and kill it, so many times at most, until it is done; returns how often it was killed,
    and how often that was between the plan of a batch and its end.
    """
    killed, path = 0, queues.world.root / "job.journal"

    def ended() -> bool:
        assert all(consumer.is_alive() for consumer in consumers), "a consumer failed: see above"
        return not job.is_alive()

    while True:
        begun = CLEAN.Event()
        job = start(deliver, queues, begun, path, wait)
        begun.wait(60)
        if killed < kills:
            job.join(chance.random() * longest)
        else:
            wait_until(ended, 600, "the job delivers what is left")
        if ended():
            lines = lines_of(path)
            assert job.exitcode == 0 and "done" in lines[-1], "the job ended by itself: see above"
            resumed = sum(line["resumed"] for line in lines)
            return Counter({"kills": killed, "of batches that were being put": resumed})
        kill(job)
        killed += 1


def run(
    root: Path,
    seed: int,
    kills: int,
    database_in: Callable[[Path], str] = sqlite_in,
    table_format: str = "parquet",
    waits: tuple[float, ...] = (math.inf, 0.02),
    longest: float = 0.5,
) -> Counter[str]:
    """At least so many kills, each after at most `longest` seconds. Raises AssertionError."""
    CLEAN.set_forkserver_preload([__name__, "selectroute.spark.tables.delta"])
    chance, counts, number = Random(seed), Counter(), 0
    while counts["kills"] < kills:
        home = root / f"delivering-{number}"
        home.mkdir()
        queues = prepare(home, database_in(home), chance, table_format)
        ending = CLEAN.Event()
        journals = {name: home / f"{name}.journal" for name in "AB"}
        consumers = [start(consume, queues.url, name, path, ending) for name, path in journals.items()]
        wait = waits[number % len(waits)]
        counts += until_done(queues, chance, kills - counts["kills"], longest, wait, consumers)
        ending.set()
        for consumer in consumers:
            consumer.join()
            assert consumer.exitcode == 0, "a consumer failed: see above"
        counts += check(queues, list(journals.values()), for_short_queue())
        number += 1
    return counts


if __name__ == "__main__":
    about = "kill a stream while it delivers to queues"
    program(about, run, kills=100, postgresql=POSTGRESQL, table_format=FORMATS)
