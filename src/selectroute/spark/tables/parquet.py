"""Outcomes as folders of Parquet files: ``<sink>/batch=<n>/part-….parquet``.

Workers write to the staging folder of the batch; the driver moves the reported files to ``publish/`` there,
and after the commit renames the folder of each sink into place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from selectroute.durable import disk
from selectroute.selector.sentences import counted
from selectroute.spark.job import CommitError, JobError
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.tables.schemas import DEAD_LETTERS, SCHEMAS, SINKS
from selectroute.spark.tables.tables import Files, FilesChecked
from selectroute.storage import Location

_FEW, _MANY = 4_096, 1 << 17
"""Rows read at a time: of dead letters, which may have large original bytes, and of the others."""


class ParquetTables:
    """Folders of one output folder; see `OutcomeTables`."""

    def __init__(self, output: Location) -> None:
        self._output = output.path

    def check(self) -> None:
        """Do nothing: the record of the job says whose the folders are."""

    def prepare(self) -> list[str]:
        """Create the folders."""
        for sink in SINKS:
            disk.make_folder(self._output / sink)
        return []

    def unpublished(self, batches: Sequence[int], side_batches: Sequence[int]) -> list[int]:
        """Return nothing: batches that are not published have a staging folder."""
        return []

    def files_of(self, batch: int, staging: Location) -> OutputFiles:
        """Return the folder ``attempts`` of the staging folder."""
        return OutputFiles.staged(str(staging / "attempts"))

    def collect(self, batch: int, staging: Location, files: Files) -> list[dict[str, Any]]:
        """Move the reported files to the folders that will be renamed. Others are removed with the staging
        folder.
        """
        collected: list[dict[str, Any]] = []
        numbers: Counter[str] = Counter()
        for file in files:
            sink = file["sink"]
            folder = _staged(staging, sink, batch)
            disk.make_folder(folder)
            name = f"part-{numbers[sink]:05d}-{staging.name[-8:]}.parquet"
            numbers[sink] += 1
            work = staging.path / "attempts" / file["path"]
            check_size(Location.of(work), file["size"])
            disk.move(work, folder / name)
            collected.append(in_commit(file, f"{sink}/batch={batch}/{name}"))
        for sink in numbers:
            disk.sync_folder(_staged(staging, sink, batch))
        return collected

    def publish(self, commit: Mapping[str, Any], staging: Location) -> None:
        """Rename the folders of a committed batch into place."""
        batch = commit["batch"]
        for sink in SINKS:
            staged = _staged(staging, sink, batch)
            target = self._output / sink / f"batch={batch}"
            if staged.is_dir():
                if target.exists():
                    raise CommitError(f"{target} exists, but was not written by this job: move it away")
                disk.rename(staged, target)

    def remove_strays(self) -> None:
        """Do nothing: they are in the staging folders."""

    def maintain(self, should_stop: Callable[[], bool], is_busy: Callable[[], bool] = lambda: False) -> None:
        """Do nothing: folders need no care."""

    def batches(self, sink: str) -> set[int]:
        """Return the batches with a folder, committed or not."""
        batches = set()
        for folder in (self._output / sink).glob("batch=*"):
            if (number := _batch_of(folder)) is not None:
                batches.add(number)
        return batches

    def rows(
        self, sink: str, batch: int, columns: Sequence[str] | None = None, files: Files | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of a batch, or of all files in its folder."""
        if files is None:
            paths = sorted((self._output / sink / f"batch={batch}").glob("*.parquet"))
            files = [{"path": path.relative_to(self._output).as_posix()} for path in paths]
        yield from filter(None, self.scan(sink, columns or SCHEMAS[sink].names, files))

    def scan(self, sink: str, columns: Sequence[str], files: Files) -> Iterator[pa.RecordBatch | None]:
        """Yield the rows of these files; None for one that was moved away."""
        for file in files_of_sink(files, sink):
            yield from read_file(Location.of(self._output / file["path"]), sink, columns)

    def lost(self, batch: int, files: Files) -> list[str]:
        """Return the paths of the files that were moved away."""
        return [file["path"] for file in files if not (self._output / file["path"]).is_file()]

    def checker(self, digests: bool) -> ParquetChecker:
        """Return a check of the published files."""
        return ParquetChecker(self._output, digests)


class ParquetChecker:
    """Check of published folders; see `Checker`."""

    def __init__(self, output: Path, digests: bool) -> None:
        self._output = output
        self._digests = digests
        self._named: set[str] = set()
        self._batches: set[int] = set()

    def check(self, batch: int, files: Sequence[Mapping[str, Any]], is_pending: bool) -> FilesChecked:
        """Compare the published files of a batch with its commit."""
        self._batches.add(batch)
        self._named |= {file["path"] for file in files}
        checked = FilesChecked()
        folders = sorted({file["path"].rsplit("/", 1)[0] for file in files})
        absent = {folder for folder in folders if not (self._output / folder).is_dir()}
        if not is_pending:
            checked.absent += sorted(absent)
        for file in files:
            if file["path"].rsplit("/", 1)[0] not in absent:
                check_file(Location.of(self._output / file["path"]), file, self._digests, checked)
        return checked

    def strays(self, is_committed: Callable[[int | None], bool]) -> Iterator[tuple[int | None, str]]:
        """Yield published files that no commit names."""
        for sink in SINKS:
            for path in sorted((self._output / sink).glob("batch=*/*.parquet")):
                batch = _batch_of(path.parent)
                if batch not in self._batches and is_committed(batch):
                    continue  # committed during the check
                name = path.relative_to(self._output).as_posix()
                if name not in self._named:
                    yield batch, f"{name} is in no commit"


def files_of_sink(files: Files, sink: str) -> list[Mapping[str, Any]]:
    """Return the files of a commit that are of one sink."""
    return [file for file in files if file["path"].startswith(f"{sink}/")]


def in_commit(file: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a reported file in the format of a commit, with its path below the output folder."""
    return {"path": path} | {key: file[key] for key in ("rows", "size", "sha256")}


def read_file(
    path: Location, sink: str, columns: Sequence[str], batch: int | None = None
) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows of a file of a sink, some thousands at a time; None for a file that does not exist. With
    ``batch`` only its rows, by the column of this name.

    Raises:
        JobError: the file can't be read.
    """
    try:
        # Opened as a file: from a path, Arrow would make a column of the folder's name.
        file = ds.ParquetFileFormat().make_fragment(path.opened_by_arrow())
        wanted = None if batch is None else ds.field("batch") == batch
        most = _FEW if sink == DEAD_LETTERS else _MANY
        rows = file.to_batches(
            columns=list(columns), filter=wanted, batch_size=most, batch_readahead=1, use_threads=False
        )
        yield from filter(len, rows)
    except FileNotFoundError:
        yield None
    except (pa.ArrowException, OSError) as error:
        raise JobError(f"{path} can't be read: {error}") from error


def check_size(path: Location, size: int) -> None:
    """Check a file that a task wrote. Raises CommitError, OSError."""
    entry = path.entry()
    if entry is None:
        raise FileNotFoundError(2, "no such file", str(path))
    if entry.size != size:
        raise CommitError(f"{path} has {entry.size} bytes, but its task reported {size}")


def check_file(path: Location, file: Mapping[str, Any], digests: bool, checked: FilesChecked) -> None:
    """Compare a file with its commit; note what was found."""
    name = file["path"]
    entry = path.entry()
    if entry is None:
        checked.problems.append(f"{name} is gone")
        return
    size = entry.size
    if size != file["size"]:
        checked.problems.append(
            f"{name} has {counted(size, 'byte')}, and had {file['size']:,} when it was written"
        )
    elif digests and _sha256(path) != file["sha256"]:
        checked.problems.append(f"{name} was changed: its SHA-256 is not that of its commit")
    elif (rows := _rows(path)) != file["rows"]:
        now = "cannot be read" if rows is None else f"has {counted(rows, 'row')}"
        checked.problems.append(f"{name} {now}, and had {file['rows']:,} when it was written")
    else:
        checked.files += 1
        checked.bytes += size


def _staged(staging: Location, sink: str, batch: int) -> Path:
    """Return the folder of a sink that will be renamed."""
    return staging.path / "publish" / sink / f"batch={batch}"


def _batch_of(folder: Path) -> int | None:
    text = folder.name.removeprefix("batch=")
    return int(text) if text.removeprefix("-").isdecimal() else None


def _sha256(path: Location) -> str:
    with path.open() as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # has readinto


def _rows(path: Location) -> int | None:
    try:
        with path.opened_by_arrow() as file:
            rows: int = pq.read_metadata(file).num_rows
    except (pa.ArrowException, OSError):
        return None
    return rows
