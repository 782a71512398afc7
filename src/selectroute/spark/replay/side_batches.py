"""Side batches of a job: what backfills and replays have in common.

A side batch is numbered -1, -2, … and has its own commit, folders and line of the accounting, not counted in
the totals of the stream. Its pin includes its plan, and it has its own lease: the next batch of the stream
may use a newer revision before an interrupted side batch is finished.
"""

from __future__ import annotations

from typing import Any, ClassVar

from selectroute.index.folder.manifest import published_digest
from selectroute.spark.batch.pins import Pin, check_pinned, read_pin
from selectroute.spark.batch.router import Router
from selectroute.spark.columns.snapshot_ref import lease
from selectroute.spark.replay.letters import History


class SideBatches:
    """Side batches of one kind of one job. All must come between two batches of the stream.

    ``kind`` is that of their commits.
    """

    kind: ClassVar[str]

    def __init__(self, router: Router) -> None:
        self._router = router
        self._job = router.job
        self._commits = router.commits
        self._pins = router.job.output / "pins"
        self._history = History(router.commits)
        self._is_leased = True  # or may be: a crash may have come between commit and release

    def _interrupted(self) -> Pin | None:
        """Return the pin of a side batch that was interrupted by a crash; None if there is none.

        Raises:
            PinError: the pinned revision is gone or was replaced.
        """
        pinned = read_pin(self._commits.next_side_batch(), self._pins)
        if pinned is None or pinned.kind != self.kind:
            return None
        check_pinned(pinned, self._job.snapshots)
        return pinned

    def _pin(self, revision: int, query: str, **plan: Any) -> Pin:
        """Pin the next side batch durably, after its lease. Hold the lock of the snapshot folder."""
        snapshots, number = self._job.snapshots, self._commits.next_side_batch()
        pinned = Pin(number, revision, published_digest(snapshots, revision), self.kind, **plan)
        lease(snapshots, _lease_of(query), revision)
        self._pins.make_folder()
        (self._pins / f"{number}.json").put_json(pinned.to_json())
        return pinned

    def _release(self, query: str) -> None:
        """Release the lease of a committed side batch, if there may be one."""
        if self._is_leased:
            (self._job.snapshots / "leases" / f"{_lease_of(query)}.json").delete()
            self._is_leased = False


def _lease_of(query: str) -> str:
    """Return the lease's name, the same for backfills and replays: only one of them is made at a time."""
    return f"{query}-backfill"
