"""Folders and names of the files that the tasks of a batch write."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from selectroute.spark.sinks.schemas import SINKS
from selectroute.storage import Location


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Folders of a batch's files, by sink, as paths or URLs.

    Attributes:
        folders: the folder of each sink.
        batch: the value of the column `batch` in each row; None if the files have no such column.
    """

    folders: Mapping[str, str]
    batch: int | None = None

    @classmethod
    def staged(cls, folder: str) -> OutputFiles:
        """Return files of all sinks in one folder, from which they will be moved."""
        return cls(dict.fromkeys(SINKS, folder))

    def file(self, sink: str) -> Location:
        """Return a new file. Each attempt has its own: a task that runs twice never overwrites a file."""
        name = sink if self.batch is None else f"part-{self.batch}"
        return Location.of(self.folders[sink]) / f"{name}-{uuid.uuid4().hex}.parquet"

    def discard(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Remove reported files of an attempt that does not count."""
        for file in files:
            (Location.of(self.folders[file["sink"]]) / file["path"]).delete()
