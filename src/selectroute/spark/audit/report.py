"""Findings and totals of an audit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from selectroute.job_output import Finding
from selectroute.spark.sinks.counts import Counts

_SHOWN = 3
"""Maximum number of names in a sentence."""


@dataclass(slots=True)
class Audit:
    """Report of an audit: totals and findings.

    ``counts`` are those of the stream's batches, ``backfilled`` and ``replayed`` those of backfills and
    replays, which count messages again. ``absent`` are published folders that were moved or removed by
    readers, which is allowed. ``inputs`` are files, or Kafka offsets, of which ``gaps`` have no record:
    transaction markers and compacted records. ``skipped`` are offsets before the first ones of partitions
    that were met later, whose records were gone by then. ``pending`` are batches that are planned and not
    committed, or committed and not published: the job or its next start finishes them.
    """

    batches: int = 0
    backfills: int = 0
    replays: int = 0
    counts: Counts = field(default_factory=Counts)
    backfilled: Counts = field(default_factory=Counts)
    replayed: Counts = field(default_factory=Counts)
    inputs: int = 0
    gaps: int = 0
    skipped: int = 0
    recounted: int = 0
    files: int = 0
    bytes: int = 0
    absent: list[str] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def find(self, batch: int | None, sentence: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(batch, sentence))


def listed_briefly(noun: str, names: Iterable[object]) -> str:
    """Return a few names and the number of the others."""
    every = list(names)
    more = f" and {len(every) - _SHOWN:,} more" if len(every) > _SHOWN else ""
    return f"{noun} {', '.join(str(name) for name in every[:_SHOWN])}{more}"
