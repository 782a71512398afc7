"""Every write of a stream fails in turn: ``python -m tests.crash.programs.stream_faults``.

Batches of files are routed to folders, a queue and a topic, batch by batch as in Spark, but without it. The
n-th write to any file of theirs fails, n = 1, 2, 3 …, until all is routed without having met a failure: the
disk is full, or a write, a sync or a rename gives EIO, once or for good (see `failing`). Each time

- the job ends with an error that is one sentence, also when it is started while the disk still fails;
- started again when the disk works, it goes on: what was delivered is what the reference evaluator says, to
  the folders and to the queue once, to the topic at least once and each time as the same record.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import selectroute as sr
from selectroute.durable import disk
from selectroute.index.destination import KAFKA
from selectroute.selector.errors import SelectRouteError
from selectroute.spark.batch.router import Router
from selectroute.spark.destinations.kafka_records import Topic
from selectroute.spark.senders.sender import staged_file
from selectroute.spark.stream.fan_out import sentence
from selectroute.testing.world import World, files_of
from tests.crash.programs.command import ROOT
from tests.crash.programs.failing import VARIABLE, Fault, Shim, compiled, faults
from tests.spark.queue_world import A, Queues, numbered

BATCHES, FILES, MESSAGES = 5, 2, 20
TOPIC = "out"
SUBSCRIPTIONS: dict[str, tuple[str, dict[str, str] | None]] = {
    "folder": ("n >= 5", None),
    "queue": ("n < 12 AND n <> 7", A),
    "topic": ("n BETWEEN 6 AND 15", {"kind": KAFKA, "name": TOPIC}),
    "gone": ("n = 3", {"kind": KAFKA, "name": "no-such-topic"}),
}
_BAD = "no JSON"
_MOST = 2_000

Id = tuple[str, int, str]
"""Source, row and subscription."""


class Topics:
    """Topics of Kafka as a job sees them: what is sent is kept, in the order in which it comes."""

    def __init__(self) -> None:
        self.records: list[tuple[Id, tuple[str, int, int]]] = []

    def known(self, names: frozenset[str], refresh: bool = True) -> dict[str, Topic]:
        return {name: Topic(1 << 20, 3) for name in names & {TOPIC}}

    topics = known

    def outgoing(self, job: str, deliveries: int) -> dict[str, Any]:
        return {"job": job, "deliveries": deliveries}

    def send(self, batch: int, revision: int, outgoing: Mapping[str, Any], staging: Path) -> list[Any]:
        sent = staging / "sent-kafka.json"
        if disk.read_json(sent) is None:
            for file in outgoing["files"]:
                for row in pq.read_table(staged_file(staging, file)).to_pylist():
                    for nth, one in enumerate(row["deliveries"]):
                        place = file["path"], one["partition"], row["first"] + nth
                        self.records.append(((row["source"], row["offset"], one["subscription"]), place))
            disk.write_json(sent, {"batch": batch})
        return []


class Stream:
    """A job in a folder of its own."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.world = World(home)
        self.world.input.mkdir()
        self.queues = Queues(self.world, f"sqlite:///{home}/queues.db")
        self.queues.create("A")
        self.queues.publish(1, **SUBSCRIPTIONS)
        self.topics = Topics()
        for number in range(BATCHES * FILES):
            self.world.drop_json(f"{number}.jsonl", *numbered(MESSAGES), _BAD)

    def route(self) -> None:
        """Start the job, and route all batches."""
        job = self.world.job()
        sender: Any = self.topics
        router = Router(job, files_of(job, 2), self.queues.sender(), sender)
        router.commits.prepare()
        for batch in range(BATCHES):
            names = range(batch * FILES, (batch + 1) * FILES)
            router.route(batch, [self.world.input / f"{name}.jsonl" for name in names], "q")

    def check(self) -> None:
        """Hold what came out against the reference. Raises AssertionError."""
        expected = {name: self._expected(name) for name in SUBSCRIPTIONS}
        recorded = Counter((source, row, id) for source, row, id, _ in self.world.deliveries().elements())
        assert recorded == Counter(expected["folder"] | expected["queue"] | expected["topic"])
        ids = Counter("{}/0/{}/{}".format(*one) for one in expected["queue"])
        assert self.queues.ids("A") == ids
        sent = set(self.topics.records)
        assert Counter(id for id, _ in sent) == Counter(expected["topic"]), "sent again as another record"
        letters = self.world.rows("dead-letters")
        dead = Counter((row["source"], row["offset"], row["subscription"]) for row in letters)
        bad = {(f"{number}.jsonl", MESSAGES, None) for number in range(BATCHES * FILES)}
        assert dead == Counter(expected["gone"] | bad)
        assert not list((self.world.output / "_staging").iterdir())
        lines = self.world.accounting()
        assert [line["batch"] for line in lines] == list(range(BATCHES))
        assert {line["messages"] for line in lines} == {FILES * (MESSAGES + 1)}

    def _expected(self, id: str) -> set[Id]:
        selector = sr.Selector(SUBSCRIPTIONS[id][0])
        wanted = [n for n in range(MESSAGES) if selector.matches(sr.Message({}, {"n": n}))]
        return {(f"{number}.jsonl", n, id) for number in range(BATCHES * FILES) for n in wanted}


def fail_in_turn(fault: Fault, root: Path, step: int) -> Counter[str]:
    """Let each write fail, and go on. Raises AssertionError."""
    counts: Counter[str] = Counter()
    for at in range(1, _MOST, step):
        home = root / f"{at}"
        stream = Stream(home)
        fault.arm(at, home, os.getpid())
        try:
            ended = _ended(stream)
            fired = bool(fault.fired)
            if ended and isinstance(fault, Shim) and fault.stays:
                assert _ended(stream), f"write {at}: it is done though the disk fails"
        finally:
            fault.clear()
        stream.route()
        stream.check()
        if not fired:
            assert not ended
            return counts
        counts["ended" if ended else "done all the same"] += 1
    raise AssertionError("the writes never ended")


def _ended(stream: Stream) -> str:
    """Route; return the sentence with which it ended, if it did."""
    try:
        stream.route()
    except (SelectRouteError, OSError) as error:
        said = str(sentence(error))
        assert said and "\n" not in said and "Traceback" not in said, said
        return said
    return ""


def run(root: Path, control: Path, step: int) -> Counter[str]:
    """All ways to fail, in folders below `root`."""
    total: Counter[str] = Counter()
    for number, fault in enumerate(faults(control, 1)):
        if not isinstance(fault, Shim):
            continue
        (root / str(number)).mkdir()
        counts = fail_in_turn(fault, root / str(number), step)
        assert counts.total() * step > 200, f"{fault.name}: only {counts.total()} writes"
        print(f"{fault.name}: {', '.join(f'{count} {name}' for name, count in counts.items())}", flush=True)
        total += counts
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="let every write of a stream fail in turn")
    parser.add_argument("--step", type=int, default=1, help="1 for every write, n for each n-th")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:  # in the process that has the shim
        started = time.monotonic()
        counts = run(given.inside, Path(os.environ[VARIABLE]), given.step)
        said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        print(f"{said} in {time.monotonic() - started:.0f} s: all held")
        return
    with tempfile.TemporaryDirectory(prefix="selectroute-faults-") as folder:
        made = compiled(Path(folder))
        if isinstance(made, str):
            sys.exit(f"nothing was tried: {made}")
        again = [sys.executable, "-m", "tests.crash.programs.stream_faults", "--inside", folder]
        command = [*again, "--step", str(given.step)]
        ended = subprocess.run(command, cwd=ROOT, env={**os.environ, **made[0]}, check=False)
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
