"""Compaction: many small files of a table become few, in rounds, each row written a few times at most.

Files of batches are of level 0. As soon as those of ``every`` batches are small, they are merged into a file
of level 1; sixteen small files of level 1 into one of level 2, and so on. A file of ``LARGE`` bytes is not
small, and stays. So the number of files grows with the logarithm of the number of small batches.
"""

from __future__ import annotations

import bisect
import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
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

_NAME = re.compile(r"(?:part-(-?\d+)|merged-(\d+))-[0-9a-f]{32}\.parquet")


class LiveFile(NamedTuple):
    """File of a table: its path below the table's folder, its size, and the smallest and largest number that
    a batch in it may have.
    """

    path: str
    size: int
    first: int
    last: int

    @property
    def level(self) -> int | None:
        """Level of the file; None for one that another writer merged."""
        return level_of(self.path)


def batch_of(name: str) -> int | None:
    """Return the batch whose task wrote the file of this name; None for any other file."""
    named = _NAME.fullmatch(name)
    return int(named[1]) if named and named[1] else None


def level_of(name: str) -> int | None:
    """Return the level of the file of this name; None if this package did not write it."""
    named = _NAME.fullmatch(name)
    return int(named[2] or 0) if named else None


def small_batches(live: Iterable[LiveFile]) -> int:
    """Return the number of batches with a small file that is not merged."""
    return len({file.first for file in live if file.level == 0 and file.size < LARGE})


class Merge(NamedTuple):
    """Files that are to become one of a level."""

    files: tuple[LiveFile, ...]
    level: int


def plan_merge(live: Iterable[LiveFile], every: int) -> Merge | None:
    """Return the next merge that is due; None if there is none.

    >>> files = [LiveFile(f"part-{n}-{n:032}.parquet", 100, n, n) for n in range(4)]
    >>> plan_merge(files, 5) is None, plan_merge(files, 4).level
    (True, 1)
    """
    of_level: dict[int, list[LiveFile]] = {}
    # By batch, so that readers of a batch skip most row groups.
    for file in sorted(live, key=lambda file: (file.first, file.path)):
        if file.level is not None and file.size < LARGE:
            of_level.setdefault(file.level, []).append(file)
    for level, files in sorted(of_level.items()):
        parts, least = (small_batches(files), every) if level == 0 else (len(files), _FAN)
        if len(files) > 1 and parts >= least:
            sizes = list(itertools.accumulate(file.size for file in files[:_MOST_FILES]))
            return Merge(tuple(files[: max(2, bisect.bisect(sizes, _MOST_BYTES))]), level + 1)
    return None


def merge(folder: Location, sink: str, plan: Merge, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
    """Write the rows of the files of a merge to a new file, durably, and return its report, see
    `ParquetFile.close`; None if there is nothing to write, or the merge was stopped.

    The library's own merge is not flushed before its transaction, so that a loss of power could tear a file
    of the table; and takes 1.9 times the processor time.

    Raises:
        OSError, pyarrow.ArrowException: a file can't be read or written.
    """
    schema = WITH_BATCH[sink]
    target = folder / f"merged-{plan.level}-{uuid.uuid4().hex}.parquet"
    written = ParquetFile(target, sink, schema)
    group: list[pa.Table] = []
    try:
        for rows in _row_groups(folder, sink, plan.files):
            if should_stop():
                written.discard()
                return None
            group.append(rows)
            if sum(map(len, group)) >= _ROW_GROUP or sum(rows.nbytes for rows in group) >= _GROUP_BYTES:
                written.write_table(_joined(group))
                group = []
        if group:
            written.write_table(_joined(group))
        return written.close()
    except BaseException:
        written.discard()
        raise


def _row_groups(folder: Location, sink: str, files: Iterable[LiveFile]) -> Iterator[pa.Table]:
    schema = WITH_BATCH[sink]
    for file in files:
        with opened_by_arrow(folder / file.path) as data:
            parquet = pq.ParquetFile(data, read_dictionary=REPEATING[sink])
            for number in range(parquet.num_row_groups):
                yield parquet.read_row_group(number).select(schema.names).cast(schema)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
