"""Stream of files, and the files of each batch.

The stream carries *paths*: Spark lists the input folder, keeps the list in its checkpoint and cuts it into
batches; it never opens a file. The workers read the files, so that an unreadable one is a dead letter and
does not fail the stream.

A batch's files are taken from the list in the checkpoint, not from the DataFrame, which silently omits empty
files (interrupted uploads) and deleted ones. Both are inputs.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from selectroute.selector.errors import SelectRouteError

FORMATS = ("auto", "parquet", "json")

_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
_GLOB = re.compile(r"([\\\[\]{}*?,])")


class SourceError(SelectRouteError):
    """Unusable input, or damage in Spark's checkpoint."""


class SourceNotFoundError(SourceError):
    """Missing input folder or topic."""


def local_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, given as a path or a ``file:`` URI.

    Raises:
        SourceError: the URI is of another kind. Folders must be mounted: renames in them must be atomic.
    """
    text = os.fspath(folder)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise SourceError(f"{text} is not on a mounted file system: give a path, or a file: URI")
        text = unquote(re.sub(r"^file:(//)?", "", text, flags=re.IGNORECASE))
    return Path(os.path.abspath(text))


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return an absolute path of this machine's file system in Spark's notation.

    A path without a scheme is one of Hadoop's default file system to Spark: on a cluster with HDFS, of HDFS.
    """
    return f"file://{os.fspath(path)}"


def stream_files(spark: SparkSession, folder: Path, max_files: int) -> DataFrame:
    """Return the stream of the files under ``folder``, path and length, at most ``max_files`` per batch.

    Files must appear complete (written elsewhere, then renamed here) and not change afterwards. Names that
    begin with ``_`` or ``.`` are ignored. Sub-folders are included.
    """
    return (
        spark.readStream.format("binaryFile")
        .schema(_SCHEMA)
        .option("recursiveFileLookup", True)
        .option("maxFilesPerTrigger", max_files)
        # Without this, Spark silently omits a file that is 7 days older than the newest one.
        .option("maxFileAge", "36500d")
        .load(spark_path(_GLOB.sub(r"\\\1", str(folder))))
        .select("path", "length")
    )


def batch_files(checkpoint: Path, batch: int) -> list[Path]:
    """Return the files of a batch from Spark's checkpoint, sorted.

    Reads the offset log (``offsets/<batch>``: the last entry of the file list that belongs to the batch) and
    the file list (``sources/0/<entry>``, every tenth one a ``.compact`` of all before it), both JSON lines
    after a line ``v1``.
    """
    last = log_offset(checkpoint, batch)
    first = log_offset(checkpoint, batch - 1) + 1 if batch > 0 else 0
    found: list[Path] = []
    for entry in range(first, last + 1):
        for record in _file_list(checkpoint / "sources" / "0", entry):
            if record["batchId"] == entry:
                found.append(local_folder(record["path"]))
    return sorted(found)


def planned_batches(checkpoint: Path) -> list[int]:
    """Return the batches whose plan Spark still has, ascending: the newest hundred or so."""
    return [batch for batch, _ in log_files(checkpoint / "offsets")]


def done_batches(checkpoint: Path) -> list[int]:
    """Return the batches that Spark has done and not yet removed from its log, ascending."""
    return [batch for batch, _ in log_files(checkpoint / "commits")]


def listed_files(checkpoint: Path, batch: int) -> list[Path]:
    """Return all files of all batches up to this one, in Spark's order."""
    last = log_offset(checkpoint, batch)
    folder = checkpoint / "sources" / "0"
    compact = [int(path.stem) for path in folder.glob("*.compact") if path.stem.isdecimal()]
    # A compact entry includes all files before it; earlier entries may be gone.
    first = max((entry for entry in compact if entry <= last), default=0)
    found: list[Path] = []
    for entry in range(first, last + 1):
        records = _file_list(folder, entry, whole=entry == first)
        found += [local_folder(record["path"]) for record in records]
    return found


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of one of Spark's logs with their numbers, ascending, ``.compact`` files included."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        number = path.name.removesuffix(".compact")
        if number.isdecimal():
            found.append((int(number), path))
    return sorted(found)


def log_offset(checkpoint: Path, batch: int) -> int:
    """Return the last entry of the file list up to the end of a batch. Raises SourceError."""
    path = checkpoint / "offsets" / str(batch)
    lines = log_lines(path)
    try:
        return int(json.loads(lines[-1])["logOffset"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SourceError(f"{path} is damaged, or not in the format of this release of Spark") from error


def _file_list(folder: Path, entry: int, *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the files of an entry of Spark's list; with ``whole`` all those of a compact entry."""
    path = folder / str(entry)
    if not path.exists():
        path = folder / f"{entry}.compact"
    try:
        # A compact entry has every file ever seen; only the lines of this entry are parsed.
        mark = "" if whole else f'"batchId":{entry}}}'
        return [json.loads(line) for line in log_lines(path)[1:] if mark in line]
    except ValueError as error:
        raise SourceError(f"{path} is damaged, or not in the format of this release of Spark") from error


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
