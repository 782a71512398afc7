"""Offsets of a batch in Spark's checkpoint, of sources of any kind.

``offsets/<batch>`` has a line for each source, in the order of the query: the end of the batch there, in the
source's own form. The end of the previous batch is the start. Spark writes the file before the batch begins,
and a repeat of the batch reads it: a source that replays gives the same rows for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from selectroute.spark.sources.files.stream import log_lines

FRAME: Final = "frame:"
"""Prefix of an input's name, before that of a DataFrame."""

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
        found = json.loads(line)
        return int(found["logOffset"])
    except (ValueError, TypeError, KeyError):
        return None
