"""One batch of the fan-out, from the files' paths to published output.

Five steps; a crash between any two of them changes nothing in the outcome::

    committed already? ─no→ pin the revision ─→ plan the splits ─→ match and write, staged ─→ commit ─→
    publish
                       └yes→ publish what is not yet published; skip

A backfill (see `backfill`) is a batch of its own that takes the same steps from the plan on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from selectroute.spark.commits import CommitError, Commits, inputs_digest
from selectroute.spark.job import Job
from selectroute.spark.pins import Pin, pin, reference
from selectroute.spark.plan import Split, plan, source_name
from selectroute.spark.sinks import Counts
from selectroute.spark.snapshots import SnapshotRef
from selectroute.spark.worker import Work

Runner: TypeAlias = Callable[[list[list[Split]], Work], list[dict[str, Any]]]
"""Runs the tasks of a batch, wherever, and returns their reports."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a batch did: its revision, its counts, and the seconds of each step (pin, plan, match, commit).

    ``skipped``: it had been committed before, and nothing was done; the counts are those of the commit.
    ``missing``: of a backfill, whose number is below 0: what can't be read again, a sentence each.
    """

    batch: int
    revision: int
    files: int
    counts: Counts
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: bool = False
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backfill:
    """What makes a batch a backfill.

    Attributes:
        snapshot: makes the snapshot of its subscriptions, in its staging folder.
        record: what its commit says of it.
    """

    snapshot: Callable[[Path], SnapshotRef]
    record: dict[str, Any]


class Router:
    """Routes the batches of one job, one after another. Knows of no stream: whoever calls numbers the
    batches."""

    def __init__(self, job: Job, run: Runner, tasks: int) -> None:
        self.job = job
        self.commits = Commits(job.output)
        self._run = run
        self._tasks = tasks

    def route(self, batch: int, paths: Sequence[Path], query: str) -> BatchReport:
        """Route one batch and return what it did; a batch that was committed before is skipped.

        Args:
            batch: its number. The same number must always come with the same files.
            paths: the files of the batch.
            query: whose lease in the snapshot folder holds the revision.

        Raises:
            PinError, SnapshotError: the revision can't be had.
            CommitError: messages are unaccounted for, or the batch was committed with other files.
        """
        clock = Clock()
        inputs = self._inputs(paths)
        committed = self.commits.read(batch)
        if committed is not None:
            return self._skip(committed, inputs)
        pinned = pin(batch, self.job.output / "pins", self.job.snapshots, query)
        clock.lap("pin")
        return self.write(pinned, paths, clock)

    def write(
        self, pinned: Pin, paths: Sequence[Path], clock: Clock, backfill: Backfill | None = None
    ) -> BatchReport:
        """Route the files of a pinned batch and publish what comes of it: from the plan to the accounting.

        With ``backfill`` it is one: routed against the snapshot that this makes, and what matches none of
        its subscriptions is listed nowhere.

        Raises:
            SnapshotError, CommitError: as `route`.
        """
        batch, live = pinned.batch, backfill is None
        tasks = plan(paths, self.job.input, self.job.file_format, self._tasks)
        staging = self.commits.stage(batch)
        snapshot = reference(pinned, self.job.snapshots) if backfill is None else backfill.snapshot(staging)
        clock.lap("plan")
        work = Work(
            snapshot,
            str(staging / "attempts"),
            live and self.job.unrouted == "keep",
            self.job.max_message_bytes,
        )
        counts, written = self._match(batch, tasks, work)
        clock.lap("match")
        if live and self.job.unrouted == "fail" and counts.unrouted:
            raise CommitError(
                f"batch {batch} has {counts.unrouted} messages that nobody wants; nothing of it was published"
            )
        commit = {
            **asdict(pinned),
            "staging": staging.name,
            "inputs": self._inputs(paths),
            "counts": asdict(counts),
            "files": self.commits.collect(batch, staging, written),
            "committed": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if backfill is not None:
            commit["backfill"] = backfill.record
        self.commits.commit(commit)
        self.commits.publish(commit)
        self.commits.account(commit)
        clock.lap("commit")
        return BatchReport(batch, pinned.revision, len(paths), counts, clock.seconds)

    def _inputs(self, paths: Sequence[Path]) -> dict[str, Any]:
        """The files of a batch as its commit has them: a backfill reads them again by their names."""
        sizes = {source_name(path, self.job.input): file_size(path) for path in paths}
        return {"count": len(sizes), "sha256": inputs_digest(sizes), "sizes": sizes}

    def _skip(self, committed: dict[str, Any], inputs: dict[str, Any]) -> BatchReport:
        batch = committed["batch"]
        if any(committed["inputs"][name] != inputs[name] for name in ("count", "sha256")):
            raise CommitError(
                f"batch {batch} was committed with other input files: the checkpoint {self.job.checkpoint} "
                f"is older than the output folder {self.job.output}; put the newest one back, or choose a "
                "new output folder"
            )
        self.commits.publish(committed)
        counts = Counts(**committed["counts"])
        return BatchReport(batch, committed["revision"], inputs["count"], counts, skipped=True)

    def _match(self, batch: int, tasks: list[list[Split]], work: Work) -> tuple[Counts, list[dict[str, Any]]]:
        """Run the tasks; return what became of the messages and which files were written."""
        reports = sorted(self._run(tasks, work), key=lambda report: int(report["task"])) if tasks else []
        if [report["task"] for report in reports] != list(range(len(tasks))):
            raise CommitError(f"batch {batch} had {len(tasks)} tasks and {len(reports)} reports")
        counts = Counts()
        written: list[dict[str, Any]] = []
        for report, splits in zip(reports, tasks, strict=True):
            counts.add(Counts(**report["counts"]))
            written += report["files"]
            self._check_rows(batch, splits, report["rows"])
        return counts, written

    def _check_rows(self, batch: int, splits: list[Split], rows: list[int]) -> None:
        """Hold what was read against what the footers promised: no row is lost between plan and worker."""
        for split, came in zip(splits, rows, strict=True):
            if split.rows not in (-1, came):
                raise CommitError(
                    f"batch {batch}: {split.source} has {split.rows} rows to read, and {came} came: the file "
                    "changed meanwhile; files must not change once they are in the input folder"
                )


def file_size(path: Path) -> int | None:
    """Return the bytes of a file, None if it is gone or can't be looked at."""
    try:
        return path.stat().st_size
    except OSError:
        return None


class Clock:
    """Seconds since the last lap, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 4)
        self._last = now
