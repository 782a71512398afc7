"""Stream of files: which files arrive, and which of them are a batch's.

The stream carries *paths*: Spark lists the input folder, keeps the list in its checkpoint and cuts it into
batches; it never opens a file. The workers read them, so that one that can't be read is one dead letter
instead of a dead stream.

A batch's files are taken from the list in the checkpoint, not from the DataFrame: that one leaves out,
without a word, a file of no bytes (a torn upload) and one that was deleted meanwhile. Both are inputs.
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
    """Error: the input folder, or Spark's list of its files, can't be used."""


class SourceNotFoundError(SourceError):
    """Error: the input folder, or a topic that is to be read, is not there."""


def local_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, which may be written as a ``file:`` URI.

    Raises:
        SourceError: it is a URI of another kind. Folders must be mounted: renames in them must be atomic.
    """
    text = os.fspath(folder)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise SourceError(f"{text} is not on a mounted file system: give a path, or a file: URI")
        text = unquote(re.sub(r"^file:(//)?", "", text, flags=re.IGNORECASE))
    return Path(os.path.abspath(text))


def stream_files(spark: SparkSession, folder: Path, max_files: int) -> DataFrame:
    """Return the stream of the files that arrive under ``folder``, at most ``max_files`` a batch: path and
    length.

    Files must appear whole (written elsewhere, then renamed here) and not change afterwards. Names that
    begin with ``_`` or ``.`` are not looked at. Sub-folders are.
    """
    return (
        spark.readStream.format("binaryFile")
        .schema(_SCHEMA)
        .option("recursiveFileLookup", True)
        .option("maxFilesPerTrigger", max_files)
        # Without this, a file whose time stamp lies 7 days behind the newest one's is left out in silence.
        .option("maxFileAge", "36500d")
        .load(_GLOB.sub(r"\\\1", str(folder)))
        .select("path", "length")
    )


def batch_files(checkpoint: Path, batch: int) -> list[Path]:
    """Return the files of a batch, sorted, as Spark's checkpoint has them.

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
    """Return the batches of which Spark still has the plan, ascending: the newest hundred or so."""
    return [batch for batch, _ in log_files(checkpoint / "offsets")]


def done_batches(checkpoint: Path) -> list[int]:
    """Return the batches that Spark has done and still knows of, ascending."""
    return [batch for batch, _ in log_files(checkpoint / "commits")]


def listed_files(checkpoint: Path, batch: int) -> list[Path]:
    """Return every file that Spark has handed over in any batch up to this one, in its order."""
    last = log_offset(checkpoint, batch)
    folder = checkpoint / "sources" / "0"
    compact = [int(path.stem) for path in folder.glob("*.compact") if path.stem.isdecimal()]
    # A compact entry has all files before it too, and those before it may be gone.
    first = max((entry for entry in compact if entry <= last), default=0)
    found: list[Path] = []
    for entry in range(first, last + 1):
        records = _file_list(folder, entry, whole=entry == first)
        found += [local_folder(record["path"]) for record in records]
    return found


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of one of Spark's logs by their numbers, ascending; a ``.compact`` one by its own."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        number = path.name.removesuffix(".compact")
        if number.isdecimal():
            found.append((int(number), path))
    return sorted(found)


def log_offset(checkpoint: Path, batch: int) -> int:
    """Return the last entry of the file list that belongs to a batch or one before it. Raises SourceError."""
    path = checkpoint / "offsets" / str(batch)
    lines = log_lines(path)
    try:
        return int(json.loads(lines[-1])["logOffset"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SourceError(f"{path} is not written as this release of Spark is known to write it") from error


def _file_list(folder: Path, entry: int, *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the files of an entry of Spark's list; if ``whole``, also those before it in a compact one."""
    path = folder / str(entry)
    if not path.exists():
        path = folder / f"{entry}.compact"
    try:
        # A compact entry holds every file ever seen; only the lines of this entry are worth parsing.
        mark = "" if whole else f'"batchId":{entry}}}'
        return [json.loads(line) for line in log_lines(path)[1:] if mark in line]
    except ValueError as error:
        raise SourceError(f"{path} is not written as this release of Spark is known to write it") from error


def log_lines(path: Path) -> list[str]:
    """Return the lines of one of Spark's logs, the first of which is its version. Raises SourceError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SourceError(f"Spark's checkpoint is damaged: {path}: {error.strerror}") from error
    if lines[0] != "v1":
        raise SourceError(f"{path} has version {lines[0][:20]!r}; this release knows v1 of Spark's logs")
    return [line for line in lines if line]
