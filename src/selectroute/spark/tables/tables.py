"""Outcomes of a job as tables, of whatever format: written batch by batch, and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from selectroute.spark.tables.parquet_file import OutputFiles
from selectroute.storage import Location

Files = Iterable[Mapping[str, Any]]
"""Files in the format of a commit: path below the output folder, rows, size, sha256."""


@dataclass(slots=True)
class FilesChecked:
    """Result of a check of a batch's files.

    Attributes:
        problems: sentences about what is not as the commit says.
        absent: published folders that were moved or removed by readers, which is allowed.
        files, bytes: number and size of the files that are as the commit says.
    """

    problems: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


class Checker(Protocol):
    """Check of all batches of a job against their commits."""

    def check(self, batch: int, files: Sequence[Mapping[str, Any]], is_pending: bool) -> FilesChecked:
        """Compare the files of a batch with its commit; ``is_pending`` if they may not be published yet."""

    def strays(self, is_committed: Callable[[int | None], bool]) -> Iterator[tuple[int | None, str]]:
        """Yield a batch, if it is known, and a sentence for what no checked commit names, but readers would
        count. Later batches are ignored.
        """


class OutcomeTables(Protocol):
    """Tables of the three sinks of a job.

    Writing: `check` and `prepare` once; then for each batch `files_of`, `collect`, and after its commit
    `publish`. `maintain` runs beside, in another thread. Reading needs none of these.
    """

    def check(self) -> None:
        """Check that the tables are this job's, and change nothing. Raises JobError, OtherJobError."""

    def prepare(self) -> list[str]:
        """Create, open or repair the tables; return a sentence for each repair. Raises as `check`."""

    def unpublished(self, batches: Sequence[int], side_batches: Sequence[int]) -> list[int]:
        """Return those of these committed batches that the tables may lack."""

    def files_of(self, batch: int, staging: Location) -> OutputFiles:
        """Return where the tasks of a batch write."""

    def collect(self, batch: int, staging: Location, files: Files) -> list[dict[str, Any]]:
        """Make the reported files durable, and return them in the format of the commit.

        Raises:
            CommitError: a file is not as its task reported it.
        """

    def publish(self, commit: Mapping[str, Any], staging: Location) -> None:
        """Show a committed batch to readers, durably. Idempotent; batches come in the order of their commits.

        Raises:
            CommitError: the table cannot take the batch.
        """

    def remove_strays(self) -> None:
        """Remove the files of failed attempts, when all that is committed is published."""

    def maintain(self, should_stop: Callable[[], bool], is_busy: Callable[[], bool] = lambda: False) -> None:
        """Do what is due to keep the tables fast, and return soon once ``should_stop``. What costs much waits
        while ``is_busy``, within limits.
        """

    def batches(self, sink: str) -> set[int]:
        """Return the batches with rows in a table."""

    def rows(
        self, sink: str, batch: int, columns: Sequence[str] | None = None, files: Files | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, some thousands at a time, without the column `batch`.

        Args:
            sink: the table.
            batch: the batch.
            columns: the columns to read; all unless given.
            files: those of its commit, if it is known; files of another table are ignored.

        Raises:
            JobError: a file can't be read. One that was moved away is skipped.
        """

    def scan(self, sink: str, columns: Sequence[str], files: Files) -> Iterator[pa.RecordBatch | None]:
        """Yield the rows of all batches, whose files are these; None for each file that was moved away."""

    def lost(self, batch: int, files: Files) -> list[str]:
        """Return the paths of those files of a batch whose rows can no longer be read."""

    def checker(self, digests: bool) -> Checker:
        """Return a check of the files of all batches, with their SHA-256 if ``digests``."""
