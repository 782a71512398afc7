"""Spark's checkpoint after a crash: what was left half written, from which Spark does not start.

::

    metadata         whose checkpoint it is
    sources/0/<n>    what there is to read
    offsets/<batch>  what of it the batch takes: it is planned
    commits/<batch>  the batch is done

Spark writes each of these files, in this order, under another name and then renames it. Two things leave an
empty one all the same. Where a disk has no room for the new name Hadoop copies instead, into a file that then
stays empty (``RawLocalFileSystem.rename``). And Spark flushes nothing to the disk, so that a machine that
loses power keeps the name and loses the bytes. An empty file at the end of a log says no more than if it were
not there; but only if it is not there does Spark go on: it plans once more, or runs a batch again that is
committed here and so skipped. A plan must not be made anew once its batch has begun, for it may come out
another one: it is flushed before that (`flush_plan`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from selectroute.durable import disk
from selectroute.spark.sources.files.stream import (
    SourceError,
    done_batches,
    log_files,
    log_offset,
    planned_batches,
)


def repair(checkpoint: Path, has_begun: Callable[[int], bool]) -> list[Path]:
    """Remove the empty files at the end of each log and return which they were.

    Args:
        checkpoint: the folder. No query may run on it.
        has_begun: whether something was written for a batch that Spark has planned.

    Raises:
        SourceError: the plan of a batch that has begun is empty.
    """
    removed = [
        *_without_end(checkpoint / "commits", lambda _: True),
        *_without_end(checkpoint / "offsets", lambda batch: not has_begun(batch)),
    ]
    planned = planned_batches(checkpoint)
    if planned and is_empty(path := checkpoint / "offsets" / str(planned[-1])):
        raise SourceError(
            f"Spark's checkpoint is damaged: {path} is empty, and its batch has begun: put the checkpoint "
            "and the output folder back from a copy, or choose a new output folder"
        )

    def is_unused(entry: int) -> bool:
        # The first entry is part of every plan. Only files have others.
        return not planned or (entry > 0 and entry > log_offset(checkpoint, planned[-1]))

    return [*removed, *_without_end(checkpoint / "sources" / "0", is_unused)]


def remove_unfinished(checkpoint: Path) -> None:
    """Remove what Spark was writing before its first batch when it was killed: it starts none where it finds
    anything in its logs.
    """
    metadata = checkpoint / "metadata"
    if metadata.is_file() and is_empty(metadata):
        _remove(metadata)
    for log, batches in (("offsets", planned_batches(checkpoint)), ("commits", done_batches(checkpoint))):
        folder = checkpoint / log
        if not batches and folder.is_dir():
            for path in folder.iterdir():
                path.unlink()


def flush_plan(checkpoint: Path, batch: int) -> None:
    """Flush to the disk what a batch takes in, before anything is written for it."""
    for _, path in log_files(checkpoint / "sources" / "0")[-1:]:
        flush(path)
    flush(checkpoint / "offsets" / str(batch))


def flush(path: Path) -> None:
    """Flush a file of Spark's to the disk, and its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    disk.sync_folder(path.parent)


def _without_end(folder: Path, may_go: Callable[[int], bool]) -> Iterator[Path]:
    """Remove the last files of a log as long as they are empty and may go; yields which."""
    for number, path in reversed(log_files(folder)):
        if not is_empty(path) or not may_go(number):
            return
        _remove(path)
        yield path


def is_empty(path: Path) -> bool:
    """Return whether nothing is in a file of Spark's."""
    return path.stat().st_size == 0


def _remove(path: Path) -> None:
    """Remove a file of Spark's and Hadoop's checksum of it, which would be held against the next one."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
