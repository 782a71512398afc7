"""Offset ranges of a batch's Kafka records, in Spark's checkpoint and in commits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from selectroute.durable import disk
from selectroute.kafka.ranges import Range
from selectroute.spark.sources.files.stream import SourceError, log_lines

Offsets = Mapping[str, Mapping[str, int]]
"""The next offset of each partition of each topic."""


def batch_ranges(checkpoint: Path, batch: int) -> list[Range]:
    """Return the non-empty ranges of a batch, sorted.

    Reads the offset log (``offsets/<batch>``: the end of the batch) and that of the previous batch, or the
    start of the first one (``sources/0/0``). A new partition begins at 0: Spark fails the stream if its first
    records are already gone.

    Raises SourceError for a damaged or missing file.
    """
    ends = _logged(checkpoint / "offsets" / str(batch))
    starts = _logged(checkpoint / "offsets" / str(batch - 1)) if batch else first_offsets(checkpoint)
    found = [
        Range(topic, int(partition), starts.get(topic, {}).get(partition, 0), end)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    ]
    return sorted(one for one in found if one.end > one.start)


def ranges_digest(ranges: Iterable[Range]) -> str:
    """Return the SHA-256 of a batch's ranges, which a repeat of the batch must have, too."""
    return hashlib.sha256("\0".join(map(str, sorted(ranges))).encode()).hexdigest()


def as_offsets(ranges: Iterable[Range], end: bool) -> dict[str, dict[str, int]]:
    """Return the start or end of ranges, in the format of Spark's options and of commits: of several ranges
    of a partition the first start, or the last end.
    """
    found: dict[str, dict[str, int]] = {}
    for one in ranges:
        of_topic, partition = found.setdefault(one.topic, {}), str(one.partition)
        known = of_topic.get(partition, one.end if end else one.start)
        of_topic[partition] = max(known, one.end) if end else min(known, one.start)
    return found


def ranges_of(record: Mapping[str, Any]) -> list[Range]:
    """Return the ranges in the record of a commit."""
    return [
        Range(topic, int(partition), start, record["end"][topic][partition])
        for topic, partitions in record["start"].items()
        for partition, start in partitions.items()
    ]


def first_offsets(checkpoint: Path) -> Offsets:
    """Return the start of the first batch."""
    return _logged(_first(checkpoint))


def write_first_offsets(checkpoint: Path, first: Offsets) -> None:
    """Write the start of the first batch durably."""
    path = _first(checkpoint)
    disk.make_folder(path.parent)
    disk.replace_text(path, f"v1\n{json.dumps(first)}")


def has_first_offsets(checkpoint: Path) -> bool:
    """Return whether the start of the first batch was written."""
    return _first(checkpoint).is_file()


def _first(checkpoint: Path) -> Path:
    return checkpoint / "sources" / "0" / "0"


def _logged(path: Path) -> Offsets:
    try:
        found = json.loads(log_lines(path)[-1])
        if all(isinstance(n, int) for partitions in found.values() for n in partitions.values()):
            return found  # type: ignore[no-any-return]
    except (ValueError, AttributeError):
        pass
    raise SourceError(f"{path} is damaged, or not in the format of this release of Spark")
