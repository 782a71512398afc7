"""Files as the input of a batch: planned, cut into splits, distributed to tasks, read by the workers.

A committed batch names the files that it read, so that they can be read again while they are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from selectroute.index.snapshot import Snapshot
from selectroute.match.columns.batch import leaves
from selectroute.match.columns.missing import MissingColumnError, missing_columns, unlike_constants
from selectroute.selector.message import Message
from selectroute.selector.sentences import counted
from selectroute.spark.columns.binding import Binding
from selectroute.spark.columns.column_types import ReadTypes
from selectroute.spark.job import Commit, CommitError, Job
from selectroute.spark.messages import DeadLetterBatch, MessageBatch, SourcePartition
from selectroute.spark.session import Runner, Work
from selectroute.spark.sources.checkpoint import SourceNotFoundError
from selectroute.spark.sources.files.lister import NAME, FileLister, PlannedFile, planned_files
from selectroute.spark.sources.files.reader import Bound, BoundColumn, not_cast, read
from selectroute.spark.sources.files.splits import OUTSIDE, Split, opened_by_arrow, plan_in
from selectroute.spark.sources.planner import planned_stream
from selectroute.spark.sources.source import Mask, Outcome, ReplayableInput, TaskAttempts
from selectroute.spark.tables.schemas import as_written
from selectroute.spark.task.task import InputPart, TaskSettings, run
from selectroute.storage import Location, StorageError
from selectroute.storage.location import Where
from selectroute.storage.protocol import Entry

_CLOCK_SECONDS: Final = 2.0
"""Maximum difference between the clocks of a file server and of the driver."""


class ReadFile(NamedTuple):
    """Input file as a batch has read it.

    ``source`` is its path below the input folder; ``size`` is in bytes; ``modified`` is when it was last
    changed, and ``read_by`` the time by which it had been read, both in seconds since 1970. ``size`` and
    ``modified`` are None where the commit has none.
    """

    batch: int
    source: str
    size: int | None
    modified: float | None
    read_by: float

    def change(self, entry: Entry) -> str | None:
        """Return the change since, as a clause; None if the file is the same."""
        if self.size is not None and entry.size != self.size:
            return f"it has {counted(entry.size, 'byte')}, and had {self.size:,}"
        if self.modified is None:
            return "it was written later" if entry.modified > self.read_by else None
        if self._has_time_of(entry):
            return None
        return f"it was {'written later' if entry.modified > self.modified else 'replaced by an older file'}"

    def is_same(self, entry: Entry | None) -> bool:
        """Return whether the file can be read again as it was; never without a size.

        Where the commit has no time of change, the size decides: in remote storage, where a restored file
        gets another time.
        """
        if entry is None or self.size is None:
            return False
        return entry.size == self.size and (self.modified is None or self._has_time_of(entry))

    def _has_time_of(self, entry: Entry) -> bool:
        # Archives keep whole seconds.
        return self.modified is not None and entry.modified in (self.modified, float(int(self.modified)))


def read_files(commit: Commit) -> list[ReadFile]:
    """Return the files that a batch has read; none for records of Kafka, and rows."""
    inputs = commit.get("inputs", {})
    sizes = inputs.get("sizes", {})
    if not sizes:
        return []
    read_by = datetime.fromisoformat(commit["committed"]).timestamp() + _CLOCK_SECONDS
    times = inputs.get("modified", {})
    return [ReadFile(commit["batch"], name, size, times.get(name), read_by) for name, size in sizes.items()]


_SAMPLED_BYTES: Final = 1 << 20
"""Bytes of a longer message, which is left out of a sample."""

_THREADS: Final = 16
_AHEAD_BYTES: Final = 1 << 20
"""Bytes of a batch that the driver reads: Spark sends them to every task."""

_MERGED_AFTER: Final = 100
"""Commits after which a start merges the names of their inputs into one file."""


class FileSource:
    """Source of the files that arrive in a folder, mounted or in remote storage; see `Source`.

    A planner lists the folder (see ``lister``); the offset of a batch has the names and sizes of its files.
    The commits have the files that were read; a start merges their names into one file,
    ``_inputs/<batch>.json``, from which the planner goes on.

    Args:
        job: the job, whose input is the folder.
        run: runs tasks.
        tasks: maximum number of tasks of a batch.
        spark: for `stream`.
    """

    def __init__(self, job: Job, run: Runner, tasks: int, spark: SparkSession | None = None) -> None:
        assert isinstance(job.input, Location), "files are in a folder"
        self.bound = bound_by(job.binding)
        self.folder = job.input
        self.limit = job.max_files
        self.run = run
        self.tasks = tasks
        self._job = job
        self._spark = spark

    def connect(self) -> None:
        """Check that the folder exists, or can be listed."""
        check_folder(self.folder)

    def stream(self, checkpoint: Path) -> DataFrame:
        """Return the stream that plans the batches."""
        assert self._spark is not None, "a stream needs Spark"
        planner = partial(FileLister, str(self.folder), self.limit, tuple(read_before(self._job.output)))
        return planned_stream(self._spark, NAME, planner)

    def planned(self, checkpoint: Path, batch: int, frame: DataFrame | None = None) -> list[PlannedFile]:
        """Return the files of a batch from Spark's offset log."""
        return planned_files(checkpoint, batch)

    def batch_input(self, inputs: Sequence[PlannedFile], again: bool = False) -> FileBatchInput:
        """Return these files as the input of a batch."""
        return FileBatchInput(inputs, self, self.tasks)

    def reread(self, commits: Iterable[Commit]) -> list[ReplayableInput]:
        """Return the unchanged files of each batch, and the names of the others."""
        return [self._reread(commit) for commit in commits]

    def _reread(self, commit: Commit) -> ReplayableInput:
        files = read_files(commit)
        entries = self._entries(file.source for file in files)
        checked = [(file, file.is_same(entry)) for file, entry in zip(files, entries, strict=True)]
        same = [PlannedFile(file.source, file.size or 0) for file, is_same in checked if is_same]
        gone = [file.source for file, is_same in checked if not is_same]
        return ReplayableInput(commit["batch"], tuple(same), tuple(gone))

    def narrow(self, inputs: Sequence[PlannedFile], letters: pa.Table) -> tuple[list[PlannedFile], Mask]:
        """Return the files of these letters, and which letters are in them."""
        names = {as_written(file.name): file for file in inputs}
        mask: Mask = pc.is_in(letters["source"], pa.array(list(names), pa.string())).to_numpy()
        wanted = set(letters["source"].filter(pa.array(mask)).unique().to_pylist())
        return [file for name, file in names.items() if name in wanted], mask

    def weight(self, letters: pa.Table) -> int:
        """Return the number of files of these letters."""
        return len(letters["source"].unique())

    def sample(self, inputs: Sequence[PlannedFile], count: int) -> list[Message]:
        """Return messages of the last file, evenly spread over its first block."""
        splits = (split for task in self.cut(inputs[-1:], 1) for split in task)
        for part in (part for split in splits for part in read(split, (), _SAMPLED_BYTES, True, self.bound)):
            if isinstance(part, MessageBatch) and part.count and part.full is not None:
                rows = np.unique(np.linspace(0, part.count - 1, count).astype(np.int64))
                return [message for message in part.full.messages(rows) if isinstance(message, Message)]
        return []

    def noted(self, file: PlannedFile) -> tuple[int | None, float | None]:
        """Return the size of a file in bytes and when it was last changed, in seconds since 1970, for the
        commit; None for what is not known. In remote storage it is the size with which the file was planned,
        and no time: a restored file has another one.
        """
        if not self.folder.is_local:
            return file.size, None
        entry = _entry(self.folder / file.name)
        return (None, None) if entry is None else (entry.size, entry.modified)

    def cut(self, inputs: Sequence[PlannedFile], tasks: int) -> list[list[Split]]:
        """Return the splits of files for this number of tasks. In remote storage each file is one."""
        files = ((self.folder / file.name, file.size) for file in inputs)
        return plan_in(self.folder, files, self._job.file_format, tasks)

    def is_unchanged(self, inputs: Sequence[PlannedFile]) -> bool:
        """Return whether files of which the splits are the same are the same: those of this machine, whose
        splits are made by what is in them, and remote ones of the sizes with which they were planned.
        """
        if self.folder.is_local:
            return True
        entries = self._entries(file.name for file in inputs)
        return [entry and entry.size for entry in entries] == [entry.size for entry in inputs]

    def read_ahead(self, inputs: Sequence[PlannedFile]) -> dict[str, bytes]:
        """Return the contents of a small batch's remote files, read side by side: they travel with its tasks.
        What can't be read is left to the tasks, which say so. A file of this machine may be a link to what is
        no file, and is read as fast there.
        """
        is_small = len(inputs) <= _THREADS and sum(file.size for file in inputs) <= _AHEAD_BYTES
        if self.folder.is_local or not is_small:
            return {}
        contents: dict[str, bytes] = {}

        def read(planned: PlannedFile) -> None:
            file = self.folder / planned.name
            with suppress(OSError):
                contents[str(file)] = file.read()

        with ThreadPoolExecutor(_THREADS) as threads:
            [*threads.map(read, inputs)]
        return contents

    def _entries(self, names: Iterable[str]) -> list[Entry | None]:
        """Return the present entry of each file; None if it is gone."""
        with ThreadPoolExecutor(_THREADS) as threads:
            return [*threads.map(_entry, (self.folder / name for name in names))]


class FileBatchInput:
    """Files of one batch; see `BatchInput`."""

    remedy = "restore the files as they were"

    def __init__(
        self,
        files: Sequence[PlannedFile],
        source: FileSource,
        tasks: int,
        contents: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._files = files
        self._source = source
        self._tasks = tasks
        self._contents = contents

    def record(self) -> dict[str, Any]:
        """Return the number of files and the digest of their names, and for `reread` the size of each and
        when it was last changed.
        """
        source = self._source
        noted = {file.name: source.noted(file) for file in self._files}
        sizes = {name: size for name, (size, _) in noted.items()}
        times = {name: modified for name, (_, modified) in noted.items() if modified is not None}
        record = {"count": len(sizes), "sha256": inputs_digest(sizes), "sizes": sizes}
        return record | {"modified": times} if times else record

    def plan(self, tasks: int) -> dict[str, Any]:
        """Return the number of tasks, and the digest of their splits."""
        splits = repr(self._source.cut(self._files, tasks))
        digest = hashlib.sha256(splits.encode("utf-8", "surrogateescape")).hexdigest()
        return {"tasks": tasks, "sha256": digest}

    def follows(self, plan: Mapping[str, Any]) -> bool:
        """Return whether the files are still cut as in this plan."""
        same = self.plan(plan["tasks"])["sha256"] == plan["sha256"]
        return bool(same and self._source.is_unchanged(self._files))

    def by(self, plan: Mapping[str, Any]) -> FileBatchInput:
        """Return the input in the tasks of this plan, with what can be read ahead."""
        contents = self._source.read_ahead(self._files)
        return FileBatchInput(self._files, self._source, plan["tasks"], contents)

    def _splits(self) -> list[list[Split]]:
        tasks = self._source.cut(self._files, self._tasks)
        if not self._contents:
            return tasks
        return [[replace(split, content=self._contents.get(split.path)) for split in task] for task in tasks]

    def route(self, batch: int, settings: TaskSettings, attempts: TaskAttempts) -> Outcome:
        """Route the files, in tasks. Raises `CommitError`."""
        source, tasks = self._source, self._splits()

        def work_of(settings: TaskSettings) -> Work:
            return partial(route_splits, tasks, source.bound, settings)

        reports = attempts.complete(source.run, work_of, settings, len(tasks))
        unlike: dict[str, tuple[str, bool]] = {}
        warnings: dict[str, str] = {}
        for report, splits in zip(reports, tasks, strict=True):
            _check_rows(batch, splits, report["rows"])
            unlike |= {name: tuple(problem) for name, problem in report["unlike"].items()}
            warnings |= report["warnings"]
        links = [split.source for splits in tasks for split in splits if split.reason == OUTSIDE]
        if links:
            warnings[OUTSIDE] = (
                f"{source.folder} has a symbolic link that leads out of it: such a link is not read and is a "
                f"dead letter ({links[0]})"
            )
        return Outcome.of(reports, unlike=unlike, warnings=warnings)


def bound_by(binding: Binding) -> Bound:
    """Return the columns of Parquet files that a binding names."""
    names = binding.columns
    return {name: BoundColumn(binding.column(name), binding.cast(name)) for name in names}


def _entry(file: Location) -> Entry | None:
    """Return the entry of a file; None if there is none, or none that can be read."""
    try:
        return file.entry()
    except StorageError:
        raise
    except OSError:
        return None


def read_before(output: Location) -> list[str]:
    """Return the names of all files that committed batches have read."""
    merged = output / "_inputs"
    newest = max(_numbered(merged), default=-1)
    names: list[str] = []
    if newest >= 0:
        names = json.loads((merged / f"{newest}.json").read())
    commits = {batch: file for batch, file in _numbered(output / "_commits").items() if batch > newest}
    with ThreadPoolExecutor(_THREADS) as threads:
        for content in threads.map(lambda file: file.read_json() or {}, commits.values()):
            names += content.get("inputs", {}).get("sizes", {})
    if len(commits) > _MERGED_AFTER:
        merged.make_folder()
        (merged / f"{max(commits)}.json").put(json.dumps(names).encode())
        if newest >= 0:
            (merged / f"{newest}.json").delete()
    return names


def _numbered(folder: Location) -> dict[int, Location]:
    return {int(file.stem): file for file in folder.files() if file.stem.isdigit()}


def check_folder(folder: Where) -> None:
    """Check that an input folder exists; one in remote storage may be empty. Raises SourceNotFoundError."""
    where = Location.of(folder)
    if where.is_missing():
        raise SourceNotFoundError(f"the input folder {folder} does not exist")
    next(iter(where.entries()), None)  # raises if it can't be read, or the bucket is not there


def _check_rows(batch: int, splits: list[Split], rows: list[int]) -> None:
    """Compare the rows read with those in the footers: no row is lost between plan and worker."""
    for split, count in zip(splits, rows, strict=True):
        if split.rows not in (-1, count):
            raise CommitError(
                f"batch {batch}: {split.source} had {counted(split.rows, 'row')} when planned and {count} "
                "when read: the file was changed; files must not change once they are in the input folder"
            )


def inputs_digest(sources: Iterable[str]) -> str:
    """Return the SHA-256 of the names of a batch's files, which a repeat of the batch must have, too."""
    return hashlib.sha256("\0".join(sorted(sources)).encode("utf-8", "surrogateescape")).hexdigest()


def route_splits(
    tasks: Sequence[Sequence[Split]], bound: Bound, settings: TaskSettings, task: int
) -> dict[str, Any]:
    """Route the splits of files of the task of this number; return the report of `run` and `SplitReader`."""
    return run(partial(SplitReader, tasks[task], bound), settings, task)


class SplitReader:
    """Reader of splits of files. Reports the ``rows`` of each split, the findings of `ReadTypes.unlike`, and
    ``warnings`` of columns that are missing or compared with constants of another type. ``bound`` has the
    columns of identifiers in Parquet.
    """

    def __init__(
        self, splits: Sequence[Split], bound: Bound, snapshot: Snapshot, settings: TaskSettings, full: bool
    ) -> None:
        self._splits = splits
        self._bound = bound
        self._snapshot = snapshot
        self._names = settings.names(snapshot)
        self._max_message_bytes = settings.max_message_bytes
        self._full = full
        self._types = ReadTypes(snapshot)
        self._rows: list[int] = []
        self._unlike: dict[str, tuple[str, bool]] = {}
        self._warnings: dict[str, str] = {}

    def parts(self) -> Iterator[InputPart]:
        """Yield the rows of the splits."""
        for number, split in enumerate(self._splits):
            rows, place, checked = 0, SourcePartition(split.source), False
            for part in read(split, self._names, self._max_message_bytes, self._full, self._bound):
                rows += part.count
                if not checked and split.kind == "parquet" and not isinstance(part, DeadLetterBatch):
                    checked = True  # the columns are the same in the whole file
                    origins = {name: source.column for name, source in self._bound.items()}
                    self._unlike |= self._types.unlike(part.columns, self._snapshot.reads, origins)
                    self._look_for_casts(split)
                    self._look_for_missing(split, part.columns)
                    types = dict(zip(part.columns.schema.names, part.columns.schema.types, strict=True))
                    unlike = unlike_constants(self._snapshot.segments, types)
                    self._warnings |= {sentence: sentence for sentence in unlike}
                yield InputPart(number, place, part)
            self._rows.append(rows)

    def report(self) -> dict[str, Any]:
        """Return the rows of each split, and the warnings about columns."""
        return {"rows": self._rows, "unlike": self._unlike, "warnings": self._warnings}

    def _look_for_casts(self, split: Split) -> None:
        """Record the columns whose casts a Parquet file does not allow."""
        if any(source.cast is not None for source in self._bound.values()):
            with suppress(pa.ArrowException, OSError):  # the file is gone by now
                sentences = not_cast(_schema_of(split), self._bound)
                reads = self._snapshot.reads
                self._unlike |= {name: (text, False) for name, text in sentences.items() if name in reads}

    def _look_for_missing(self, split: Split, columns: pa.RecordBatch) -> None:
        """Record the columns that selectors read and a Parquet file lacks, one warning per set of columns."""
        existing = {name for name, _ in leaves(columns.schema)}.union(columns.schema.names)
        missing = missing_columns(self._snapshot.reads, existing)
        key = ", ".join(["missing", *missing])
        if missing and key not in self._warnings:
            with suppress(pa.ArrowException, OSError):  # the file is gone by now
                present = [name for name, _ in leaves(_schema_of(split))]
                self._warnings[key] = str(MissingColumnError(missing, present, split.source))


def _schema_of(split: Split) -> pa.Schema:
    with opened_by_arrow(split) as file:
        return pq.read_schema(file)
