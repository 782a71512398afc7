"""Parquet files that a task writes: their folders and names, size, digest and statistics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.durable.disk import DigestingFile
from selectroute.spark.tables.schemas import REPEATING, SINKS
from selectroute.storage import Location, StorageError


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Folders of a batch's files, by sink, as paths or URLs.

    Attributes:
        folders: the folder of each sink.
        batch: the value of the column `batch` in each row; None if the files have no such column.
    """

    folders: Mapping[str, str]
    batch: int | None = None

    @classmethod
    def staged(cls, folder: str) -> OutputFiles:
        """Return files of all sinks in one folder, from which they will be moved."""
        return cls(dict.fromkeys(SINKS, folder))

    def file(self, sink: str) -> Location:
        """Return a new file. Each attempt has its own: a task that runs twice never overwrites a file."""
        name = sink if self.batch is None else f"part-{self.batch}"
        return Location.of(self.folders[sink]) / f"{name}-{uuid.uuid4().hex}.parquet"

    def discard(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Remove reported files of an attempt that does not count."""
        for file in files:
            (Location.of(self.folders[file["sink"]]) / file["path"]).delete()


class ParquetFile:
    """Parquet file that is created with its first rows, as a draft on this machine.

    Args:
        target: the file, which does not exist.
        sink: the sink that the file belongs to.
        schema: the file's columns.
    """

    def __init__(self, target: Location, sink: str, schema: pa.Schema) -> None:
        self.sink = sink
        self.target = target
        self._draft: Path | None = None
        self.rows = 0
        self._schema = schema
        self._file: DigestingFile | None = None
        self._parquet: Any = None
        self._offsets: tuple[int, int] | None = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write rows as a row group."""
        arrays = [columns[name] for name in self._schema.names]
        self.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def write_table(self, table: pa.Table) -> None:
        """Write a table of the file's schema as a row group."""
        if self._parquet is None:
            self._draft = self.target.draft()
            self._file = DigestingFile(self._draft)
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._file, mode="w"),
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=REPEATING[self.sink],
                # The differences of constant or rising numbers take almost no space.
                column_encoding={
                    field.name: "DELTA_BINARY_PACKED"
                    for field in self._schema
                    if pa.types.is_integer(field.type)
                },
                # Room for the message ids of a whole batch: otherwise the writer gives up the dictionary.
                dictionary_pagesize_limit=1 << 26,
                write_statistics=[name for name in ("batch", "offset") if name in self._schema.names],
            )
        self._parquet.write_table(table)
        self.rows += table.num_rows
        offsets = pc.min_max(table.column("offset")).as_py()
        if offsets["min"] is not None:
            seen = self._offsets or (offsets["min"], offsets["max"])
            self._offsets = min(seen[0], offsets["min"]), max(seen[1], offsets["max"])

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return its sink, path (the name), rows, size, sha256, and the smallest and
        largest of its offsets; None if there were no rows. `upload` follows.
        """
        if self._parquet is None or self._file is None:
            return None
        self._parquet.close()
        self._file.close()
        return {
            "sink": self.sink,
            "path": self.target.name,
            "rows": self.rows,
            "size": self._file.size,
            "sha256": self._file.hexdigest(),
            "offsets": self._offsets,
        }

    def upload(self) -> None:
        """Put the closed file where it belongs, if there were rows."""
        if self._draft is not None:
            self.target.upload(self._draft)

    def discard(self) -> None:
        """Remove the file, if there is one. On a disk that fails it stays, for the next start to remove."""
        if self._draft is not None:
            with suppress(OSError, StorageError):
                self.target.delete()
                self.target.discard(self._draft)
