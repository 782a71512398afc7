"""Input files as a committed batch read them, and whether they are still the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from selectroute.selector.explain.sentences import counted
from selectroute.storage.protocol import Entry

_CLOCK_SECONDS: Final = 2.0
"""Maximum difference between the clocks of a file server and of the driver."""


class ReadFile(NamedTuple):
    """Input file as a batch has read it.

    ``source`` is its path below the input folder; ``size`` is in bytes; ``modified`` is when it was last
    changed, and ``read_by`` the time by which it had been read, both in seconds since 1970. ``size`` and
    ``modified`` are None where the commit has none.
    """

    batch: int
    source: str
    size: int | None
    modified: float | None
    read_by: float

    def change(self, entry: Entry) -> str | None:
        """Return the change since, as a clause; None if the file is the same."""
        if self.size is not None and entry.size != self.size:
            return f"it has {counted(entry.size, 'byte')}, and had {self.size:,}"
        if self.modified is None:
            return "it was written later" if entry.modified > self.read_by else None
        if self._has_time_of(entry):
            return None
        return f"it was {'written later' if entry.modified > self.modified else 'replaced by an older file'}"

    def is_same(self, entry: Entry | None) -> bool:
        """Return whether the file can be read again as it was; never without a size.

        Where the commit has no time of change, the size decides: in remote storage, where a restored file
        gets another time.
        """
        if entry is None or self.size is None:
            return False
        return entry.size == self.size and (self.modified is None or self._has_time_of(entry))

    def _has_time_of(self, entry: Entry) -> bool:
        # Archives keep whole seconds.
        return self.modified is not None and entry.modified in (self.modified, float(int(self.modified)))


def read_files(commit: Mapping[str, Any]) -> list[ReadFile]:
    """Return the files that a batch has read; none for records of Kafka, and rows."""
    inputs = commit.get("inputs", {})
    sizes = inputs.get("sizes", {})
    if not sizes:
        return []
    read_by = datetime.fromisoformat(commit["committed"]).timestamp() + _CLOCK_SECONDS
    times = inputs.get("modified", {})
    return [
        ReadFile(commit["batch"], source, size, times.get(source), read_by) for source, size in sizes.items()
    ]
