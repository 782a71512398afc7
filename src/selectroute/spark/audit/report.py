"""Findings of an audit, and what it looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from selectroute.spark.sinks.counts import Counts

_SHOWN = 3
"""Names that a sentence shows of many."""


class Finding(NamedTuple):
    """Finding: something that does not agree; ``batch`` is None where it is about none in particular."""

    batch: int | None
    sentence: str


@dataclass(slots=True)
class Audit:
    """Report of an audit: what it looked at, and what it found.

    ``counts`` are those of the stream's batches, ``backfilled`` and ``replayed`` those of its backfills and
    replays, which count messages again. ``absent`` are committed folders that are not there any more: readers
    may move them or clear up. ``inputs`` are files, or offsets of Kafka, of which ``gaps`` have no record:
    marks of transactions, and what was compacted away. ``pending`` are batches that Spark has planned and
    nobody has committed: the next start routes them.
    """

    batches: int = 0
    backfills: int = 0
    replays: int = 0
    counts: Counts = field(default_factory=Counts)
    backfilled: Counts = field(default_factory=Counts)
    replayed: Counts = field(default_factory=Counts)
    inputs: int = 0
    gaps: int = 0
    recounted: int = 0
    files: int = 0
    bytes: int = 0
    absent: list[str] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def find(self, batch: int | None, sentence: str) -> None:
        """Note what does not agree."""
        self.findings.append(Finding(batch, sentence))


def listed_briefly(noun: str, names: Iterable[object]) -> str:
    """Return a few of many names and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _SHOWN:,} more" if len(every) > _SHOWN else ""
    return f"{noun} {', '.join(str(name) for name in every[:_SHOWN])}{more}"
