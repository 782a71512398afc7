"""A stream of Kafka's records to files, a queue and topics that is killed again and again.

``python -m tests.crash.kafka --kills 100 --failpoints 5``. A real broker; ``streaming/fanout.py`` as a user
runs it. Its whole process group, with Spark's JVM, is killed (SIGKILL): at random instants, and so often
right before and after each step of a batch (see `failpoint`). Subscriptions, their selectors and
destinations change all the while, and a consumer takes from the queue. When everything is routed,
`kafka_check` holds all that came out against the reference evaluator: nothing lost, nothing twice; what comes
from topics after `selectroute.kafka.deduplicate`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import selectroute as sr
from selectroute.index.registration import build_from_lines
from selectroute.queues.sql_queue import SqlQueue
from tests.broker import Broker
from tests.broker import running as running_broker
from tests.crash.delivering import consume
from tests.crash.failpoint import MOMENTS, STEPS
from tests.crash.kafka_check import Kinds, Subscription, check

ROOT = Path(__file__).parents[2]
SUBSCRIPTIONS = 24
BATCH = 150
"""Records a batch takes at most."""

AHEAD = 4 * BATCH
"""Records that are always there to be routed."""

PARTITIONS = 3
ROUND = 20
"""Kills after which everything is routed and checked."""

KILLS = ("kills at random instants", "kills at steps")
WAIT_SECONDS = 300.0
_SILENT_SECONDS = 400.0

Cycle = tuple[str, str] | None
"""The step and the moment of a kill, None for any."""

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most of a cycle is a JVM that starts: this one compiles less, and does all the same."""

_spawn = multiprocessing.get_context("spawn")  # a client of Kafka has threads


@dataclass
class Killed:
    """One stream in a folder and topics of its own."""

    broker: Broker
    home: Path
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    states: dict[int, dict[str, Subscription]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.kinds = Kinds(self.seed)
        self.output, self.snapshots = self.home / "out", self.home / "snapshots"
        self.url = f"sqlite:///{self.home}/queues.db"
        self.journal = self.home / "queue.journal"
        self.produced = 0
        self._jobs: list[subprocess.Popen[bytes]] = []
        name = f"killed-{os.getpid()}-{self.seed}"
        self.topic = self.broker.create(f"{name}-in", PARTITIONS)
        self.topics = [self.broker.create(f"{name}-four", 4), self.broker.create(f"{name}-one", 1)]
        SqlQueue.create(self.url, "A").close()
        state = {f"s{number}": self._drawn() for number in range(SUBSCRIPTIONS)}
        # There is always one that reads the weight, so that a weight that is none is always found; and one of
        # each kind of destination, so that each step is taken in each batch.
        self._constant = {"weight": Subscription("weight > 900", None)}
        self._constant["queue"] = Subscription("weight < 100", ("queue", "A"))
        self._constant["topic"] = Subscription("weight < 200", ("kafka", self.topics[0]))
        self._publish(state)
        # The kernel is compiled, or read, before the first job is started and not in each.
        sr.Snapshot.open(self.snapshots).match(pa.record_batch({"weight": [1]}))

    # ---- what changes and flows

    def _drawn(self) -> Subscription:
        kind = self.chance.choice([None, None, "queue", "kafka", "kafka"])
        name = "A" if kind == "queue" else self.chance.choice(self.topics)
        return Subscription(self.kinds.selector(self.chance), None if kind is None else (kind, name))

    def change(self) -> None:
        """Publish a new revision: some subscriptions are others, one comes, one goes."""
        state = dict(self.states[max(self.states)])
        for id in self.chance.sample(sorted(state), 3):
            state[id] = self._drawn()
        del state[self.chance.choice(sorted(state))]
        state[f"s{SUBSCRIPTIONS + len(self.states)}"] = self._drawn()
        self._publish(state)

    def _publish(self, state: dict[str, Subscription]) -> None:
        state |= self._constant
        revision = max(self.states, default=0) + self.chance.randrange(1, 4)
        lines = [json.dumps(one.registered(id)) for id, one in state.items()]
        self.states[revision] = state
        sr.publish(build_from_lines(lines, revision), self.snapshots)

    def produce(self) -> None:
        """Write as many records as are to be ahead of the stream."""
        paths = (self.output / "_commits").glob("*.json")
        done = sum(json.loads(path.read_text())["counts"]["messages"] for path in paths)
        missing = max(0, AHEAD - (self.produced - done))
        drawn = ((self.chance.randrange(PARTITIONS), self.kinds.draw(self.chance)) for _ in range(missing))
        self.broker.produce(self.topic, [(partition, *self.kinds.record(kind)) for partition, kind in drawn])
        self.produced += missing

    # ---- who is killed

    def run(self, kills: int, failpoints: int) -> Counter[str]:
        """Kill it so often, and so often at each step; returns what was counted. Raises AssertionError if a
        check fails.
        """
        points = [(step, moment) for step in STEPS for moment in MOMENTS] * failpoints
        cycles: list[Cycle] = [*points, *([None] * kills)]
        self.chance.shuffle(cycles)
        return self.run_cycles(cycles)

    def run_cycles(self, cycles: list[Cycle]) -> Counter[str]:
        """Kill it at each of these steps, or at a random instant where there is none, and check."""
        counts: Counter[str] = Counter()
        for start in range(0, len(cycles), ROUND):
            self._round(cycles[start : start + ROUND])
            counts = self.kills + check(self)
            said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            print(f"{said}: all held", file=sys.stderr, flush=True)
        return counts

    def _round(self, cycles: list[Cycle]) -> None:
        """Kill it these times, then let it route the rest, and the consumer take the rest."""
        with self._consuming():
            for cycle in cycles:
                started = time.monotonic()
                self.produce()
                if cycle is None:
                    self._kill_somewhen()
                else:
                    self._kill_at(*cycle)
                at = "somewhen" if cycle is None else "{1} {0}".format(*cycle)
                print(f"killed {at} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            self._route_rest()

    def _route_rest(self) -> None:
        job = self._start(options=["--available-now"])
        assert job.wait(WAIT_SECONDS + self.produced) == 0, self._said()

    @contextmanager
    def _consuming(self) -> Iterator[None]:
        """Have a consumer take from the queue meanwhile, and in the end all that is left. Whatever comes, no
        stream is left running.
        """
        ending = _spawn.Event()
        consumer = _spawn.Process(target=_consume, args=(self.url, self.journal, ending))
        consumer.start()
        try:
            yield
        finally:
            for job in self._jobs:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
            self._jobs.clear()
            ending.set()
            consumer.join()
        assert consumer.exitcode == 0, "the consumer failed: see above"

    def _kill_somewhen(self) -> None:
        """Kill it while it starts, or while it routes."""
        before, job = self._traces(), self._start()
        if self.chance.random() < 0.15:
            self._pass(job, self.chance.uniform(0, 8))
        else:
            deadline = time.monotonic() + WAIT_SECONDS
            done = self._committed() + self.chance.choice([0, 0, 1, 2])
            while self._traces() == before or self._committed() < done:
                assert time.monotonic() < deadline, f"it does nothing: {self._said()}"
                self._pass(job, 0.02)
            self._change_meanwhile(job, self.chance.uniform(0, 3))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.kills[KILLS[0]] += 1

    def _kill_at(self, step: str, moment: str) -> None:
        """Let it be killed at a step of one of the next batches."""
        nth = self.chance.randrange(1, 7 if step == "rename" else 3)
        job = self._start(step, moment, str(nth))
        started = time.monotonic()
        while job.poll() is None:
            waited = time.monotonic() - started
            assert waited < _SILENT_SECONDS, f"{moment} {step} never came: {self._said()}"
            self.produce()  # a step that was missed once is met again
            self._change_meanwhile(job, 1.0)
        assert job.returncode == -signal.SIGKILL, self._said()
        self.kills[KILLS[1]] += 1

    def _change_meanwhile(self, job: subprocess.Popen[bytes], seconds: float) -> None:
        self._pass(job, seconds * self.chance.random())
        if self.chance.random() < 0.5:
            self.change()
        self._pass(job, seconds / 2)

    def _pass(self, job: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait, and make sure that the stream does not end but by being killed."""
        deadline = time.monotonic() + seconds
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert job.poll() in (None, -signal.SIGKILL), f"it ended by itself: {self._said()}"

    def _start(self, *failpoint: str, options: list[str] | None = None) -> subprocess.Popen[bytes]:
        failing = ["-m", "tests.crash.failpoint", *failpoint] if failpoint else []
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        return self._run(
            [sys.executable, *failing, str(ROOT / "streaming" / "fanout.py"), "--cores", "2"],
            options or [],
            {**os.environ, "PYTHONPATH": paths},
        )

    def _run(self, program: list[str], options: list[str], found: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the job, by this program and what its processes find around them."""
        given = {
            "kafka-servers": self.broker.address,
            "kafka-topics": self.topic,
            "bind": "weight:int",
            "max-offsets-per-trigger": BATCH,
            "queues": self.url,
            "snapshots": self.snapshots,
            "output": self.output,
            "trigger-seconds": 0,
            "log": "json",
        }
        said = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        with (self.home / "stream.log").open("ab") as log:
            job = subprocess.Popen(
                [*program, *said, *options],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**found, "JAVA_TOOL_OPTIONS": _JVM},
                start_new_session=True,
            )
        self._jobs.append(job)
        return job

    def _committed(self) -> int:
        folder = self.output / "_commits"
        return len(list(folder.glob("*.json"))) if folder.is_dir() else 0

    def _traces(self) -> frozenset[str]:
        """What a stream that routes leaves behind."""
        folders = [self.output / name for name in ("pins", "_staging", "_checkpoint/offsets")]
        return frozenset(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())

    def _said(self) -> str:
        return (self.home / "stream.log").read_text(errors="replace")[-3_000:]


def run(broker: Any, home: Path, seed: int, kills: int, failpoints: int) -> tuple[Killed, Counter[str]]:
    """Run one; returns it with its counts."""
    home.mkdir()
    one = Killed(broker, home, seed)
    return one, one.run(kills, failpoints)


def _consume(url: str, journal: Path, ending: Any) -> None:
    """Take from the queue, for as long as whoever started this is there."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    consume(url, "A", journal, ending)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill a stream of Kafka's records")
    parser.add_argument("--kills", type=int, default=100, help="at random instants")
    parser.add_argument("--failpoints", type=int, default=0, help="before and after each step, so often")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="selectroute-crash-", ignore_cleanup_errors=True) as root:
        started = time.monotonic()
        try:
            with running_broker(Path(root) / "broker") as broker:
                _, counts = run(broker, Path(root) / "stream", given.seed, given.kills, given.failpoints)
        except AssertionError as error:
            sys.exit(f"FAILED: {error}")
        seconds = time.monotonic() - started
    print(f"{sum(counts[name] for name in KILLS):,} kills in {seconds:,.0f} s: all held")


if __name__ == "__main__":
    main()
