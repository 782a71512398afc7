"""Logs in Spark's checkpoint.

``offsets/<batch>`` has a line for each source, in the order of the query: the end of the batch there, in the
source's own form. The end of the previous batch is the start. Spark writes the file before the batch begins,
and a repeat of the batch reads it: a source that replays gives the same rows for it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from selectroute.selector.errors import SelectRouteError


class SourceError(SelectRouteError):
    """Unusable input, or damage in Spark's checkpoint."""


class SourceNotFoundError(SourceError):
    """Missing input folder or topic."""


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path of this machine's file system in Spark's notation.

    A path without a scheme is one of Hadoop's default file system to Spark: on a cluster with HDFS, of HDFS.
    """
    return f"file://{os.fspath(path)}"


def planned_batches(checkpoint: Path) -> list[int]:
    """Return the batches whose plan Spark still has, ascending: the newest hundred or so."""
    return [batch for batch, _ in log_files(checkpoint / "offsets")]


def done_batches(checkpoint: Path) -> list[int]:
    """Return the batches that Spark has done and not yet removed from its log, ascending."""
    return [batch for batch, _ in log_files(checkpoint / "commits")]


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of one of Spark's logs with their numbers, ascending, ``.compact`` files included."""
    files = []
    for path in folder.iterdir() if folder.is_dir() else ():
        number = path.name.removesuffix(".compact")
        if number.isdecimal():
            files.append((int(number), path))
    return sorted(files)


def source_logs(checkpoint: Path) -> dict[int, Path]:
    """Return the log of each source of the query, by its number."""
    folder = checkpoint / "sources"
    paths = folder.iterdir() if folder.is_dir() else ()
    return {int(path.name): path for path in sorted(paths) if path.name.isdecimal() and path.is_dir()}


def log_lines(path: Path) -> list[str]:
    """Return the lines of one of Spark's logs, the first of which is its version. Raises SourceError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SourceError(f"Spark's checkpoint is damaged: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"Spark's checkpoint is damaged: {path}: {error}") from error
    if lines[0] != "v1":
        raise SourceError(f"{path} has version {lines[0][:20]!r}; this release supports v1 of Spark's logs")
    return [line for line in lines if line]


FRAME: Final = "frame:"
"""Prefix of the name of an input that is a DataFrame."""

_HEAD: Final = 2
"""Lines before the offsets: the version of the log, and the time of the batch."""


def batch_offsets(checkpoint: Path, batch: int) -> list[str]:
    """Return the end of a batch in each source, ``-`` where a source has not begun. Raises SourceError."""
    return log_lines(checkpoint / "offsets" / str(batch))[_HEAD:]


def offsets_digest(offsets: Sequence[str]) -> str:
    """Return the SHA-256 of the offsets of a batch, which a repeat of the batch must have, too."""
    return hashlib.sha256("\n".join(offsets).encode()).hexdigest()


def list_entries(checkpoint: Path, batch: int) -> list[int | None]:
    """Return for each source the last entry of its list of files up to the end of a batch; None for a source
    that is not a folder of files. Raises SourceError.
    """
    return [_list_entry(line) for line in batch_offsets(checkpoint, batch)]


def _list_entry(line: str) -> int | None:
    try:
        entry = json.loads(line)
        return int(entry["logOffset"])
    except (ValueError, TypeError, KeyError):
        return None
