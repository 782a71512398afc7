"""Outcomes as folders of Parquet files: ``<sink>/batch=<n>/part-….parquet``.

Workers write to the staging folder of the batch; the driver moves the reported files to ``publish/`` there,
and after the commit renames the folder of each sink into place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.durable import disk
from selectroute.selector.explain.sentences import counted
from selectroute.spark.job.job import CommitError, JobError
from selectroute.spark.sinks.output_files import OutputFiles
from selectroute.spark.sinks.schemas import DEAD_LETTERS, SINKS
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
        folders: dict[str, Path] = {}
        for file in files:
            sink = file["sink"]
            folder = staging.path / "publish" / sink / f"batch={batch}"
            folders[sink] = folder
            disk.make_folder(folder)
            name = f"part-{numbers[sink]:05d}-{staging.name[-8:]}.parquet"
            numbers[sink] += 1
            work = staging.path / "attempts" / file["path"]
            check_size(Location.of(work), file["size"])
            disk.move(work, folder / name)
            path = f"{sink}/batch={batch}/{name}"
            of_file = {key: file[key] for key in ("rows", "size", "sha256")}
            collected.append({"path": path} | of_file)
        for folder in folders.values():
            disk.sync_folder(folder)
        return collected

    def publish(self, commit: Mapping[str, Any], staging: Location) -> None:
        """Rename the folders of a committed batch into place."""
        batch = commit["batch"]
        for sink in SINKS:
            staged = staging.path / "publish" / sink / f"batch={batch}"
            target = self._output / sink / f"batch={batch}"
            if staged.is_dir():
                if target.exists():
                    raise CommitError(f"{target} exists, but was not written by this job: move it away")
                disk.rename(staged, target)

    def remove_strays(self, named: Collection[str]) -> None:
        """Do nothing: they are in the staging folders."""

    def maintain(self, should_stop: Callable[[], bool], is_busy: Callable[[], bool] = lambda: False) -> None:
        """Do nothing: folders need no care."""

    def batches(self, sink: str) -> set[int]:
        """Return the batches with a folder, committed or not."""
        found = set()
        for folder in (self._output / sink).glob("batch=*"):
            if (number := _batch_of(folder)) is not None:
                found.add(number)
        return found

    def rows(
        self, sink: str, batch: int, columns: Sequence[str] | None = None, files: Files | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files of a batch, or of all files in its folder."""
        folder = self._output / sink / f"batch={batch}"
        paths = sorted(folder.glob("*.parquet")) if files is None else self._paths(sink, files)
        for path in paths:
            for rows in read_file(Location.of(path), columns, rows_at_once(sink)):
                if rows is not None:
                    yield rows

    def scan(self, sink: str, columns: Sequence[str], files: Files) -> Iterator[pa.RecordBatch | None]:
        """Yield the rows of these files; None for one that was moved away."""
        for path in self._paths(sink, files):
            yield from read_file(Location.of(path), columns, rows_at_once(sink))

    def lost(self, batch: int, files: Files) -> list[str]:
        """Return the paths of the files that were moved away."""
        return [file["path"] for file in files if not (self._output / file["path"]).is_file()]

    def checker(self, digests: bool) -> ParquetChecker:
        """Return a check of the published files."""
        return ParquetChecker(self._output, digests)

    def _paths(self, sink: str, files: Files) -> Iterable[Path]:
        return (self._output / file["path"] for file in files if file["path"].startswith(f"{sink}/"))


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


def opened_by_arrow(file: Location) -> Any:
    """Open a file for Arrow to read. Raises OSError."""
    return pa.OSFile(str(file), "rb") if file.is_local else pa.PythonFile(file.open(), "r")


def rows_at_once(sink: str) -> int:
    """Return the number of rows to read at a time."""
    return _FEW if sink == DEAD_LETTERS else _MANY


def read_file(
    path: Location, columns: Sequence[str] | None, most: int, batch: int | None = None
) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows of a file, at most so many at a time; None for a file that does not exist. With
    ``batch``, row groups without rows of it are skipped.

    Raises:
        JobError: the file can't be read.
    """
    try:
        # Opened as a file: from a path, Arrow would make a column of the folder's name.
        with opened_by_arrow(path) as file:
            opened = pq.ParquetFile(file)
            groups = None if batch is None else _groups_with(opened.metadata, batch)
            yield from opened.iter_batches(most, row_groups=groups, columns=columns)
    except FileNotFoundError:
        yield None
    except (pa.ArrowException, OSError) as error:
        raise JobError(f"{path} can't be read: {error}") from error


def _groups_with(metadata: pq.FileMetaData, batch: int) -> list[int]:
    """Return the row groups that may have rows of a batch, by the statistics of the column `batch`."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(index) for index in range(group.num_columns))
        known = [one.statistics for one in columns if one.path_in_schema == "batch" and one.is_stats_set]
        if not known or not known[0].has_min_max or known[0].min <= batch <= known[0].max:
            found.append(number)
    return found


def check_size(path: Location, size: int) -> None:
    """Check a file that a task wrote. Raises CommitError, OSError."""
    entry = path.entry()
    if entry is None:
        raise FileNotFoundError(2, "no such file", str(path))
    found = entry.size
    if found != size:
        raise CommitError(f"{path} has {found} bytes, but its task reported {size}")


def check_file(path: Location, file: Mapping[str, Any], digests: bool, checked: FilesChecked) -> None:
    """Compare a file with its commit; note what was found."""
    name = file["path"]
    entry = path.entry()
    if entry is None:
        checked.found.append(f"{name} is gone")
        return
    size = entry.size
    if size != file["size"]:
        checked.found.append(
            f"{name} has {counted(size, 'byte')}, and had {file['size']:,} when it was written"
        )
    elif digests and _sha256(path) != file["sha256"]:
        checked.found.append(f"{name} was changed: its SHA-256 is not that of its commit")
    elif (rows := _rows(path)) != file["rows"]:
        now = "cannot be read" if rows is None else f"has {counted(rows, 'row')}"
        checked.found.append(f"{name} {now}, and had {file['rows']:,} when it was written")
    else:
        checked.files += 1
        checked.bytes += size


def _batch_of(folder: Path) -> int | None:
    text = folder.name.removeprefix("batch=")
    return int(text) if text.removeprefix("-").isdecimal() else None


def _sha256(path: Location) -> str:
    with path.open() as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def _rows(path: Location) -> int | None:
    try:
        with opened_by_arrow(path) as file:
            rows: int = pq.read_metadata(file).num_rows
    except (pa.ArrowException, OSError):
        return None
    return rows
