"""Parquet files that a task writes to the staging folder, with their size and digest."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.durable.disk import DigestingFile


class StagedFile:
    """Parquet file that is created with its first rows.

    Args:
        folder: the folder, in which the file gets a unique name.
        sink: the sink that the file belongs to.
        schema: the file's columns.
        repeating: the columns whose values repeat.
    """

    def __init__(self, folder: Path, sink: str, schema: pa.Schema, repeating: Sequence[str]) -> None:
        self.sink = sink
        # Each attempt has its own name: a task that runs twice never overwrites a file.
        self.path = folder / f"{sink}-{uuid.uuid4().hex}.parquet"
        self.rows = 0
        self._schema = schema
        self._repeating = list(repeating)
        self._file: DigestingFile | None = None
        self._parquet: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write rows as a row group."""
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
                write_statistics=["offset"],
            )
        arrays = [columns[name] for name in self._schema.names]
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._parquet.write_table(table)
        self.rows += table.num_rows

    def close(self) -> dict[str, Any] | None:
        """Flush the file and return its sink, path, rows, size and sha256; None if there were no rows."""
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
        }
