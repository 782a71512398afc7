"""Planner of a stream of files: which files the next batch has. The workers read them.

The plan is in Spark's checkpoint, ``offsets/<batch>``: ``{"number": 7, "files": [["a/x.parquet", 1234]]}``. A
file is planned once, by its name, as soon as the storage lists it; those that were changed first come first.
Sub-folders are included; names that begin with ``_`` or ``.`` are ignored. Spark's own listing would pass
over names that its JVM can't spell, and files much older than the newest one.

The folder is listed again while a batch is routed, so that the next one need not wait for that if there are
more files.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from selectroute.spark.sources.checkpoint import SourceError, log_lines
from selectroute.spark.sources.planner import PATIENCE_SECONDS, Planner
from selectroute.storage import Location
from selectroute.storage.patient import WAITED_FOR
from selectroute.storage.protocol import UnreachableError

NAME: Final = "selectroute-files"

_PAUSE_SECONDS: Final = 0.5


class PlannedFile(NamedTuple):
    """File of a batch: its name below the input folder, and its size in bytes."""

    name: str
    size: int


def planned_files(checkpoint: Path, batch: int) -> list[PlannedFile]:
    """Return the files of a batch from Spark's offset log. Raises SourceError."""
    path = checkpoint / "offsets" / str(batch)
    try:
        return [PlannedFile(*entry) for entry in json.loads(log_lines(path)[-1])["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is damaged, or not in the format of this release") from error


_File = tuple[float, str, int]
"""Listed file: when it was changed, its name, and its size in bytes."""


class FileLister(Planner):
    """Planner of a stream of files.

    Args:
        folder: URL of the folder.
        limit: maximum number of files of a batch.
        known: names of the files that committed batches have read.
    """

    def __init__(self, folder: str, limit: int, known: Iterable[str]) -> None:
        super().__init__()
        self._folder = Location.of(folder)
        self._limit = limit
        self._planned = set(known)
        self._target: set[str] | None = None
        self._ahead: Future[list[_File]] | None = None

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
        listed = self._listed_ahead()
        new = self._new(listed)
        # A listing made since the start has all files that were available at the start.
        if not new and (listed is None or self._target is None):
            new = self._new(self._listed(0.0 if self._target is None else PATIENCE_SECONDS))
        if not new:
            return start
        self._list_ahead()
        files = [[name, size] for _, name, size in sorted(new)[: self._limit]]
        return {"number": start["number"] + 1, "files": files}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the files that are there now as all of the stream."""
        self._target = {name for _, name, _ in self._listed(PATIENCE_SECONDS) or ()}

    def _new(self, listed: list[_File] | None) -> list[_File]:
        """Return the listed files that are not planned, and are part of the stream."""
        new = [file for file in listed or () if file[1] not in self._planned]
        return new if self._target is None else [file for file in new if file[1] in self._target]

    def _list_ahead(self) -> None:
        """Begin to list the files. A daemon does it: the process of the planner ends at any time."""
        listing: Future[list[_File]] = Future()

        def work() -> None:
            try:
                listing.set_result([*self._entries()])
            except BaseException as error:
                listing.set_exception(error)

        threading.Thread(target=work, name="selectroute-lister", daemon=True).start()
        self._ahead = listing

    def _listed_ahead(self) -> list[_File] | None:
        """Return the files that were listed while the last batch was routed; None if they were not, or the
        storage did not answer: it is asked again.
        """
        ahead, self._ahead = self._ahead, None
        return None if ahead is None or ahead.exception() is not None else ahead.result()

    def _listed(self, seconds: float) -> list[_File] | None:
        """Return the files of the folder. If the storage does not answer in so many seconds, return None, or
        with some raise the error, since Spark would take the stream for read.
        """
        listed = self.asked(lambda: [*self._entries()], WAITED_FOR, seconds, _PAUSE_SECONDS)
        if listed is None and seconds and self.outage is not None:
            raise self.outage
        return listed

    def _entries(self) -> Iterator[_File]:
        if self._folder.is_missing():
            raise UnreachableError(f"the input folder {self._folder} does not exist")
        for entry in self._folder.entries(deep=True):
            name = Location(self._folder.storage, entry.key).relative_to(self._folder)
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield entry.modified, name, entry.size
