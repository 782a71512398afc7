"""Outcomes as Delta tables, written with delta-rs, without a JVM.

::

    _commits/<n>.json                    the batch is done; it names the files of the batch
    <sink>/_delta_log/<version>.json     the table's own log: a transaction for each batch with rows in it
    <sink>/part-<batch>-<uuid>.parquet   written by a task, where it stays
    <sink>/merged-<level>-<uuid>.parquet small files of several batches, merged behind the stream

The number of the batch is a column, and no partition: files of different partitions cannot be merged, and a
table with a file for each second of a year is of no use.

The transaction of a batch follows its commit, with ``txn`` (id of the job, number of the batch); side batches
count in ``<id>-side``, since their numbers are negative. They are committed in order, and a batch in all
tables before the next one; so the batches that the tables may lack after a crash are those from the newest
known to any of them on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Transaction

from selectroute.selector.sentences import counted
from selectroute.spark.folder import identity
from selectroute.spark.job import COMPACT_EVERY, TABLE_RETENTION_HOURS, JobError
from selectroute.spark.tables.delta_table import LiveFile, OutcomeTable, batch_of
from selectroute.spark.tables.parquet import check_file, check_size, files_of_sink, in_commit, read_file
from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.spark.tables.schemas import SCHEMAS, SINKS
from selectroute.spark.tables.tables import Files, FilesChecked
from selectroute.storage import Location
from selectroute.storage.patient import waiting
from selectroute.storage.protocol import Entry


class DeltaTables:
    """Delta tables of one output folder; see `OutcomeTables`.

    Args:
        output: the folder.
        id: the id of the job; that in the folder unless given.
        compact_every: number of batches whose small files are merged; 0 for never.
        retention_hours: time for which merged files stay for readers of earlier versions.
    """

    def __init__(
        self,
        output: Location,
        id: str | None = None,
        *,
        compact_every: int = COMPACT_EVERY,
        retention_hours: int = TABLE_RETENTION_HOURS,
    ) -> None:
        self._output = output
        self._id = id
        self._every = compact_every
        self._retention_hours = retention_hours
        self._collected: int | None = None
        self._threads = ThreadPoolExecutor(len(SINKS), "selectroute-tables")
        self._tables = {sink: OutcomeTable(output / sink, sink) for sink in SINKS}

    def check(self) -> None:
        """Check that each table is this job's, or may be created."""
        record = (self._output / "_job.json").read_json() or {}
        may_create = not any(file.name.endswith(".json") for file in (self._output / "_commits").files())
        for table in self._tables.values():
            waiting(self._output, partial(table.check, self._id or record.get("id"), may_create))

    def prepare(self) -> list[str]:
        """Repair, create and open the tables."""
        self.check()
        id = self._id = self._id or identity(self._output)
        return [
            f"{path}, of a Delta table's log, was torn: it was removed, and its batch is published again"
            for table in self._tables.values()
            for path in waiting(self._output, partial(table.prepare, id, self._retention_hours))
        ]

    def unpublished(self, batches: Sequence[int], side_batches: Sequence[int]) -> list[int]:
        """Return the batches from the newest in any table on."""
        newest, side = self._newest(0), self._newest(-1)
        return [batch for batch in batches if batch >= newest] + [
            batch for batch in side_batches if -batch >= side
        ]

    def _newest(self, batch: int) -> int:
        """Return the newest version for the app id of such batches; -1 if there is none."""
        app = self._transaction(batch).app_id
        versions = (waiting(self._output, partial(table.version_of, app)) for table in self._tables.values())
        return max(versions, default=-1)

    def files_of(self, batch: int, staging: Location) -> OutputFiles:
        """Return the folders of the tables."""
        return OutputFiles({sink: str(self._output / sink) for sink in SINKS}, batch)

    def collect(self, batch: int, staging: Location, files: Files) -> list[dict[str, Any]]:
        """Flush the names of the files, which stay where they are."""
        self._collected = batch
        files = list(files)
        if self._output.is_local:  # elsewhere a file was there, whole, when its task reported it
            for file in files:
                check_size(self._output / file["sink"] / file["path"], file["size"])
        for sink in {file["sink"] for file in files}:
            (self._output / sink).sync()
        return [
            in_commit(file, f"{file['sink']}/{file['path']}") | {"offsets": file["offsets"]} for file in files
        ]

    def publish(self, commit: Mapping[str, Any], staging: Location) -> None:
        """Append the files of a batch to each table, in a transaction of each, side by side."""
        batch = commit["batch"]
        appends = []
        for sink, table in self._tables.items():
            names = files_of_sink(commit["files"], sink)
            files = [{**file, "path": file["path"].partition("/")[2]} for file in names]
            if files:
                is_checked = batch == self._collected
                append = partial(table.append, self._transaction(batch), files, commit, is_checked)
                appends.append(self._threads.submit(waiting, self._output, append))
        errors = [error for append in appends if (error := append.exception()) is not None]
        if errors:
            raise errors[0]

    def remove_strays(self) -> None:
        """Remove files of failed attempts from the folders of the tables."""
        for table in self._tables.values():
            waiting(self._output, table.remove_strays)

    def maintain(self, should_stop: Callable[[], bool], is_busy: Callable[[], bool] = lambda: False) -> None:
        """Merge small files, remove old ones, make checkpoints and cut the log, where it is due."""
        for table in self._tables.values():
            if self._every:
                table.compact(self._every, should_stop, is_busy)
            table.clean(self._retention_hours, should_stop, is_busy)

    def _transaction(self, batch: int) -> Transaction:
        """Return the app id and the version of a batch."""
        assert self._id is not None, "the tables are not prepared"
        return Transaction(self._id, batch) if batch >= 0 else Transaction(f"{self._id}-side", -batch)

    # ---- read

    def batches(self, sink: str) -> set[int]:
        """Return the batches with rows in a table."""
        batches: set[int] = set()
        for file in self.live(sink):
            batches |= {file.first} if file.first == file.last else set(self.counted(sink, file))
        return batches

    def rows(
        self, sink: str, batch: int, columns: Sequence[str] | None = None, files: Files | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch from the table as it is now, in whatever files they are."""
        for file in self.live(sink):
            if file.first <= batch <= file.last:
                yield from self._read(sink, file, columns or SCHEMAS[sink].names, batch)

    def scan(self, sink: str, columns: Sequence[str], files: Files) -> Iterator[pa.RecordBatch | None]:
        """Yield all rows of a table as it is now."""
        for file in self.live(sink):
            yield from self._read(sink, file, columns)

    def lost(self, batch: int, files: Files) -> list[str]:
        """Return the paths of the files of a batch whose table has fewer rows than they had."""
        lost: list[str] = []
        for sink in SINKS:
            of_sink = files_of_sink(files, sink)
            rows = sum(len(rows) for rows in self.rows(sink, batch, ["revision"])) if of_sink else 0
            if rows < sum(file["rows"] for file in of_sink):
                lost += [file["path"] for file in of_sink]
        return lost

    def checker(self, digests: bool) -> DeltaChecker:
        """Return a check of the tables as they are now."""
        return DeltaChecker(self, self._output, digests)

    def live(self, sink: str) -> list[LiveFile]:
        """Return the files of a table as it is now, those of earlier batches first; none if there is no table
        yet.
        """
        table = self._tables[sink]
        entries = table.entries()
        if not entries:
            return []
        return waiting(self._output, partial(_live, table.folder, sink, table.entry(entries[-1]).entry()))

    def _read(
        self, sink: str, file: LiveFile, columns: Sequence[str], batch: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        path = self._output / sink / file.path
        for rows in read_file(path, sink, columns, batch):
            if rows is None:
                raise JobError(f"{path} is gone, and the Delta table needs it: restore the file")
            yield rows

    def counted(self, sink: str, file: LiveFile) -> Counter[int]:
        """Count the rows of a file by batch."""
        rows_of: Counter[int] = Counter()
        for rows in self._read(sink, file, ["batch"]):
            for of_batch in pc.value_counts(rows.column(0)).to_pylist():
                rows_of[of_batch["values"]] += of_batch["counts"]
        return rows_of


@lru_cache(len(SINKS))
def _live(folder: Location, sink: str, newest: Entry | None) -> list[LiveFile]:
    """Return the files of a table with this newest log entry. Readers come once for each batch, and to open
    the table takes longer than to see that it is the same.
    """
    return sorted(OutcomeTable(folder, sink).live(), key=lambda file: (file.first, file.path))


class DeltaChecker:
    """Check of tables against commits; see `Checker`.

    The files of a batch are as its commit says, while they are in the table. Once some are merged, the rows
    of the batch in the table are counted instead: the digests of its commit are those of files that are gone.
    """

    def __init__(self, tables: DeltaTables, output: Location, digests: bool) -> None:
        self._output = output
        self._digests = digests
        self._batches: set[int] = set()
        self._named: set[str] = set()
        self._live: set[str] = set()
        self._merged: dict[str, Counter[int]] = {sink: Counter() for sink in SINKS}
        self._unreadable: list[str] = []
        for sink in SINKS:
            try:
                for file in tables.live(sink):
                    self._live.add(f"{sink}/{file.path}")
                    if batch_of(file.path) is None:
                        self._merged[sink] += tables.counted(sink, file)
            except JobError as error:
                self._unreadable.append(str(error))

    def check(self, batch: int, files: Sequence[Mapping[str, Any]], is_pending: bool) -> FilesChecked:
        """Compare the files of a batch in the tables, and its rows in merged files, with its commit."""
        self._batches.add(batch)
        self._named |= {file["path"] for file in files}
        checked = FilesChecked()
        for sink in SINKS:
            of_sink = files_of_sink(files, sink)
            live = [file for file in of_sink if file["path"] in self._live]
            for file in live:
                check_file(self._output / file["path"], file, self._digests, checked)
            rows = sum(file["rows"] for file in live) + self._merged[sink][batch]
            wanted = sum(file["rows"] for file in of_sink)
            if rows != wanted and not (is_pending and rows == 0):
                checked.problems.append(
                    f"the table {sink} has {counted(rows, 'row')} of it, and its files had {wanted:,}"
                )
        return checked

    def strays(self, is_committed: Callable[[int | None], bool]) -> Iterator[tuple[int | None, str]]:
        """Yield files and rows of the tables that no commit names, and tables that can't be read."""
        for sentence in self._unreadable:
            yield None, sentence
        for name in sorted(self._live - self._named):
            batch = batch_of(name.partition("/")[2])
            if batch is not None and not (batch not in self._batches and is_committed(batch)):
                yield batch, f"{name} is in the table, and in no commit"
        for sink, merged in self._merged.items():
            for batch in sorted(set(merged) - self._batches):
                if not is_committed(batch):
                    yield batch, f"the table {sink} has {counted(merged[batch], 'row')} of it, and no commit"
