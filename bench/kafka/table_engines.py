"""Jobs that write tables: the fan-out with Parquet files and with Delta tables.

Each engine is one job that goes on in every run, as a busy job at one-second triggers does: a run gives it
batches that take a good part of a second, as many as are merged at once, and is timed without the rest of
each second. Before anything is measured it has had a minute of batches, or an hour of them, which are small
so that they do not take an hour. Each run starts the job again, and its first batch is not timed.
"""

from __future__ import annotations

import itertools
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.engine import Engine, Timed
from bench.kafka.streamed import PARTITIONS, Streamed, messages
from bench.spark.cores import processor_seconds
from bench.workloads.catalogue import WORKLOADS
from bench.workloads.oracle import Expected
from bench.workloads.plain import with_body
from selectroute.spark import BatchReport, FanOut, Job, KafkaCluster, KafkaInput, kafka_binding, start_fanout
from selectroute.spark.job import COMPACT_EVERY, DELTA, PARQUET

BATCHES: Final = COMPACT_EVERY
"""How many batches are timed in a run: as many as are merged at once."""

AGES: Final = {"minute": 60, "hour": 3_600}
"""How many batches a job has had before it is measured, a second each."""

_OLD_BATCH: Final = 4 * PARTITIONS
"""The messages of a batch that only makes a job older."""


class Given(ABC):
    """Where the messages of a job come from, in a folder with all that the job has; more can be added."""

    def __init__(self, streamed: Streamed) -> None:
        self.streamed = streamed
        self.folder = streamed.job_folder()
        self.number = itertools.count()

    @abstractmethod
    def add(self, batches: int, each: int) -> None:
        """Add so many batches of the first so many messages of the workload."""

    @abstractmethod
    def read(self, each: int) -> Path | KafkaInput:
        """Return the input of a job that reads so many messages a batch."""


class GivenFiles(Given):
    """Parquet files, one a batch."""

    def add(self, batches: int, each: int) -> None:
        """See `Given`."""
        size = self.streamed.size
        made = self.folder / f"{each}.parquet"
        if not made.exists():
            pq.write_table(with_body(WORKLOADS[size.workload].messages(size.rules, each, 0)), made)
        run = next(self.number)
        self.read(each).mkdir(exist_ok=True)
        for batch in range(batches):
            os.link(made, self.read(each) / f"{run:04}-{batch:05}.parquet")

    def read(self, each: int) -> Path:
        """See `Given`."""
        return self.folder / "in"


class GivenRecords(Given):
    """Records of topics, a new one each time."""

    def add(self, batches: int, each: int) -> None:
        """See `Given`."""
        topic = self.streamed.create(f"{self.folder.name}-{next(self.number)}")
        records = list(messages(self.streamed.size, each))
        self.streamed.broker.produce(
            topic,
            (
                (n % PARTITIONS, b"k%d" % n, value, headers)
                for _ in range(batches)
                for n, (value, headers) in enumerate(records)
            ),
        )

    def read(self, each: int) -> KafkaInput:
        """See `Given`."""
        cluster = KafkaCluster(self.streamed.broker.address)
        binding = kafka_binding(["weight:int"])
        pattern = f"{self.folder.name}-[0-9]+"
        return KafkaInput(cluster, pattern=pattern, binding=binding, max_offsets=each)


class TableEngine(Engine):
    """A job whose outcomes are tables and nothing else."""

    def __init__(
        self,
        spark: SparkSession,
        streamed: Streamed,
        given: Callable[[Streamed], Given],
        table_format: str,
        age: str,
        count: int,
    ) -> None:
        self.name = f"{table_format}-{age}"
        self.batch = max(1, count // BATCHES)
        self.messages = BATCHES * self.batch
        self.spark = spark
        self.streamed = streamed
        self._given = given
        self._format = table_format
        self._age = age
        self._older: Given | None = None

    def judge(self) -> Expected:
        """See `Engine`."""
        given, count = self._given(self.streamed), self.streamed.size.checked
        given.add(1, count)
        self._go_on(given, count).wait()
        table = str(given.folder / "out" / "deliveries")
        if self._format == DELTA:
            from deltalake import DeltaTable

            found = DeltaTable(table).to_pyarrow_table(columns=["subscription"])
        else:
            found = pq.read_table(table, columns=["subscription"])
        rules = pc.cast(pc.utf8_slice_codeunits(found["subscription"].cast(pa.string()), 1), pa.int64())
        return Expected(len(rules), pc.sum(rules).as_py())

    def run(self) -> Timed:
        """Route so many messages more, timed from the end of a first batch to the end of the last one."""
        if self._older is None:
            self._older = self._given(self.streamed)
            self._older.add(AGES[self._age], _OLD_BATCH)
            self._go_on(self._older, _OLD_BATCH).wait()
        batches = 1 + BATCHES
        self._older.add(batches, self.batch)
        ends: list[tuple[float, float]] = []
        counts: list[int] = []

        def on_batch(report: BatchReport) -> None:
            counts.append(report.counts.deliveries)
            if len(counts) in (1, batches):
                ends.append((time.perf_counter(), processor_seconds()))

        self._go_on(self._older, self.batch, on_batch).wait()
        (began, used_before), (ended, used) = ends
        return Timed(sum(counts[1:batches]), ended - began, processor_seconds=used - used_before)

    def _go_on(
        self, given: Given, each: int, on_batch: Callable[[BatchReport], None] | None = None
    ) -> FanOut:
        """Start the job until it has read all that there is, with so many messages a batch."""
        out = given.folder / "out"
        job = Job.of(given.read(each), self.streamed.recorded, out, max_files=1, table_format=self._format)
        return start_fanout(self.spark, job, available_now=True, on_batch=on_batch)


GIVEN: Final[dict[str, Callable[[Streamed], Given]]] = {
    "tables-files": GivenFiles,
    "tables-kafka": GivenRecords,
}
"""Where the messages of each benchmark come from."""


def makers(
    benchmark: str, spark: SparkSession, streamed: Streamed
) -> Mapping[str, Callable[[int], TableEngine]]:
    """Return how to make each engine of a benchmark for a number of messages."""
    return {
        f"{table_format}-{age}": partial(TableEngine, spark, streamed, GIVEN[benchmark], table_format, age)
        for table_format, age in itertools.product((PARQUET, DELTA), AGES)
    }
