"""Digests of a task's rows, so that a task that runs again is known to have the rows that it had.

A task finds out what an earlier attempt has put or sent by the order of its rows. A file is the same when it
is read again; the rows of a DataFrame are what its source and its operators give. So a block of rows is
digested before any of it is put or sent, and a repeat reads blocks of the same sizes and compares. The end is
a block without rows. Of two attempts the first digest stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from selectroute.spark.job.job import CommitError
from selectroute.storage import Location


class RowDigests:
    """Digests of the rows of one task.

    Args:
        folder: the folder of a batch, which need not exist yet.
        batch: the number of the batch.
        task: the number of the task.
    """

    def __init__(self, folder: Location, batch: int, task: int) -> None:
        self._folder = folder
        self._batch = batch
        self._task = task

    def checked(self, batches: Iterator[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in blocks, each after its digest is on the disk.

        Args:
            batches: the rows.
            column: the column with a 64-bit hash of each row.

        Raises:
            CommitError: the rows are not those of an earlier attempt.
            OSError: the folder can't be written.
        """
        number, rest = 0, _Rows(batches)
        while True:
            known = self._path(number).read_json()
            block = rest.next() if known is None else rest.take(known["rows"])
            found = _digest(block, column)
            if known is None:
                known = self._write(number, found)
            if found != {key: known[key] for key in found} or (block is None and not rest.is_empty()):
                raise CommitError(
                    f"batch {self._batch} was put to queues or sent to Kafka in part, and its task "
                    f"{self._task} now has other rows, or in another order: the source or an operator of the "
                    "frame does not replay, or rows without an offset came in other partitions; choose a new "
                    "output folder"
                )
            if block is None:
                return
            yield block
            number += 1

    def _write(self, number: int, content: dict[str, Any]) -> dict[str, Any]:
        self._folder.make_folder()
        try:
            self._path(number).put_new_json(content)
        except FileExistsError:
            return self._path(number).read_json() or {}
        return content

    def _path(self, number: int) -> Location:
        return self._folder / f"{self._task}-{number}.json"


class _Rows:
    """Rows of batches, taken in any numbers."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._rest: pa.RecordBatch | None = None

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""
        found, self._rest = self._rest, None
        return next(self._batches, None) if found is None else found

    def take(self, rows: int) -> pa.RecordBatch | None:
        """Return so many of the next rows, or fewer at the end; None for none."""
        parts: list[pa.RecordBatch] = []
        while rows and (part := self.next()) is not None:
            if part.num_rows > rows:
                self._rest = part.slice(rows)
                part = part.slice(0, rows)
            parts.append(part)
            rows -= part.num_rows
        if len(parts) < 2:
            return parts[0] if parts else None
        return pa.concat_batches(parts)

    def is_empty(self) -> bool:
        """Return whether there are no more rows."""
        self._rest = self.next()
        return self._rest is None


def _digest(block: pa.RecordBatch | None, column: str) -> dict[str, Any]:
    if block is None:
        return {"rows": 0, "sha256": hashlib.sha256().hexdigest()}
    hashes = block.column(column).to_numpy(zero_copy_only=False)
    return {"rows": block.num_rows, "sha256": hashlib.sha256(hashes.astype("<i8").tobytes()).hexdigest()}
