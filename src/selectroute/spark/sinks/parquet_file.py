"""Parquet files that a task writes, with their size, digest and statistics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.durable.disk import DigestingFile


class ParquetFile:
    """Parquet file that is created with its first rows.

    Args:
        path: the path, at which no file exists.
        sink: the sink that the file belongs to.
        schema: the file's columns.
        repeating: the columns whose values repeat.
    """

    def __init__(self, path: Path, sink: str, schema: pa.Schema, repeating: Sequence[str]) -> None:
        self.sink = sink
        self.path = path
        self.rows = 0
        self._schema = schema
        self._repeating = list(repeating)
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
            self._file = DigestingFile(self.path)
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._file, mode="w"),
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=self._repeating,
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
        largest of its offsets; None if there were no rows.
        """
        if self._parquet is None or self._file is None:
            return None
        self._parquet.close()
        self._file.close()
        return {
            "sink": self.sink,
            "path": os.path.basename(self.path),
            "rows": self.rows,
            "size": self._file.size,
            "sha256": self._file.hexdigest(),
            "offsets": self._offsets,
        }

    def discard(self) -> None:
        """Remove the file, if there is one. On a disk that fails it stays, for the next start to remove."""
        if self._file is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
