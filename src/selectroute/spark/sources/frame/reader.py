"""Reader of a DataFrame's rows in a worker: Arrow batches of one partition to messages and dead letters.

A task is a partition of the batch's frame. The JVM has selected the columns, cast them and, where deliveries
are put or sent, sorted the rows by their positions. Every row is yielded once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.spark.job import CommitError
from selectroute.spark.messages import DeadLetterBatch, SourcePartition
from selectroute.spark.sources.files.reader import checked_rows
from selectroute.spark.task.task import InputPart, TaskSettings
from selectroute.storage import Location

Ints = npt.NDArray[np.int64]

SOURCE, PARTITION, OFFSET = PLACE = ("source", "partition", "offset")
"""Additional columns: the parts of a row's position."""

LETTER: Final = "letter"
"""Additional column: the row as JSON where a part of its position is NULL."""

HASH: Final = "hash"
"""Additional column: a 64-bit hash of all others."""

_NO_POSITION: Final = "no-position"
"""Reason of a dead letter for a row whose position is NULL."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Columns of the rows that cross to a worker, by position.

    Attributes:
        name: name of the input.
        batch: number of the batch.
        names: identifiers of the first columns.
        more: names of the additional columns, which follow.
        id_name: the identifier among them that is the message id; None if there is none.
        full: whether the columns are full messages.
    """

    name: str
    batch: int
    names: tuple[str, ...]
    more: tuple[str, ...]
    id_name: str | None
    full: bool

    def source(self, text: str | None) -> str:
        """Return the source of rows: ``text`` is the value of their column. Without an offset, the rows of
        another batch have another source.
        """
        own = self.name if text is None else text
        return own if OFFSET in self.more else f"{own}/batch={self.batch}"


class RowDigests:
    """Digests of the rows of one task, so that a task that runs again is known to have the rows that it had.

    A task finds out what an earlier attempt has put or sent by the order of its rows. A file is the same when
    it is read again; the rows of a DataFrame are what its source and its operators give. So a block of rows
    is digested before any of it is put or sent, and a repeat reads blocks of the same sizes and compares. The
    end is a block without rows. Of two attempts the first digest stands.

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
            digest = _digest(block, column)
            if known is None:
                known = self._write(number, digest)
            if digest != {key: known[key] for key in digest} or (block is None and not rest.is_empty()):
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
        batch, self._rest = self._rest, None
        return next(self._batches, None) if batch is None else batch

    def take(self, rows: int) -> pa.RecordBatch | None:
        """Return the next rows, fewer at the end; None for none."""
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


class RowReader:
    """Reader of the rows of one task.

    Args:
        batches: the rows.
        layout: their columns.
        task: the number of the task.
        settings: the settings of the batch.
        full: whether full messages are needed.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        layout: RowLayout,
        task: int,
        settings: TaskSettings,
        full: bool,
    ) -> None:
        assert full <= layout.full, "deliveries to destinations need full messages"
        self._layout = layout
        self._task = task
        self._most = settings.max_message_bytes
        # Rows keep their order if a task counts by it what it has put or sent.
        self._keeps_order = full
        self._batches = batches
        if settings.row_digests is not None:
            names = [*layout.names, *layout.more]
            digests = RowDigests(Location.of(settings.row_digests), layout.batch, task)
            self._batches = digests.checked((batch.rename_columns(names) for batch in batches), HASH)

    def parts(self) -> Iterator[InputPart]:
        """Yield the rows."""
        first = 0
        for batch in self._batches:
            yield from self._parts(batch, first)
            first += batch.num_rows

    def report(self) -> dict[str, Any]:
        """Return nothing: the driver knows the columns."""
        return {}

    def _parts(self, batch: pa.RecordBatch, first: int) -> Iterator[InputPart]:
        layout = self._layout
        more = dict(zip(layout.more, batch.columns[len(layout.names) :], strict=True))
        columns = batch.columns[: len(layout.names)]
        messages = pa.RecordBatch.from_arrays(columns, names=list(layout.names))
        numbers: Ints = np.arange(first, first + batch.num_rows)
        if (letters := more.get(LETTER)) is not None and letters.null_count < len(letters):
            yield from self._without_position(letters)
            placed = np.flatnonzero(letters.is_null().to_numpy(zero_copy_only=False))
            messages, numbers = messages.take(pa.array(placed)), numbers[placed]
            more = {name: column.take(pa.array(placed)) for name, column in more.items()}
        offsets = more[OFFSET].to_numpy(zero_copy_only=False) if OFFSET in more else numbers
        for place, rows in self._places(more, len(numbers)):
            own = messages.take(pa.array(rows)) if len(rows) < len(numbers) else messages
            for part in checked_rows(
                own, offsets[rows], layout.id_name, self._most, layout.full, numbers[rows]
            ):
                yield InputPart(0, place, part)

    def _without_position(self, letters: Any) -> Iterator[InputPart]:
        place = SourcePartition(self._layout.source(None), self._task)
        for text in letters.drop_null().to_pylist():
            message = "a column of the position is NULL"
            # Whole, because the row cannot be read again; but no longer than a message may be.
            raw = text.encode()[: self._most]
            yield InputPart(0, place, DeadLetterBatch("read", _NO_POSITION, message, None, raw))

    def _places(self, more: dict[str, Any], rows: int) -> Iterator[tuple[SourcePartition, Ints]]:
        """Yield the rows of each source and partition."""
        layout, everything = self._layout, np.arange(rows)
        default = 0 if OFFSET in layout.more else self._task
        sources, partitions = more.get(SOURCE), more.get(PARTITION)
        if rows == 0:
            return
        if sources is None and partitions is None:
            yield SourcePartition(layout.source(None), default), everything
            return
        source_codes, texts = np.zeros(rows, np.int64), [None]
        if sources is not None:
            encoded = pc.dictionary_encode(sources)
            source_codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            texts = encoded.dictionary.to_pylist()
        numbers = np.full(rows, default)
        if partitions is not None:
            numbers = partitions.to_numpy(zero_copy_only=False).astype(np.int64)
        order = everything if self._keeps_order else np.lexsort((numbers, source_codes))
        changes = (np.diff(source_codes[order]) != 0) | (np.diff(numbers[order]) != 0)
        for own in np.split(order, np.flatnonzero(changes) + 1):
            text = texts[source_codes[own[0]]]
            yield SourcePartition(layout.source(text), int(numbers[own[0]])), own
