"""Repair of Spark's checkpoint after a crash: Spark does not start from an empty file in it.

::

    metadata         the query's id
    sources/<i>/<n>  the known input of each source
    offsets/<batch>  the part of the input that the batch takes: the batch is planned
    commits/<batch>  the batch is done

Spark writes each of these files, in this order, under another name and then renames it. An empty one can
remain for two reasons. If the disk has no room for the new name, Hadoop copies instead, into a file that
stays empty (``RawLocalFileSystem.rename``). And Spark does not flush to the disk, so a machine that loses
power keeps the name and loses the bytes. An empty file at the end of a log has no more information than a
missing one; but Spark continues only if it is missing: it plans again, or repeats a batch that is committed
here and so is skipped. The plan of a batch that has begun must not change, and a new one may differ, so the
plan is flushed before the batch begins (`flush_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from selectroute.durable import disk
from selectroute.spark.sources.files.stream import (
    SourceError,
    done_batches,
    log_files,
    planned_batches,
)
from selectroute.spark.sources.offset_log import list_entries


def repair(checkpoint: Path, has_begun: Callable[[int], bool]) -> list[Path]:
    """Remove the empty files at the end of each log; return their paths.

    Args:
        checkpoint: the folder. No query may run on it.
        has_begun: returns whether anything was written for a batch that Spark has planned.

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
            f"Spark's checkpoint is damaged: {path} is empty, and its batch has begun: restore checkpoint "
            "and output folder from a copy, or choose a new output folder"
        )

    newest = planned[-1] if planned else None
    for number, folder in _sources(checkpoint):
        removed += _without_end(folder, partial(_is_unused, checkpoint, newest, number))
    return removed


def _is_unused(checkpoint: Path, newest: int | None, number: int, entry: int) -> bool:
    """Return whether no plan, of which ``newest`` is the last, has this entry of the log of a source."""
    if newest is None:
        return True
    # The first entry is part of every plan. Only file sources have more.
    ends = list_entries(checkpoint, newest)
    end = ends[number] if number < len(ends) else None
    return entry > 0 and end is not None and entry > end


def _sources(checkpoint: Path) -> list[tuple[int, Path]]:
    """Return the folder of each source of the query, by its number."""
    folder = checkpoint / "sources"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((int(path.name), path) for path in found if path.name.isdecimal() and path.is_dir())


def remove_unfinished(checkpoint: Path) -> None:
    """Remove unfinished files if Spark was killed before its first batch, since Spark starts no first batch
    with files in its logs.
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
    """Flush the plan of a batch to the disk, before anything is written for the batch."""
    for _, source in _sources(checkpoint):
        for _, path in log_files(source)[-1:]:
            disk.flush(path)
    disk.flush(checkpoint / "offsets" / str(batch))


def _without_end(folder: Path, may_go: Callable[[int], bool]) -> Iterator[Path]:
    """Remove the last files of a log while they are empty and ``may_go``; yield their paths."""
    for number, path in reversed(log_files(folder)):
        if not is_empty(path) or not may_go(number):
            return
        _remove(path)
        yield path


def is_empty(path: Path) -> bool:
    """Return whether a file is empty."""
    return path.stat().st_size == 0


def _remove(path: Path) -> None:
    """Remove a file and Hadoop's checksum of it, which would be compared with the next file of that name."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
