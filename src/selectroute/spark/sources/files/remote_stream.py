"""Source of Spark's stream that plans batches of files in remote storage; the tasks read them.

Spark asks it, in a process of its own, which files the next batch has, and writes the answer to its
checkpoint, ``offsets/<batch>``: ``{"number": 7, "files": [["a/x.parquet", 1234]]}``. A file is planned once,
by its name, as soon as the storage lists it, those that were changed first before the others.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from selectroute.spark.sources.files.stream import SourceError, log_lines
from selectroute.storage import Location
from selectroute.storage.patient import WAITED_FOR

NAME: Final = "selectroute-files"
_SCHEMA: Final = "number long"

_PATIENCE_SECONDS: Final = 120.0
"""How long a job that ends with the available input waits for the storage."""

_PAUSE_SECONDS: Final = 0.5

_log = logging.getLogger(__name__)


class RemoteFile(NamedTuple):
    """File of a batch: its name below the input folder, and its size in bytes."""

    name: str
    size: int


def files_source(folder: str, limit: int, known: Iterable[str]) -> type[DataSource]:
    """Return the source of a job's files, to be registered; it travels to Spark's processes by value.

    Args:
        folder: URL of the folder.
        limit: maximum number of files of a batch.
        known: names of the files that committed batches have read.
    """
    return type("RemoteFiles", (_FileListSource,), {"folder": folder, "limit": limit, "known": tuple(known)})


def planned_files(checkpoint: Path, batch: int) -> list[RemoteFile]:
    """Return the files of a batch from Spark's offset log. Raises SourceError."""
    path = checkpoint / "offsets" / str(batch)
    try:
        return [RemoteFile(*one) for one in json.loads(log_lines(path)[-1])["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is damaged, or not in the format of this release") from error


class _FileListSource(DataSource):
    folder: ClassVar[str]
    limit: ClassVar[int]
    known: ClassVar[tuple[str, ...]]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FileLister(Location.of(self.folder), self.limit, self.known)


class FileLister(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planner of one stream. Spark calls it from one thread.

    Args:
        folder: the folder.
        limit: maximum number of files of a batch.
        known: names of the files that committed batches have read.
    """

    def __init__(self, folder: Location, limit: int, known: Iterable[str]) -> None:
        self._folder = folder
        self._limit = limit
        self._planned = set(known)
        self._target: set[str] | None = None
        self._answers = True

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the first batch."""
        return {"number": 0, "files": []}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return that the source limits batches itself."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the files of the next batch; its start, if there are none or the storage does not answer."""
        # Only what Spark has planned counts: it may ask twice for one batch.
        self._planned.update(name for name, _ in start["files"])
        listed = self._listed(0.0 if self._target is None else _PATIENCE_SECONDS)
        if listed is None:
            return start
        found = [one for one in listed if one[1] not in self._planned]
        if self._target is not None:
            found = [one for one in found if one[1] in self._target]
        if not found:
            return start
        files = [[name, size] for _, name, size in sorted(found)[: self._limit]]
        return {"number": start["number"] + 1, "files": files}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the files that are there now as all of the stream."""
        self._target = {name for _, name, _ in self._listed(_PATIENCE_SECONDS) or ()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return none: the tasks of a batch read its files."""
        return []

    def read(self, partition: InputPartition) -> Any:
        """Return no rows."""
        return iter(())

    def _listed(self, seconds: float) -> list[tuple[float, str, int]] | None:
        """Return the files of the folder: when each was changed, its name, and its size. If the storage does
        not answer, warn once, and ask again for so many seconds: then return None, or with some raise the
        error, since Spark would take the stream for read.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = [*self._entries()]
            except WAITED_FOR as error:
                if self._answers:
                    _log.warning("selectroute: %s: the stream waits", error)
                self._answers = False
                if not seconds:
                    return None
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
            else:
                self._answers = True
                return found

    def _entries(self) -> Iterator[tuple[float, str, int]]:
        for entry in self._folder.entries(deep=True):
            name = Location(self._folder.storage, entry.key).relative_to(self._folder)
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield entry.modified, name, entry.size
