"""A stream of a DataFrame's rows to folders and a queue that is killed again and again.

``python -m tests.crash.programs.streams.frames --kills 20 --failpoints 2``. The rows are numbers of a source
in Python that replays, and go through a shuffle. The whole process group, with Spark's JVM, is killed
(SIGKILL): at random instants, and so often right before and after each step of a batch (see `failpoint`).
When all is routed, each number must be in the deliveries once and on the queue once. ``--table-format delta``
has tables that are compacted every three batches.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from selectroute.spark import Position, local_session, start_fanout
from selectroute.spark.audit.audit import audit
from tests.crash.programs.failpoint import PUT, fail_at
from tests.crash.programs.harness import FORMATS, program
from tests.crash.programs.streams.killed import WAIT_SECONDS, Cycle, KilledStream, messages_in
from tests.spark.queue_world import A, Queues
from tests.support.world import World

BATCH = 400
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
    return Queues(World(home, table_format=table_format), f"sqlite:///{home}/queues.db")


def job(home: Path, table_format: str, end: int, *failpoint: str) -> None:
    """Route numbers until all up to ``end`` are, or this process is killed."""
    queues = queues_in(home, table_format)
    world = queues.world
    if failpoint:
        step, moment, nth = failpoint
        fail_at(step, moment, int(nth), world.output)
    spark = local_session("numbers", cores=2, log_level="OFF")
    spark.dataSource.register(_Numbers)
    rows = spark.readStream.format("killed-numbers").option("end", str(end)).load()
    done = threading.Event()

    def note(report: Any = None) -> None:
        if messages_in(world.output) >= end:
            done.set()

    fan = start_fanout(
        frame=rows.repartition(3),
        position=Position(offset="n"),
        snapshots=world.snapshots,
        output=world.output,
        queues=queues.url,
        table_format=table_format,
        compact_every=3,
        on_batch=note,
    )
    note()
    fan.wait(done.is_set)


class Killed(KilledStream):
    """One stream in a folder of its own."""

    steps = ("offsets", "pin", "plan", PUT, "match", "commit", "publish", "return")

    def __init__(self, home: Path, seed: int, table_format: str = "parquet") -> None:
        super().__init__(home, Random(seed), table_format)
        self.queues = queues_in(home, table_format)
        self.queues.create("A")
        self.queues.publish(1, some=("n >= 0", A))

    def run(self, cycles: Sequence[Cycle]) -> Counter[str]:
        with self._ended():
            for cycle in cycles:
                self.kill_in(cycle)
            end = (messages_in(self.output) // BATCH + 3) * BATCH
            assert self.start(end=end).wait(WAIT_SECONDS) == 0, self._said()
        return self.kills + self.check(end)

    def start(self, *failpoint: str, end: int = _FAR) -> subprocess.Popen[bytes]:
        given = ["--job", self.home, self.table_format, end, *failpoint]
        return self._launch(sys.executable, "-m", "tests.crash.programs.streams.frames", *given)

    def check(self, end: int) -> Counter[str]:
        """Assert that each number up to ``end`` was delivered once and put once; return the counts."""
        world = self.queues.world
        offsets = Counter(row["offset"] for row in world.rows("deliveries"))
        put = Counter(int(id.split("/")[2]) for id in self.queues.ids("A").elements())
        for name, numbers in (("deliveries", offsets), ("queue", put)):
            lost, twice = end - len(numbers), [n for n, times in numbers.items() if times > 1]
            assert not twice, f"{name}: {len(twice)} twice, such as {twice[0]}"
            assert not lost and max(numbers) == end - 1, f"{name}: {lost:,} lost"
        assert not (findings := audit(world.output).findings), findings
        return Counter({"rows": end})


def run(root: Path, seed: int, kills: int, failpoints: int, table_format: str) -> Counter[str]:
    killed = Killed(root, seed, table_format)
    return killed.run(killed.cycles(kills, failpoints))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        home, table_format, end, *failpoint = sys.argv[2:]
        job(Path(home), table_format, int(end), *failpoint)
    else:
        program("kill a stream of rows", run, kills=20, failpoints=1, table_format=FORMATS)
