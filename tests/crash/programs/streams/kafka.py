"""A stream of Kafka's records to files, a queue and topics that is killed again and again.

``python -m tests.crash.programs.streams.kafka --kills 100 --failpoints 5``. A real broker; ``selectroute
stream run`` as a user runs it. Its whole process group, with Spark's JVM, is killed (SIGKILL): at random
instants, and so often right before and after each step of a batch. Subscriptions, their selectors and
destinations change all the while, and a consumer takes from the queue. When everything is routed, all that
came out is held against the reference evaluator (see `kafka_flow`): nothing lost, nothing twice. Topics are
read as any consumer with ``read_committed`` does.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selectroute.testing.broker import running
from tests.crash.programs.failpoint import PUT, STEPS
from tests.crash.programs.harness import FORMATS, counted, program
from tests.crash.programs.streams.kafka_flow import Flow
from tests.crash.programs.streams.killed import KILLS, WAIT_SECONDS, Cycle, KilledStream, messages_in

BATCH = 150
"""Records a batch takes at most."""

AHEAD = 4 * BATCH
"""Records that are always there to be routed."""

ROUND = 20
"""Kills after which everything is routed and checked."""


class Killed(KilledStream):
    """One stream in a folder of its own."""

    def __init__(self, flow: Flow, home: Path, table_format: str = "parquet") -> None:
        super().__init__(home, flow.chance, table_format)
        self.flow, self.change = flow, flow.change
        self.steps = tuple(step for step in STEPS if step != PUT or flow.has_queue)

    def produce(self) -> None:
        """Write as many records as are to be ahead of the stream."""
        self.flow.produce(max(0, AHEAD - self.flow.produced + messages_in(self.output)))

    def run(self, cycles: list[Cycle]) -> Counter[str]:
        """Kill it in each of these cycles; now and then let it route the rest, and check. Raises
        AssertionError.
        """
        counts: Counter[str] = Counter()
        for first in range(0, len(cycles), ROUND):
            with self._consuming():
                for cycle in cycles[first : first + ROUND]:
                    self.kill_in(cycle)
                self._route_rest()
            counts = self.kills + self.flow.check(self.output)
            print(f"{counted(counts)}: all held", file=sys.stderr, flush=True)
        return counts

    def start(self, *failpoint: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        if left := len(self._committed() & self._staged()):
            self.kills[f"left {left} committed batches to publish"] += 1
        module = ["tests.crash.programs.failpoint", *failpoint] if failpoint else ["selectroute"]
        command = [sys.executable, "-m", *module, "stream", "run", "--cores", "2"]
        return self._launch(*command, *self._settings(), *options)

    def _settings(self) -> list[object]:
        settings = {
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
        queues = {"queues": self.flow.url} if self.flow.has_queue else {}
        return [said for name, value in {**settings, **queues}.items() for said in (f"--{name}", value)]

    def _route_rest(self) -> None:
        job = self.start(options=["--available-now"])
        assert job.wait(WAIT_SECONDS + self.flow.produced) == 0, self._said()

    @contextmanager
    def _consuming(self) -> Iterator[None]:
        with self.flow.consuming(), self._ended():
            yield


def run(root: Path, seed: int, kills: int, failpoints: int, without_queue: bool, table_format: str) -> str:
    with running(root / "broker") as broker:
        killed = Killed(Flow(broker, root / "stream", seed, not without_queue), root / "stream", table_format)
        counts = killed.run(killed.cycles(kills, failpoints))
    return f"{sum(counts[name] for name in KILLS):,} kills"


if __name__ == "__main__":
    without = {"action": "store_true", "help": "deliver to folders and topics only"}
    more = {"without_queue": without, "table_format": FORMATS}
    program("kill a stream of Kafka's records", run, kills=100, failpoints=0, **more)
