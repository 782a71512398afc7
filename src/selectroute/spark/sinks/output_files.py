"""Folders and names of the files that the tasks of a batch write."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selectroute.spark.sinks.schemas import SINKS


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Folders of a batch's files, by sink.

    Attributes:
        folders: the folder of each sink.
        batch: the value of the column `batch` in each row; None if the files have no such column.
    """

    folders: Mapping[str, str]
    batch: int | None = None

    @classmethod
    def staged(cls, folder: Path) -> OutputFiles:
        """Return files of all sinks in one folder, from which they will be moved."""
        return cls(dict.fromkeys(SINKS, str(folder)))

    def path(self, sink: str) -> Path:
        """Return a new path. Each attempt has its own: a task that runs twice never overwrites a file."""
        name = sink if self.batch is None else f"part-{self.batch}"
        return Path(self.folders[sink], f"{name}-{uuid.uuid4().hex}.parquet")

    def discard(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Remove reported files of an attempt that does not count."""
        for file in files:
            Path(self.folders[file["sink"]], file["path"]).unlink(missing_ok=True)
