"""Tables of an output folder, in the format in which they are."""

from __future__ import annotations

from pathlib import Path

from selectroute.durable import disk
from selectroute.spark.job.job import DELTA, PARQUET, Job, JobError
from selectroute.spark.tables.parquet import ParquetTables
from selectroute.spark.tables.tables import OutcomeTables


def open_tables(output: Path) -> OutcomeTables:
    """Return the tables of an output folder, to be read. Raises JobError if their extra is not installed."""
    record = disk.read_json(output / "_job.json") or {}
    return _tables(output, record.get("table_format", PARQUET))


def tables_of(job: Job, id: str | None = None) -> OutcomeTables:
    """Return the tables of a job, to be written; ``id`` in the place of that in its output folder.

    Raises:
        JobError: the extra of their format is not installed.
    """
    return _tables(
        job.output,
        job.table_format,
        id,
        compact_every=job.compact_every,
        retention_hours=job.table_retention_hours,
    )


def _tables(output: Path, table_format: str, id: str | None = None, **options: int) -> OutcomeTables:
    if table_format == DELTA:
        try:
            from selectroute.spark.tables.delta import DeltaTables
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "deltalake":
                raise
            raise JobError(
                "Delta tables need the extra `delta` of selectroute: pip install 'selectroute[delta]'"
            ) from error
        return DeltaTables(output, id, **options)
    return ParquetTables(output)
