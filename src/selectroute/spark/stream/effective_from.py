"""Reports to a registry: the first batch of a query that was pinned to a revision or a later one.

The registry shows it as a change's ``effective_from``. Every first batch is reported, even if the registry
was not reachable when it was routed: the commits have the batches to report, and ``_cutoffs.json`` the
position of the last report. Reports are idempotent.
"""

from __future__ import annotations

from typing import Protocol

from selectroute.durable import disk
from selectroute.spark.batch.commits import Commits
from selectroute.spark.inputs.source import Source
from selectroute.spark.job.job import Job


class QueryReports(Protocol):
    """Registry that a query reports its batches to."""

    def note_query(self, query: str, *, source: str, can_replay: bool, reason: str | None) -> None:
        """Record a query, and whether its source can be read again; if not, the reason."""

    def note_batch(self, query: str, batch: int, revision: int) -> None:
        """Record that a batch was routed with a revision."""


class EffectiveFromReporter:
    """Reporter of one query's first batches."""

    def __init__(self, job: Job, commits: Commits, source: Source) -> None:
        self._job = job
        self._source = source
        self._commits = commits
        self._record = job.output / "_cutoffs.json"
        self._introduced = False
        reported = disk.read_json(self._record) or {"batch": -1, "revision": -1}
        self._batch: int = reported["batch"]
        self._revision: int = reported["revision"]

    def write_back(self, notes: QueryReports, query: str) -> None:
        """Report the new first batches. Raises the registry's errors; the next call continues there."""
        if not self._introduced:
            can_replay, reason = self._replayable()
            notes.note_query(query, source=self._job.source, can_replay=can_replay, reason=reason)
            self._introduced = True
        reported = self._revision
        try:
            while (commit := self._commits.read(self._batch + 1)) is not None:
                if commit["revision"] > self._revision:
                    notes.note_batch(query, commit["batch"], commit["revision"])
                    self._revision = commit["revision"]
                self._batch = commit["batch"]
        finally:
            if self._revision > reported:
                disk.write_json(self._record, {"batch": self._batch, "revision": self._revision})

    def _replayable(self) -> tuple[bool, str | None]:
        """Return whether the inputs of the newest batch can be read again; if not, the reason."""
        batches = self._commits.batches()
        commit = self._commits.read(batches[-1]) if batches else None
        if commit is None:
            return True, None
        (replayable,) = self._source.reread([commit], self._job.checkpoint)
        return (False, replayable.sentence) if replayable.gone else (True, None)
