"""Outcomes of a job, whatever their format is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def published_files(table: Path) -> list[Path]:
    """The files of a table of outcomes: of a Delta table those that are in it now."""
    if not (table / "_delta_log").is_dir():
        return sorted(table.glob("batch=*/*.parquet"))
    from deltalake import DeltaTable

    names = pa.table(DeltaTable(str(table)).get_add_actions())["path"].to_pylist()
    return sorted(table / name for name in names)
