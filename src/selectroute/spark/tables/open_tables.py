"""Tables of an output folder, in the format in which they are."""

from __future__ import annotations

from selectroute.extras import the_extra
from selectroute.spark.job import DELTA, PARQUET, Job, JobError
from selectroute.spark.tables.parquet import ParquetTables
from selectroute.spark.tables.tables import OutcomeTables
from selectroute.storage import Location
from selectroute.storage.location import Where


def open_tables(output: Where) -> OutcomeTables:
    """Return the tables of an output folder, to be read. Raises JobError if their extra is not installed."""
    folder = Location.of(output)
    record = (folder / "_job.json").read_json() or {}
    return _tables(folder, record.get("table_format", PARQUET))


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


def _tables(output: Location, table_format: str, id: str | None = None, **options: int) -> OutcomeTables:
    if table_format == DELTA:
        try:
            from selectroute.spark.tables.delta import DeltaTables
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "deltalake":
                raise
            raise JobError(f"Delta tables need {the_extra('delta')}") from error
        return DeltaTables(output, id, **options)
    return ParquetTables(output)
