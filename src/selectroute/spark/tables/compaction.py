"""Compaction: many small files of a table become few, in rounds, each row written a few times at most.

Files of batches are of level 0. As soon as those of ``every`` batches are small, they are merged into a file
of level 1; sixteen small files of level 1 into one of level 2, and so on. A file of ``LARGE`` bytes is not
small, and stays. So the number of files grows with the logarithm of the number of small batches.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.spark.sinks.parquet_file import ParquetFile
from selectroute.spark.sinks.schemas import REPEATING, WITH_BATCH
from selectroute.spark.tables.parquet import opened_by_arrow
from selectroute.storage import Location

LARGE: Final = 32 << 20
"""Bytes from which on a file is left alone."""

_FAN: Final = 16
"""Merged files of one level that become one of the next."""

_MOST_FILES: Final = 2_000
_MOST_BYTES: Final = 256 << 20
"""Limits of one merge: bounds its time, and what is lost if it is interrupted."""

_ROW_GROUP: Final = 1 << 18
_GROUP_BYTES: Final = 64 << 20

_OF_BATCH = re.compile(r"part-(-?\d+)-[0-9a-f]{32}\.parquet")
_MERGED = re.compile(r"merged-(\d+)-[0-9a-f]{32}\.parquet")


class LiveFile(NamedTuple):
    """File of a table: its path below the table's folder, its size, its rows, and the smallest and largest
    number of a batch in it, if they are known.
    """

    path: str
    size: int
    rows: int | None
    first: int | None
    last: int | None

    @property
    def level(self) -> int | None:
        """Level of the file; None for one that another writer merged."""
        if _OF_BATCH.fullmatch(self.path):
            return 0
        merged = _MERGED.fullmatch(self.path)
        return None if merged is None else int(merged[1])

    @property
    def batch(self) -> int | None:
        """Batch whose task wrote the file; None for a merged file."""
        return batch_of(self.path)


def batch_of(name: str) -> int | None:
    """Return the batch whose task wrote the file of this name; None for any other file."""
    named = _OF_BATCH.fullmatch(name)
    return None if named is None else int(named[1])


class Merge(NamedTuple):
    """Files that are to become one of a level."""

    files: tuple[LiveFile, ...]
    level: int


def plan_merge(live: Iterable[LiveFile], every: int) -> Merge | None:
    """Return the next merge that is due; None if there is none.

    >>> files = [LiveFile(f"part-{n}-{n:032}.parquet", 100, 1, n, n) for n in range(4)]
    >>> plan_merge(files, 5) is None, plan_merge(files, 4).level
    (True, 1)
    """
    of_level: dict[int, list[LiveFile]] = {}
    for file in live:
        if file.level is not None and file.size < LARGE:
            of_level.setdefault(file.level, []).append(file)
    for level, files in sorted(of_level.items()):
        # By batch, so that readers of a batch skip most row groups.
        files.sort(key=lambda file: (file.first is None, file.first or 0, file.path))
        parts = len({file.batch for file in files}) if level == 0 else len(files)
        if len(files) > 1 and parts >= (every if level == 0 else _FAN):
            return Merge(tuple(_bounded(files)), level + 1)
    return None


def _bounded(files: Sequence[LiveFile]) -> Iterator[LiveFile]:
    total = 0
    for number, file in enumerate(files):
        total += file.size
        if number > 1 and (total > _MOST_BYTES or number >= _MOST_FILES):
            return
        yield file


def merge(
    folder: Location, sink: str, plan: Merge, should_stop: Callable[[], bool] = lambda: False
) -> dict[str, Any] | None:
    """Write the rows of the files of a merge to a new file, durably, and return its report, see
    `ParquetFile.close`; None if there is nothing to write, or the merge was stopped.

    Raises:
        OSError, pyarrow.ArrowException: a file can't be read or written.
    """
    schema = WITH_BATCH[sink]
    target = folder / f"merged-{plan.level}-{uuid.uuid4().hex}.parquet"
    written = ParquetFile(target, sink, schema, REPEATING[sink])
    try:
        waiting: list[pa.Table] = []
        count = size = 0
        for one in plan.files:
            for rows in _row_groups(folder / one.path, schema):
                if should_stop():
                    written.discard()
                    return None
                waiting.append(rows)
                count += len(rows)
                size += rows.nbytes
                if count >= _ROW_GROUP or size >= _GROUP_BYTES:
                    written.write_table(_joined(waiting))
                    waiting = []
                    count = size = 0
        if waiting:
            written.write_table(_joined(waiting))
        return written.close()
    except BaseException:
        written.discard()
        raise


def _row_groups(file: Location, schema: pa.Schema) -> Iterator[pa.Table]:
    repeating = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    with opened_by_arrow(file) as data, pq.ParquetFile(data, read_dictionary=repeating) as parquet:
        for number in range(parquet.num_row_groups):
            yield parquet.read_row_group(number).select(schema.names).cast(schema)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
