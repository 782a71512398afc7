"""Reports to a registry from where a revision holds: the first batch of a query that was pinned to it or a
later one.

The registry shows it as a change's ``effective_from``. Only first batches are told, and each of them, also
those that were routed while the registry was out of reach: the commits have what is to tell, and
``_cutoffs.json`` how much of it was told. Telling it twice is harmless.
"""

from __future__ import annotations

from typing import Protocol

from selectroute.durable import disk
from selectroute.spark.batch.commits import Commits
from selectroute.spark.inputs.source import Source
from selectroute.spark.job.job import Job


class BatchReports(Protocol):
    """Registry as far as a query reports batches to it."""

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None) -> None:
        """Note that a query exists; whether what its source had can be read again, and if not, why."""

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Note that a batch was routed against a revision."""


class EffectiveFromReporter:
    """Reporter of one query: what it has told a registry."""

    def __init__(self, job: Job, commits: Commits, source: Source) -> None:
        self._job = job
        self._source = source
        self._commits = commits
        self._record = job.output / "_cutoffs.json"
        self._introduced = False
        told = disk.read_json(self._record) or {"batch": -1, "revision": -1}
        self._batch: int = told["batch"]
        self._revision: int = told["revision"]

    def write_back(self, notes: BatchReports, query: str) -> None:
        """Tell what was not told yet. Raises what the registry raises; the next call goes on from there."""
        if not self._introduced:
            can_replay, reason = self._replayable()
            notes.note_query(query, source=self._job.source, can_replay=can_replay, reason=reason)
            self._introduced = True
        told = self._revision
        try:
            while (commit := self._commits.read(self._batch + 1)) is not None:
                if commit["revision"] > self._revision:
                    notes.note_batch(query, commit["batch"], commit["revision"])
                    self._revision = commit["revision"]
                self._batch = commit["batch"]
        finally:
            if self._revision > told:
                disk.write_json(self._record, {"batch": self._batch, "revision": self._revision})

    def _replayable(self) -> tuple[bool, str | None]:
        """Return whether what was routed can be read again, going by the newest batch."""
        batches = self._commits.batches()
        commit = self._commits.read(batches[-1]) if batches else None
        if commit is None:
            return True, None
        (replayable,) = self._source.reread([commit], self._job.checkpoint)
        return (False, replayable.sentence) if replayable.gone else (True, None)
