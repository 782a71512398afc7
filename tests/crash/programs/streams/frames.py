"""A stream of a DataFrame's rows to folders and a queue that is killed again and again.

``python -m tests.crash.programs.streams.frames --kills 20 --failpoints 2``. The rows are numbers of a source
in Python that replays, and go through a shuffle. The whole process group, with Spark's JVM, is killed
(SIGKILL): at random instants, and so often right before and after each step of a batch (see `failpoint`).
When all is routed, each number must be in the deliveries once and on the queue once. ``--table-format delta``
has tables that are compacted every three batches.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from tests.crash.programs.command import ROOT
from tests.crash.programs.long_run import long_run, options

from selectroute.spark import Position, local_session, start_fanout
from selectroute.spark.audit.audit import audit
from tests.crash.programs.failpoint import MOMENTS, PUT, Cycle, fail_at, kill_in
from tests.spark.queue_world import A, Queues
from tests.support.world import World

BATCH = 400
STEPS = ("offsets", "pin", "plan", PUT, "match", "commit", "publish", "return")
KILLS = ("kills at random instants", "kills at steps")
_SILENT_SECONDS = 400.0
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_FAR = 1 << 40


class _Numbers(DataSource):
    """Numbers from 0 up, `BATCH` in each batch, in two partitions; up to the option ``end``."""

    @classmethod
    def name(cls) -> str:
        return "killed-numbers"

    def schema(self) -> str:
        return "n bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(int(self.options["end"]))


class _Slice(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class _Reader(DataSourceStreamReader):
    def __init__(self, end: int) -> None:
        self._end = end

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return {"n": max(start["n"], min(self._end, start["n"] + BATCH))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [_Slice(start["n"], middle), _Slice(middle, end["n"])]

    def read(self, partition: Any) -> Any:
        return ((n,) for n in range(partition.start, partition.end))


def queues_in(home: Path, table_format: str) -> Queues:
    """Return the folders and queues of a stream."""
    return Queues(World(home, table_format=table_format), f"sqlite:///{home}/queues.db")


def job(home: Path, table_format: str, end: int, failpoint: Sequence[str]) -> None:
    """Route numbers until all up to ``end`` are, or this process is killed."""
    queues = queues_in(home, table_format)
    if failpoint:
        step, moment, nth = failpoint
        fail_at(step, moment, int(nth), queues.world.output)
    spark = local_session("numbers", cores=2, log_level="OFF")
    spark.dataSource.register(_Numbers)
    rows = spark.readStream.format("killed-numbers").option("end", str(end)).load()
    done = threading.Event()

    def note(report: Any) -> None:
        if committed(queues.world.output) >= end:
            done.set()

    fan = start_fanout(
        frame=rows.repartition(3),
        position=Position(offset="n"),
        snapshots=queues.world.snapshots,
        output=queues.world.output,
        queues=queues.url,
        table_format=table_format,
        compact_every=3,
        on_batch=note,
    )
    if committed(queues.world.output) >= end:
        done.set()
    fan.wait(done.is_set)


def committed(output: Path) -> int:
    """Return the number of rows in committed batches."""
    paths = (output / "_commits").glob("*.json")
    return sum(json.loads(path.read_text())["counts"]["messages"] for path in paths)


class Killed:
    """One stream in a folder of its own."""

    def __init__(self, home: Path, seed: int, table_format: str = "parquet") -> None:
        self.home = home
        self.chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.queues = queues_in(home, table_format)
        self.queues.create("A")
        self.queues.publish(1, some=("n >= 0", A))

    def run(self, cycles: Sequence[Cycle]) -> Counter[str]:
        """Kill it at each of these steps, or at a random instant where there is none; route the rest, and
        check. Raises AssertionError.
        """
        for cycle in cycles:
            kill_in(cycle, self._kill_somewhen, self._kill_at)
        end = (committed(self.queues.world.output) // BATCH + 3) * BATCH
        last = self._start(end)
        assert last.wait(_SILENT_SECONDS) == 0, self._said()
        return self.kills + self.check(end)

    def check(self, end: int) -> Counter[str]:
        """Assert that each number up to ``end`` was delivered once and put once; return the counts."""
        world = self.queues.world
        offsets = Counter(row["offset"] for row in world.rows("deliveries"))
        put = Counter(int(id.split("/")[2]) for id in self.queues.ids("A").elements())
        for name, found in (("deliveries", offsets), ("queue", put)):
            lost, twice = end - len(found), [n for n, times in found.items() if times > 1]
            assert not twice, f"{name}: {len(twice)} twice, such as {twice[0]}"
            assert not lost and max(found) == end - 1, f"{name}: {lost:,} lost"
        assert not (findings := audit(world.output).findings), findings
        return Counter({"rows": end})

    def _kill_somewhen(self) -> None:
        started = self._start(_FAR)
        wanted = committed(self.queues.world.output) + self.chance.choice([0, 0, 1, 2]) * BATCH
        deadline = time.monotonic() + _SILENT_SECONDS
        while committed(self.queues.world.output) < wanted or not self._has_begun():
            assert started.poll() is None and time.monotonic() < deadline, self._said()
            time.sleep(0.02)
        time.sleep(self.chance.uniform(0, 3))
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        self.kills[KILLS[0]] += 1

    def _has_begun(self) -> bool:
        return any((self.queues.world.output / "pins").glob("*"))

    def _kill_at(self, step: str, moment: str) -> None:
        nth = self.chance.randrange(1, 4)
        started = self._start(_FAR, step, moment, str(nth))
        assert started.wait(_SILENT_SECONDS) == -signal.SIGKILL, self._said()
        self.kills[KILLS[1]] += 1

    def _start(self, end: int, *failpoint: str) -> subprocess.Popen[bytes]:
        format_ = self.queues.world.table_format
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        with (self.home / "stream.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "--job", str(self.home), format_, str(end), *failpoint],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths, "JAVA_TOOL_OPTIONS": _JVM},
                start_new_session=True,
            )

    def _said(self) -> str:
        return (self.home / "stream.log").read_text(errors="replace")[-2_000:]


def main() -> int:
    """Run the program."""
    if sys.argv[1:2] == ["--job"]:
        home, table_format, end, *failpoint = sys.argv[2:]
        job(Path(home), table_format, int(end), failpoint)
        return 0
    given = options("kill a stream of rows", formats=True, kills=20, failpoints=1).parse_args()
    with long_run() as frame:
        killed = Killed(frame.folder, given.seed, given.table_format)
        points = [(step, moment) for step in STEPS for moment in MOMENTS] * given.failpoints
        cycles: list[Cycle] = [*points, *([None] * given.kills)]
        killed.chance.shuffle(cycles)
        frame.held(killed.run(cycles))
    return 0


if __name__ == "__main__":
    sys.exit(main())
