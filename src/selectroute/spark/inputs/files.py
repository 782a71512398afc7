"""Files as what a batch takes in: cut into splits, shared out to tasks, read where the workers are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from selectroute.selector.explain.sentences import counted
from selectroute.spark.inputs.source import Outcome, ReplayableInput
from selectroute.spark.job.job import CommitError
from selectroute.spark.sinks.counts import Counts
from selectroute.spark.sinks.schemas import as_written
from selectroute.spark.sources.files.splits import OUTSIDE, Split, plan, source_name
from selectroute.spark.sources.files.stream import SourceError, SourceNotFoundError, batch_files, stream_files
from selectroute.spark.worker.task import TaskSettings

Runner: TypeAlias = Callable[[list[list[Split]], TaskSettings], list[dict[str, Any]]]
"""Runs the tasks of a batch, wherever, and returns their reports."""


class FileSource:
    """Source of the files that arrive in a folder; see `Source`.

    Args:
        folder: the folder.
        file_format: ``parquet``, ``json`` or ``auto``.
        max_files: the most files of a batch.
        run: runs tasks.
        tasks: how many tasks a batch is shared out to at most.
        spark: for `stream`.
    """

    def __init__(
        self,
        folder: Path,
        file_format: str,
        max_files: int,
        run: Runner,
        tasks: int,
        spark: SparkSession | None = None,
    ) -> None:
        self._folder = folder
        self._format = file_format
        self._max_files = max_files
        self._run = run
        self._tasks = tasks
        self._spark = spark

    @property
    def limit(self) -> int:
        """Limit of the files of a batch."""
        return self._max_files

    def connect(self) -> None:
        """Make sure that the folder is there."""
        check_folder(self._folder)

    def stream(self) -> DataFrame:
        """Return the stream of the files' names."""
        assert self._spark is not None, "a stream needs Spark"
        return stream_files(self._spark, self._folder, self._max_files)

    def planned(self, checkpoint: Path, batch: int) -> list[Path]:
        """Return the files of a batch, as Spark's list has them."""
        return batch_files(checkpoint, batch)

    def is_full(self, inputs: Sequence[Path]) -> bool:
        """Return whether there may be more files than these."""
        return len(inputs) >= self.limit

    def batch_input(self, inputs: Sequence[Path], frame: DataFrame | None = None) -> FileBatchInput:
        """Return these files as the input of a batch."""
        return FileBatchInput(inputs, self._folder, self._format, self._run, self._tasks)

    def reread(self, commits: Iterable[Mapping[str, Any]], checkpoint: Path) -> list[ReplayableInput]:
        """Return the files of each batch that are still what they were."""
        return [self._again(commit, checkpoint) for commit in commits]

    def _again(self, commit: Mapping[str, Any], checkpoint: Path) -> ReplayableInput:
        batch, inputs = commit["batch"], commit["inputs"]
        if "sizes" not in inputs:
            return self._again_of_old(batch, inputs["sha256"], checkpoint)
        paths = {name: self._folder / name for name in inputs["sizes"]}
        same = {
            name
            for name, size in inputs["sizes"].items()
            if size is not None and file_size(paths[name]) == size
        }
        gone = tuple(name for name in paths if name not in same)
        return ReplayableInput(batch, tuple(paths[name] for name in paths if name in same), gone)

    def narrow(self, inputs: Sequence[Path], letters: pa.Table) -> tuple[list[Path], npt.NDArray[np.bool_]]:
        """Return the files in which these letters are."""
        names = {as_written(source_name(path, self._folder)): path for path in inputs}
        mask: npt.NDArray[np.bool_] = pc.is_in(
            letters["source"], pa.array(list(names), pa.string())
        ).to_numpy()
        wanted = set(letters["source"].filter(pa.array(mask)).unique().to_pylist())
        return [path for name, path in names.items() if name in wanted], mask

    def weight(self, letters: pa.Table) -> int:
        """Return the number of files."""
        return len(letters["source"].unique())

    def _again_of_old(self, batch: int, digest: str, checkpoint: Path) -> ReplayableInput:
        """Return the files of a batch that an earlier release committed: Spark knows those of its newest
        batches.
        """
        try:
            paths = batch_files(checkpoint, batch)
        except SourceError as error:
            return ReplayableInput(batch, (), unknown=str(error))
        names = [source_name(path, self._folder) for path in paths]
        if inputs_digest(names) != digest:
            return ReplayableInput(batch, (), unknown=f"the checkpoint {checkpoint} names others")
        gone = tuple(name for name, path in zip(names, paths, strict=True) if not path.is_file())
        return ReplayableInput(batch, tuple(path for path in paths if path.is_file()), gone)


class FileBatchInput:
    """Files of one batch; see `BatchInput`."""

    def __init__(
        self, paths: Sequence[Path], folder: Path, file_format: str, run: Runner, tasks: int
    ) -> None:
        self._paths = paths
        self._folder = folder
        self._format = file_format
        self._run = run
        self._tasks = tasks

    def record(self) -> dict[str, Any]:
        """Return their number, the digest of their names, and the size of each, to read them again by."""
        sizes = {source_name(path, self._folder): file_size(path) for path in self._paths}
        return {"count": len(sizes), "sha256": inputs_digest(sizes), "sizes": sizes}

    def route(self, batch: int, settings: TaskSettings) -> Outcome:
        """Run the tasks."""
        tasks = plan(self._paths, self._folder, self._format, self._tasks)
        reports = sorted(self._run(tasks, settings), key=lambda report: int(report["task"])) if tasks else []
        if [report["task"] for report in reports] != list(range(len(tasks))):
            raise CommitError(f"batch {batch} had {len(tasks)} tasks and {len(reports)} reports")
        counts = Counts()
        written: list[dict[str, Any]] = []
        unlike: dict[str, tuple[str, bool]] = {}
        said: dict[str, str] = {}
        for report, splits in zip(reports, tasks, strict=True):
            counts.add(Counts(**report["counts"]))
            written += report["files"]
            _check_rows(batch, splits, report["rows"])
            unlike |= {name: tuple(one) for name, one in report["unlike"].items()}
            said |= report["missing"]
        links = [split.source for splits in tasks for split in splits if split.reason == OUTSIDE]
        if links:
            said[OUTSIDE] = (
                f"{self._folder} has a symbolic link that leads out of it: such a link is not read and is a "
                f"dead letter ({links[0]})"
            )
        return Outcome(counts, written, {}, unlike=unlike, warnings=said)


def check_folder(folder: Path) -> None:
    """Make sure that an input folder is there. Raises SourceNotFoundError."""
    if not folder.is_dir():
        raise SourceNotFoundError(f"the input folder {folder} does not exist")


def _check_rows(batch: int, splits: list[Split], rows: list[int]) -> None:
    """Hold what was read against what the footers promised: no row is lost between plan and worker."""
    for split, came in zip(splits, rows, strict=True):
        if split.rows not in (-1, came):
            raise CommitError(
                f"batch {batch}: {split.source} has {counted(split.rows, 'row')} to read, and {came} came: "
                "the file changed meanwhile; files must not change once they are in the input folder"
            )


def file_size(path: Path) -> int | None:
    """Return the bytes of a file, None if it is gone or can't be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def inputs_digest(sources: Iterable[str]) -> str:
    """Return the SHA-256 of the names of a batch's files: a batch that comes again must bring the same
    ones."""
    return hashlib.sha256("\0".join(sorted(sources)).encode("utf-8", "surrogateescape")).hexdigest()
