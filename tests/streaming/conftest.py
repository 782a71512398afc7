"""A world for a fan-out: folders, registries to publish, messages to drop in, and outputs to read."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import selectroute as sr

pytest.importorskip("pyspark", reason="PySpark is not installed (the extra `spark`)")

from selectroute.spark import Job
from selectroute.spark.batches import Router
from selectroute.spark.file_intake import FileSource
from selectroute.spark.worker import route_splits
from tests.components import POSTGRES


def files_of(job: Job, tasks: int) -> FileSource:
    """The files of a job, read in this process."""
    return FileSource(job.input, job.file_format, job.max_files, run_here, tasks)


def run_here(tasks, work):
    """Run the tasks of a batch in this process: what Spark's workers do, without Spark."""
    return [{"task": number, **route_splits(splits, work)} for number, splits in enumerate(tasks)]


@dataclass
class World:
    root: Path

    @property
    def input(self) -> Path:
        return self.root / "in put é%20"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def output(self) -> Path:
        return self.root / "out"

    def job(self, **options: Any) -> Job:
        return Job.of(self.input, options.pop("snapshots", self.snapshots), self.output, **options)

    def router(self, tasks: int = 2, **options: Any) -> Router:
        """A router as a start of the job makes it, running in this process."""
        job = self.job(**options)
        router = Router(job, files_of(job, tasks))
        router.commits.prepare()
        return router

    def publish(self, revision: int, **selectors: str) -> int:
        index = sr.Index()
        for name, selector in selectors.items():
            index.add(name, selector)
        return sr.publish(index.freeze(revision), self.snapshots)

    def drop_json(self, name: str, *messages: Any) -> Path:
        lines = [message if isinstance(message, str) else json.dumps(message) for message in messages]
        return self.drop_bytes(name, "".join(line + "\n" for line in lines).encode())

    def drop_bytes(self, name: str, data: bytes) -> Path:
        """Put a file into the input folder as a user must: whole, by a rename."""
        path = self.input / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(data)
        return hidden.rename(path)

    def drop_parquet(self, name: str, table: pa.Table, **options: Any) -> Path:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        return self.drop_bytes(name, sink.getvalue().to_pybytes())

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Everything published in a sink, as readers of such folders see it."""
        if not any((self.output / sink).rglob("*.parquet")):
            return []
        rows: list[dict[str, Any]] = pq.read_table(self.output / sink).to_pylist()
        return rows

    def deliveries(self) -> Counter[tuple[str, int, str, int]]:
        """(source, row, subscription, revision) of each delivery, with how often it was published."""
        return Counter(
            (row["source"], row["offset"], row["subscription"], row["revision"])
            for row in self.rows("deliveries")
        )

    def accounting(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.output / "accounting.jsonl").read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.input.mkdir()
    return made


@pytest.fixture
def sqlite(world: World) -> Any:
    """The world, with queues in SQLite."""
    from tests.streaming.queue_world import Queues

    return Queues(world, f"sqlite:///{world.root}/queues.db")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def queues(request: pytest.FixtureRequest) -> Any:
    """The world, with queues in either database."""
    made = request.getfixturevalue("sqlite")
    if request.param == "postgresql":
        made.url = request.getfixturevalue("postgres")()
    return made


@pytest.fixture
def pipe(spark: Any, kafka: Any, world: World, request: pytest.FixtureRequest) -> Any:
    """The world, with a topic of three partitions to read."""
    from tests.streaming.kafka_world import Pipe

    name = "in-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-60:]
    kafka.create(name, 3)
    return Pipe(spark, kafka, world, name)
