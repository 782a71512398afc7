"""Files of remote storage as the input of a batch: listed by a planner of ours, read whole by the workers.

Spark lists folders through Hadoop, which needs a connector for each storage. Here the planner lists the
folder (see ``sources/files/remote_stream.py``), and what it plans is in the offset of the batch: the names of
its files, with their sizes. What was read is in the commits; at each start their names are merged into one
file, ``_inputs/<batch>.json``, from which the planner goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from selectroute.spark.inputs.files import FolderSource
from selectroute.spark.job.job import Job
from selectroute.spark.runtime.tasks import Runner
from selectroute.spark.sources.files.remote_stream import NAME, PlannedFile, files_source, planned_files
from selectroute.spark.sources.files.splits import Split, whole_files
from selectroute.storage import Location
from selectroute.storage.protocol import Entry

_THREADS: Final = 16
_AHEAD_BYTES: Final = 1 << 20
"""Bytes of a batch that the driver reads: Spark sends them to every task."""

_MERGED_AFTER: Final = 100
"""Commits after which the names of what was read are merged anew, at a start."""


class RemoteFileSource(FolderSource[Location, PlannedFile]):
    """Source of files of remote storage; see `FolderSource`.

    Args:
        job: the job, whose input is the folder; the commits in its output say what was read.
        run: runs tasks.
        tasks: maximum number of tasks of a batch.
        spark: for `stream`.
    """

    def __init__(self, job: Job, run: Runner, tasks: int, spark: SparkSession | None = None) -> None:
        assert isinstance(job.input, Location), "files are in a folder"
        super().__init__(job.input, job.file_format, job.max_files, run, tasks, spark, job.binding)
        self._output = job.output

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the stream that plans the batches."""
        assert self._spark is not None, "a stream needs Spark"
        known = _read_before(self._output)
        self._spark.dataSource.register(files_source(str(self.folder), self.limit, known))
        return self._spark.readStream.format(NAME).load()

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame | None = None) -> list[PlannedFile]:
        """Return the files of a batch from Spark's offset log."""
        return planned_files(checkpoint, batch)

    def name_of(self, file: PlannedFile) -> str:
        """Return the name below the folder."""
        return file.name

    def noted(self, file: PlannedFile) -> tuple[int, None]:
        """Return the size with which the file was planned, in bytes; a restored one has another time."""
        return file.size, None

    def cut(self, inputs: Sequence[PlannedFile], tasks: int) -> list[list[Split]]:
        """Return the splits of files, for so many tasks: each file is one."""
        files = ((self.folder / one.name, one.size) for one in inputs)
        return whole_files(files, self.folder, self.file_format, tasks)

    def is_unchanged(self, inputs: Sequence[PlannedFile]) -> bool:
        """Return whether the files have the sizes with which they were planned, by which they are cut."""
        entries = self._entries(one.name for one in inputs)
        return [one and one.size for one in entries] == [one.size for one in inputs]

    def read_ahead(self, inputs: Sequence[PlannedFile]) -> dict[str, bytes]:
        """Return the contents of a small batch's files, read side by side: they travel with its tasks. What
        can't be read is left to the tasks, which say so.
        """
        if len(inputs) > _THREADS or sum(one.size for one in inputs) > _AHEAD_BYTES:
            return {}
        contents: dict[str, bytes] = {}

        def read(one: PlannedFile) -> None:
            file = self.folder / one.name
            with suppress(OSError):
                contents[str(file)] = file.read()

        with ThreadPoolExecutor(_THREADS) as threads:
            [*threads.map(read, inputs)]
        return contents

    def _file(self, name: str, size: int) -> PlannedFile:
        return PlannedFile(name, size)

    def _entries(self, names: Iterable[str]) -> list[Entry | None]:
        with ThreadPoolExecutor(_THREADS) as threads:
            return [*threads.map(lambda name: (self.folder / name).entry(), names)]


def _read_before(output: Location) -> list[str]:
    """Return the names of all files that committed batches have read."""
    merged = output / "_inputs"
    newest = max((int(one.stem) for one in merged.files() if one.stem.isdigit()), default=-1)
    names: list[str] = []
    if newest >= 0:
        names = json.loads((merged / f"{newest}.json").read())
    commits = [one for one in (output / "_commits").files() if one.stem.isdigit() and int(one.stem) > newest]
    with ThreadPoolExecutor(_THREADS) as threads:
        for content in threads.map(lambda one: one.read_json() or {}, commits):
            names += content.get("inputs", {}).get("sizes", {})
    if len(commits) > _MERGED_AFTER:
        last = max(int(one.stem) for one in commits)
        (merged / f"{last}.json").put(json.dumps(names).encode())
        if newest >= 0:
            (merged / f"{newest}.json").delete()
    return names
