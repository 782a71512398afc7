"""Files of remote storage as the input of a batch: listed by a planner of ours, read whole by the workers.

Spark lists folders through Hadoop, which needs a connector for each storage. Here the planner lists the
folder (see ``sources/files/remote_stream.py``), and what it plans is in the offset of the batch: the names of
its files, with their sizes. What was read is in the commits; at each start their names are merged into one
file, ``_inputs/<batch>.json``, from which the planner goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from selectroute.spark.columns.binding import BY_NAME, Binding
from selectroute.spark.inputs.files import FileBatchInput, bound_columns, check_folder
from selectroute.spark.inputs.source import ReplayableInput
from selectroute.spark.runtime.tasks import Runner
from selectroute.spark.sinks.schemas import as_written
from selectroute.spark.sources.files.remote_stream import NAME, RemoteFile, files_source, planned_files
from selectroute.spark.sources.files.splits import Split, whole_files
from selectroute.storage import Location

_THREADS: Final = 16
_MERGED_AFTER: Final = 100
"""Commits after which the names of what was read are merged anew, at a start."""


class RemoteFileSource:
    """Source of the files that arrive in a folder of remote storage; see `Source`.

    Args:
        folder: the folder.
        output: the output folder of the job, whose commits say what was read.
        file_format: ``parquet``, ``json`` or ``auto``.
        max_files: maximum number of files of a batch.
        run: runs tasks.
        tasks: maximum number of tasks of a batch.
        spark: for `stream`.
        binding: columns of identifiers in Parquet whose names or types differ.
    """

    def __init__(
        self,
        folder: Location,
        output: Location,
        file_format: str,
        max_files: int,
        run: Runner,
        tasks: int,
        spark: SparkSession | None = None,
        binding: Binding = BY_NAME,
    ) -> None:
        self.bound = bound_columns(binding)
        self.folder = folder
        self.file_format = file_format
        self.limit = max_files
        self.run = run
        self.tasks = tasks
        self._output = output
        self._spark = spark

    def connect(self) -> None:
        """Check that the folder can be listed."""
        check_folder(self.folder)

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the stream that plans the batches."""
        assert self._spark is not None, "a stream needs Spark"
        known = _read_before(self._output)
        self._spark.dataSource.register(files_source(str(self.folder), self.limit, known))
        return self._spark.readStream.format(NAME).load()

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame | None = None) -> list[RemoteFile]:
        """Return the files of a batch from Spark's offset log."""
        return planned_files(checkpoint, batch)

    def batch_input(self, inputs: Sequence[RemoteFile], again: bool = False) -> FileBatchInput:
        """Return these files as the input of a batch."""
        return FileBatchInput(inputs, self, self.tasks)

    def reread(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[ReplayableInput]:
        """Return the unchanged files of each batch, and the names of the others."""
        return [self._reread(commit["batch"], commit["inputs"]["sizes"]) for commit in commits]

    def _reread(self, batch: int, sizes: Mapping[str, int]) -> ReplayableInput:
        with ThreadPoolExecutor(_THREADS) as threads:
            entries = threads.map(lambda name: (self.folder / name).entry(), sizes)
            same = {
                name
                for (name, size), entry in zip(sizes.items(), entries, strict=True)
                if entry is not None and entry.size == size
            }
        gone = tuple(name for name in sizes if name not in same)
        return ReplayableInput(
            batch, tuple(RemoteFile(name, sizes[name]) for name in sizes if name in same), gone
        )

    @property
    def name(self) -> str:
        """URL of the folder."""
        return str(self.folder)

    def sizes(self, inputs: Sequence[RemoteFile]) -> dict[str, int | None]:
        """Return the names of files, with their sizes in bytes."""
        return {one.name: one.size for one in inputs}

    def cut(self, inputs: Sequence[RemoteFile], tasks: int) -> list[list[Split]]:
        """Return the splits of files, for so many tasks: each file is one."""
        files = ((self.folder / one.name, one.size) for one in inputs)
        return whole_files(files, self.folder, self.file_format, tasks)

    def narrow(
        self, inputs: Sequence[RemoteFile], letters: pa.Table
    ) -> tuple[list[RemoteFile], npt.NDArray[np.bool_]]:
        """Return the files of these letters, and which letters are in them."""
        names = {as_written(one.name): one for one in inputs}
        mask: npt.NDArray[np.bool_] = pc.is_in(
            letters["source"], pa.array(list(names), pa.string())
        ).to_numpy()
        wanted = set(letters["source"].filter(pa.array(mask)).unique().to_pylist())
        return [one for name, one in names.items() if name in wanted], mask

    def weight(self, letters: pa.Table) -> int:
        """Return the number of files of these letters."""
        return len(letters["source"].unique())


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
