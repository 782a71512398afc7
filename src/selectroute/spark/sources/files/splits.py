"""Splits of a batch's files, distributed to tasks, so that one large file keeps every core busy.

Parquet is cut between row groups, whose rows are in the footer. JSON lines are cut between lines: a linear
count of newlines, only in files that are cut, gives the exact number of each split's first line.
"""

from __future__ import annotations

import heapq
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from selectroute.storage import Location

PARQUET_SUFFIXES = frozenset({".parquet", ".pq"})
JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})

_SPLITS_A_TASK = 4
"""Average number of splits of a task, so that tasks have about equal weight."""

_SMALLEST_SPLIT = 1 << 20
_BLOCK = 1 << 22
READ_ERRORS = (pa.ArrowException, OSError)

OUTSIDE = "link-outside"
"""Reason of a dead letter for a symbolic link that leads out of the input folder: it could otherwise expose
any file that the job may read.
"""


@dataclass(frozen=True, slots=True)
class Split:
    """Part of one file that one task reads.

    Attributes:
        path: the file; ``source`` is its path relative to the input folder, its name in deliveries.
        kind: ``parquet``, ``json``, or ``unreadable`` for a file that is one dead letter.
        first_row: the number of the split's first row (or line), from 0 at the start of the file.
        rows: number of rows; -1 if unknown before reading.
        row_groups: consecutive row groups, of Parquet only.
        start, stop: byte range of JSON lines; both at the start of a line or the end of the file.
        weight: bytes, for the distribution to tasks.
        reason, message: reason and error text if the file is unreadable.
        content: the whole file, if it was read before; no part of the plan of a batch.
    """

    path: str
    source: str
    kind: str
    first_row: int = 0
    rows: int = -1
    row_groups: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0
    weight: int = 0
    reason: str = ""
    message: str = ""
    content: bytes | None = field(default=None, repr=False)


def plan(paths: Iterable[Path], folder: Path | None, file_format: str, tasks: int) -> list[list[Split]]:
    """Return the splits of each task: at most ``tasks`` lists, of about equal weight.

    Every row of every file is in exactly one split. The same files give the same splits.
    """
    files = [_file(path, folder, file_format) for path in sorted(paths)]
    target = max(_SMALLEST_SPLIT, sum(file.weight for file in files) // max(1, tasks * _SPLITS_A_TASK))
    splits: list[Split] = []
    for file in files:
        if file.kind == "json" and file.stop > target:
            splits += _cut_lines(file, target)
        elif file.kind == "parquet":
            splits += _cut_row_groups(file, target)
        else:
            splits.append(file)
    return _share_out(splits, tasks)


def plan_in(
    folder: Location, files: Iterable[tuple[Location, int]], file_format: str, tasks: int
) -> list[list[Split]]:
    """Return the splits of each task for files in a folder, with their sizes. Each file of remote storage is
    one split, since nothing of it is read before a task reads it.
    """
    if folder.is_local:
        return plan([file.path for file, _ in files], folder.path, file_format, tasks)
    splits = []
    for file, size in sorted(files, key=lambda entry: entry[0].key):
        source, kind = file.relative_to(folder), kind_of(file.name, file_format)
        split = Split(str(file), source, kind, stop=size, weight=max(1, size))
        splits.append(split if kind else _of_unknown_format(split))
    return _share_out(splits, tasks)


def kind_of(name: str, file_format: str) -> str:
    """Return how a file of this name is read; empty for an unknown ending."""
    if file_format != "auto":
        return file_format
    suffix = Path(name).suffix.lower()
    return "parquet" if suffix in PARQUET_SUFFIXES else "json" if suffix in JSON_SUFFIXES else ""


def opened(split: Split) -> BinaryIO:
    """Open the file of a split. One in remote storage is read by one request, unless it is large. Raises
    OSError.
    """
    if split.content is not None:
        return io.BytesIO(split.content)
    return Location.of(split.path).open(split.stop)


def opened_by_arrow(split: Split) -> Any:
    """Open the file of a split for Arrow. Raises OSError."""
    if split.content is not None:
        return pa.BufferReader(split.content)
    return Location.of(split.path).opened_by_arrow(split.stop)


def _file(path: Path, folder: Path | None, file_format: str) -> Split:
    """Return the whole file as one split."""
    # The name in deliveries is relative to the input folder; outside of it, it is the full path.
    source = path.relative_to(folder) if folder and path.is_relative_to(folder) else path
    kind = kind_of(path.name, file_format)
    split = Split(str(path), source.as_posix(), kind, weight=1)
    try:
        if not kind:
            return _of_unknown_format(split)
        if folder is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            return _unreadable(split, OUTSIDE, "a symbolic link that leads out of the input folder")
        size = path.stat().st_size
        if kind == "json":
            return replace(split, stop=size, weight=max(1, size))
        metadata = _footer(path)
        return replace(
            split,
            rows=metadata.num_rows,
            row_groups=tuple(range(metadata.num_row_groups)),
            weight=max(1, size),
        )
    except READ_ERRORS as error:
        return _unreadable(split, "unreadable-file", str(error))


def _footer(path: str | Path) -> Any:
    with pa.OSFile(os.fsencode(path), "rb") as file:
        return pq.read_metadata(file)


def _of_unknown_format(split: Split) -> Split:
    known = ", ".join(sorted(PARQUET_SUFFIXES | JSON_SUFFIXES))
    return _unreadable(split, "unknown-format", f"the file's name does not end in one of {known}")


def _unreadable(split: Split, reason: str, message: str) -> Split:
    return replace(split, kind="unreadable", reason=reason, message=message)


def _cut_row_groups(whole: Split, target: int) -> list[Split]:
    if whole.weight <= target or len(whole.row_groups) < 2:
        return [whole]
    try:
        metadata = _footer(whole.path)
    except READ_ERRORS as error:
        return [_unreadable(whole, "unreadable-file", str(error))]
    splits: list[Split] = []
    groups: list[int] = []
    row = rows = weight = 0
    for group in whole.row_groups:
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        # Compressed bytes, unlike the footer's total_byte_size.
        columns = map(metadata.row_group(group).column, range(metadata.num_columns))
        weight += sum(column.total_compressed_size for column in columns)
        if weight >= target or group == whole.row_groups[-1]:
            splits.append(
                replace(whole, first_row=row, rows=rows, row_groups=tuple(groups), weight=max(1, weight))
            )
            row, rows, weight, groups = row + rows, 0, 0, []
    return splits


def _cut_lines(whole: Split, target: int) -> list[Split]:
    splits: list[Split] = []
    start = first_row = line = position = 0
    try:
        with open(whole.path, "rb") as file:
            # Bytes added since the plan began are ignored: a file must not change.
            while position < whole.stop and (block := file.read(min(_BLOCK, whole.stop - position))):
                searched = 0
                while position + len(block) - start >= target:
                    cut = block.find(b"\n", max(searched, start + target - position - 1)) + 1
                    if cut == 0:
                        break
                    line += block.count(b"\n", searched, cut)
                    searched = cut
                    stop = position + cut
                    splits.append(
                        replace(whole, first_row=first_row, start=start, stop=stop, weight=stop - start)
                    )
                    start, first_row = stop, line
                line += block.count(b"\n", searched)
                position += len(block)
    except OSError as error:
        return [_unreadable(whole, "unreadable-file", str(error))]
    if start < whole.stop:
        splits.append(replace(whole, first_row=first_row, start=start, weight=whole.stop - start))
    return splits


def _share_out(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Assign each split, heaviest first, to the lightest task; within a task, keep the files' order."""
    if not splits:
        return []
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(splits)))]
    least = [(0, task) for task in range(len(shares))]
    for number in sorted(range(len(splits)), key=lambda i: (-splits[i].weight, i)):
        weight, task = heapq.heappop(least)
        shares[task].append(number)
        heapq.heappush(least, (weight + splits[number].weight, task))
    return [[splits[number] for number in sorted(share)] for share in shares]
