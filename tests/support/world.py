"""Folders of a job, and its batches without Spark: messages are dropped, selectors published, output read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.index.index import Index
from selectroute.index.snapshot_files import publish
from selectroute.spark import BatchReport, Job
from selectroute.spark.batch.router import Router
from selectroute.spark.folder import OutputFolder
from selectroute.spark.job import DELTA, PARQUET
from selectroute.spark.session import Work
from selectroute.spark.sources.files.lister import PlannedFile
from selectroute.spark.sources.files.source import FileBatchInput, FileSource
from selectroute.storage import Location


class Files(FileSource):
    """Files of a folder that a test names by their paths. Tasks run in this process.

    ``offsets`` is what Spark's would be: the size that each file had when a batch was planned with it.
    """

    def __init__(self, job: Job, tasks: int, offsets: dict[str, int] | None = None) -> None:
        super().__init__(job, run_here, tasks)
        self._offsets = {} if offsets is None else offsets

    def batch_input(self, inputs: Sequence[Any], again: bool = False) -> FileBatchInput:
        """Return these files as the input of a batch."""
        return super().batch_input(list(map(self._planned, inputs)), again)

    def _planned(self, one: Any) -> PlannedFile:
        if isinstance(one, PlannedFile):
            return one
        name = Location.of(one).relative_to(self.folder)
        if name not in self._offsets:
            entry = Location.of(one).entry()
            self._offsets[name] = 0 if entry is None else entry.size
        return PlannedFile(name, self._offsets[name])


def note_plan(job: Job, batch: int, *files: Path) -> None:
    """Write a batch with these files into Spark's checkpoint, as Spark does."""
    assert isinstance(job.input, Location), "a world reads files"
    planned = [[Location.of(one).relative_to(job.input), one.stat().st_size] for one in files]
    path = job.checkpoint.path / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1\n{}\n" + json.dumps({"number": batch + 1, "files": planned}))


def run_here(work: Work, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Run tasks in this process, as Spark's workers do."""
    return [work(number) for number in numbers]


@dataclass
class World:
    """Job in folders below `root`: its input, snapshots and output. For one process only.

    What is committed is published behind the stream. Who looks at the output here waits for it.
    ``table_format`` is that of `Job.of`.
    """

    root: Path
    table_format: str = field(default=PARQUET, kw_only=True)
    _batches: int = field(default=0, init=False)
    _offsets: dict[str, int] = field(default_factory=dict, init=False)
    _routers: list[Router] = field(default_factory=list, init=False)

    @property
    def input(self) -> Path:
        """Input folder; its name has characters that URLs and shells must escape."""
        return self.root / "in put é%20"

    @property
    def snapshots(self) -> Path:
        """Folder of the published revisions."""
        return self.root / "snapshots"

    @property
    def output(self) -> Path:
        """Output folder of the job, in which all that is committed is published."""
        for router in self._routers:
            router.ahead.forget()
            router.commits.finish()
            router.commits.write_accounting()
        return self.root / "out"

    def job(self, **options: Any) -> Job:
        """Return the job, with these options of `Job.of`."""
        snapshots = options.pop("snapshots", self.snapshots)
        options = {"table_format": self.table_format, **options}
        return Job.of(self.input, snapshots, self.root / "out", **options)

    def router(self, tasks: int = 2, **options: Any) -> Router:
        """Return a router in the state after a start of the job; its tasks run in this process."""
        job = self.started(self.job(**options))
        router = self.note(Router(job, self.source(job, tasks)))
        router.commits.prepare()
        return router

    def started(self, job: Job) -> Job:
        """Return the job in the state after a start."""
        self.claim(job)
        return job

    def source(self, job: Job, tasks: int) -> FileSource:
        """Return the source of a job, whose tasks run in this process."""
        return Files(job, tasks, self._offsets)

    def note(self, router: Router) -> Router:
        """Keep a router, whose batches `output` waits for, after the end of the earlier one."""
        self.close()
        self._routers[:] = [router]
        return router

    def close(self) -> None:
        """End the threads of the router, which may have been killed."""
        for router in self._routers:
            router._newest.close()
            router.ahead.forget()
            with suppress(BaseException):
                router.commits.finish()

    def claim(self, job: Job) -> None:
        """Write the record of a job whose tables have its id, as a start does."""
        if job.table_format == DELTA and not (job.output / "_job.json").exists():
            folder = OutputFolder(job)
            try:
                folder.claim()
            finally:
                folder.release()

    def route(self, *names: str, **options: Any) -> BatchReport:
        """Route files of the input folder as the next batch, and return its report.

        Raises the errors of a batch: `PinError`, `SnapshotError`, `CommitError`.
        """
        batch, self._batches = self._batches, self._batches + 1
        return self.router(**options).route(batch, [self.input / name for name in names], "world")

    def publish(self, revision: int, **selectors: str) -> int:
        """Publish a revision with these subscriptions, selectors by id; return the revision."""
        index = Index()
        for name, selector in selectors.items():
            index.add(name, selector)
        return publish(index.freeze(revision), self.snapshots)

    def drop_json(self, name: str, *messages: Any) -> Path:
        """Put a file of JSON lines into the input folder. Messages are data, or finished lines."""
        lines = [message if isinstance(message, str) else json.dumps(message) for message in messages]
        return self.drop_bytes(name, "".join(line + "\n" for line in lines).encode())

    def drop_bytes(self, name: str, data: bytes) -> Path:
        """Put a complete file into the input folder by a rename, as users must."""
        path = self.input / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(data)
        return hidden.rename(path)

    def drop_parquet(self, name: str, table: pa.Table, **options: Any) -> Path:
        """Put a Parquet file into the input folder; `options` are those of pyarrow's `write_table`."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        return self.drop_bytes(name, sink.getvalue().to_pybytes())

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Return all published rows of a sink, read as one dataset."""
        if (self.output / sink / "_delta_log").is_dir():
            return self._rows_of_table(self.output / sink)
        if not any((self.output / sink).rglob("*.parquet")):
            return []
        rows: list[dict[str, Any]] = pq.read_table(self.output / sink).to_pylist()
        return rows

    @staticmethod
    def _rows_of_table(folder: Path) -> list[dict[str, Any]]:
        """Return the rows of a Delta table. Its files are read one by one: a dataset of the library's may end
        a process that exits soon after with SIGABRT, as one of Arrow's threads releases it too late.
        """
        from deltalake import DeltaTable  # needs the extra `delta`

        paths = pa.table(DeltaTable(str(folder)).get_add_actions())["path"].to_pylist()
        return [row for path in paths for row in pq.ParquetFile(folder / path).read().to_pylist()]

    def deliveries(self) -> Counter[tuple[str, int, str, int]]:
        """Count the deliveries by (source, row, subscription, revision)."""
        return Counter(
            (row["source"], row["offset"], row["subscription"], row["revision"])
            for row in self.rows("deliveries")
        )

    def accounting(self) -> list[dict[str, Any]]:
        """Return the rows of the accounting, one per batch."""
        return [json.loads(line) for line in (self.output / "accounting.jsonl").read_text().splitlines()]
