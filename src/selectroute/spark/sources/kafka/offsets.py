"""Offsets: which records of Kafka are a batch's, as Spark's checkpoint has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from selectroute.spark.sources.files.stream import SourceError, log_lines


class Range(NamedTuple):
    """Records of one partition: from the offset ``start`` to the one before ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} offsets {self.start} to {self.end - 1}"


Offsets = Mapping[str, Mapping[str, int]]
"""The next offset of each partition of each topic."""


def batch_ranges(checkpoint: Path, batch: int) -> list[Range]:
    """Return the records of a batch, sorted, without partitions that have none of them.

    Reads the offset log (``offsets/<batch>``: where the batch ends) and that of the batch before it, or
    where the first one began (``sources/0/0``). A partition that was not there before begins at 0: Spark
    ends the stream if something of it is gone before it was met.

    Raises SourceError for what is damaged or missing.
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
    """Return the SHA-256 of a batch's ranges: a batch that comes again must have the same ones."""
    return hashlib.sha256("\0".join(map(str, sorted(ranges))).encode()).hexdigest()


def as_offsets(ranges: Iterable[Range], end: bool) -> dict[str, dict[str, int]]:
    """Return where ranges start, or end, as Spark's options and commits have offsets: where a partition has
    several, where the first one starts, or the last one ends.
    """
    found: dict[str, dict[str, int]] = {}
    for one in ranges:
        of_topic, partition = found.setdefault(one.topic, {}), str(one.partition)
        known = of_topic.get(partition, one.end if end else one.start)
        of_topic[partition] = max(known, one.end) if end else min(known, one.start)
    return found


def ranges_of(record: Mapping[str, Any]) -> list[Range]:
    """Return the ranges that a commit has."""
    return [
        Range(topic, int(partition), start, record["end"][topic][partition])
        for topic, partitions in record["start"].items()
        for partition, start in partitions.items()
    ]


def _logged(path: Path) -> Offsets:
    return _offsets(path, log_lines(path)[-1])


def first_offsets(checkpoint: Path) -> Offsets:
    """Return where the first batch began."""
    path = checkpoint / "sources" / "0" / "0"
    try:
        text = path.read_bytes().lstrip(b"\0").decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"Spark's checkpoint is damaged: {path}: {error}") from error
    return _offsets(path, text[text.find("{") :])


def _offsets(path: Path, text: str) -> Offsets:
    try:
        found = json.loads(text)
        if all(isinstance(n, int) for partitions in found.values() for n in partitions.values()):
            return found  # type: ignore[no-any-return]
    except (ValueError, AttributeError):
        pass
    raise SourceError(f"{path} is not written as this release of Spark is known to write it")
