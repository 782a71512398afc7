"""A stream of Kafka's records to files, a queue and topics that is killed again and again.

``python -m tests.crash.programs.streams.kafka --kills 100 --failpoints 5``. A real broker; ``selectroute
stream run`` as a user runs it. Its whole process group, with Spark's JVM, is killed (SIGKILL): at random
instants, and so often right before and after each step of a batch (see `failpoint`). Subscriptions, their
selectors and destinations change all the while, and a consumer takes from the queue (see `kafka_flow`). When
everything is routed, `kafka_check` holds all that came out against the reference evaluator: nothing lost,
nothing twice. It reads topics as any consumer with ``read_committed`` does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.programs.command import ROOT
from tests.crash.programs.long_run import counted, long_run, options

from selectroute.testing.broker import Broker
from selectroute.testing.broker import running as running_broker
from tests.crash.programs.failpoint import MOMENTS, PUT, STEPS, Cycle, kill_in
from tests.crash.programs.streams.kafka_check import check
from tests.crash.programs.streams.kafka_flow import Flow

BATCH = 150
"""Records a batch takes at most."""

AHEAD = 4 * BATCH
"""Records that are always there to be routed."""

ROUND = 20
"""Kills after which everything is routed and checked."""

KILLS = ("kills at random instants", "kills at steps")
WAIT_SECONDS = 300.0
_SILENT_SECONDS = 400.0


_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most of a cycle is a JVM that starts: this one compiles less, and does all the same."""


@dataclass
class Killed:
    """One stream in a folder of its own."""

    flow: Flow
    home: Path
    table_format: str = field(default="parquet", kw_only=True)
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.chance = self.flow.chance
        self.output = self.home / "out"
        self._jobs: list[subprocess.Popen[bytes]] = []

    def produce(self) -> None:
        """Write as many records as are to be ahead of the stream."""
        paths = (self.output / "_commits").glob("*.json")
        done = sum(json.loads(path.read_text())["counts"]["messages"] for path in paths)
        self.flow.produce(max(0, AHEAD - (self.flow.produced - done)))

    def run(self, kills: int, failpoints: int) -> Counter[str]:
        """Kill it so often, and so often at each step; returns what was counted. Raises AssertionError if a
        check fails.
        """
        steps = [step for step in STEPS if step != PUT or self.flow.has_queue]
        points = [(step, moment) for step in steps for moment in MOMENTS] * failpoints
        cycles: list[Cycle] = [*points, *([None] * kills)]
        self.chance.shuffle(cycles)
        return self.run_cycles(cycles)

    def run_cycles(self, cycles: list[Cycle]) -> Counter[str]:
        """Kill it at each of these steps, or at a random instant where there is none, and check."""
        counts: Counter[str] = Counter()
        for start in range(0, len(cycles), ROUND):
            self._round(cycles[start : start + ROUND])
            counts = self.kills + check(self.flow, self.output)
            print(f"{counted(counts)}: all held", file=sys.stderr, flush=True)
        return counts

    def _round(self, cycles: list[Cycle]) -> None:
        """Kill it these times, then let it route the rest, and the consumer take the rest."""
        with self._consuming():
            for cycle in cycles:
                self.produce()
                kill_in(cycle, self._kill_somewhen, self._kill_at)
            self._route_rest()

    def _route_rest(self) -> None:
        job = self._start(options=["--available-now"])
        assert job.wait(WAIT_SECONDS + self.flow.produced) == 0, self._said()

    @contextmanager
    def _consuming(self) -> Iterator[None]:
        """Have a consumer take from the queue meanwhile. Whatever comes, no stream is left running."""
        with self.flow.consuming():
            try:
                yield
            finally:
                for job in self._jobs:
                    if job.poll() is None:
                        os.killpg(job.pid, signal.SIGKILL)
                self._jobs.clear()

    def _kill_somewhen(self) -> None:
        """Kill it while it starts, or while it routes."""
        before, job = self._traces(), self._start()
        if self.chance.random() < 0.15:
            self._pass(job, self.chance.uniform(0, 8))
        else:
            deadline = time.monotonic() + WAIT_SECONDS
            done = len(self._committed()) + self.chance.choice([0, 0, 1, 2])
            while self._traces() == before or len(self._committed()) < done:
                assert time.monotonic() < deadline, f"it does nothing: {self._said()}"
                self._pass(job, 0.02)
            self._change_meanwhile(job, self.chance.uniform(0, 3))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.kills[KILLS[0]] += 1

    def _kill_at(self, step: str, moment: str) -> None:
        """Let it be killed at a step of one of the next batches."""
        nth = self.chance.randrange(1, 7 if step == "publish" else 3)
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
            self.flow.change()
        self._pass(job, seconds / 2)

    def _pass(self, job: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait, and make sure that the stream does not end but by being killed."""
        deadline = time.monotonic() + seconds
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert job.poll() in (None, -signal.SIGKILL), f"it ended by itself: {self._said()}"

    def _start(self, *failpoint: str, options: list[str] | None = None) -> subprocess.Popen[bytes]:
        left = len(self._committed() & self._staged())
        if left:
            self.kills[f"left {left} committed batches to publish"] += 1
        failing = ["-m", "tests.crash.programs.failpoint", *failpoint] if failpoint else []
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        return self._run(
            [sys.executable, *(failing or ["-m", "selectroute"]), "stream", "run", "--cores", "2"],
            options or [],
            {**os.environ, "PYTHONPATH": paths},
        )

    def _run(self, program: list[str], options: list[str], found: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the job, by this program and what its processes find around them."""
        given = {
            "kafka-servers": self.flow.broker.address,
            "kafka-topics": self.flow.topic,
            "bind": "weight:int",
            "max-offsets-per-trigger": BATCH,
            "snapshots": self.flow.snapshots,
            "output": self.output,
            "table-format": self.table_format,
            "compact-every": 3,
            "trigger-seconds": 0,
            "log": "json",
        }
        if self.flow.has_queue:
            given["queues"] = self.flow.url
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

    def _committed(self) -> set[str]:
        """The batches that are committed."""
        return {path.stem for path in (self.output / "_commits").glob("*.json")}

    def _staged(self) -> set[str]:
        """The batches of which something is staged, if only a rest that is being removed."""
        return {path.name.split("-", 1)[0] for path in (self.output / "_staging").glob("*-*")}

    def _traces(self) -> frozenset[str]:
        """What a stream that routes leaves behind."""
        folders = [self.output / name for name in ("pins", "_staging", "_checkpoint/offsets")]
        return frozenset(str(path) for folder in folders if folder.is_dir() for path in folder.iterdir())

    def _said(self) -> str:
        return (self.home / "stream.log").read_text(errors="replace")[-3_000:]


def run(
    broker: Broker,
    home: Path,
    seed: int,
    kills: int,
    failpoints: int,
    has_queue: bool = True,
    table_format: str = "parquet",
) -> Counter[str]:
    """Run one; returns what was counted. Raises AssertionError if a check fails."""
    home.mkdir()
    flow = Flow(broker, home, seed, has_queue)
    return Killed(flow, home, table_format=table_format).run(kills, failpoints)


def main() -> None:
    parser = options("kill a stream of Kafka's records", formats=True, kills=100, failpoints=0)
    parser.add_argument("--without-queue", action="store_true", help="deliver to folders and topics only")
    given = parser.parse_args()
    with long_run() as frame, running_broker(frame.folder / "broker") as broker:
        home, has_queue = frame.folder / "stream", not given.without_queue
        counts = run(broker, home, given.seed, given.kills, given.failpoints, has_queue, given.table_format)
        frame.held(f"{sum(counts[name] for name in KILLS):,} kills")


if __name__ == "__main__":
    main()
