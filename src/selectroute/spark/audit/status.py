"""Status of a job, read off its output folder: how far it is, what it did in all, whether it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selectroute.durable.lock import is_locked
from selectroute.index.errors import SnapshotError
from selectroute.index.folder.format import latest_revision
from selectroute.spark.batch.changed_inputs import LOOKED_AT, changed_files
from selectroute.spark.batch.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.job.job import job_record
from selectroute.spark.sinks.counts import Counts
from selectroute.spark.sources.files.stream import planned_batches


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a job as its folders have it.

    Attributes:
        query: the id of Spark's query, None before the first batch.
        input, snapshots, checkpoint: the job's folders.
        running: a process has the output folder in its hands now.
        batches, backfills, replays: how many are committed.
        batch, revision, committed: the newest batch of the stream, the revision that it was routed against,
            and when (RFC 3339, UTC); None before the first.
        published: the newest revision in the snapshot folder, None if there is none.
        planned: batches that Spark has planned and nobody has committed: one that runs, or was interrupted.
        counts: of all batches of the stream.
        changed: input files that changed after they were read, of the newest 2,000, as paths below the input
            folder: what they have now is not read.
    """

    query: str | None
    input: str
    snapshots: str
    checkpoint: str
    running: bool
    batches: int
    backfills: int
    replays: int
    batch: int | None
    revision: int | None
    committed: str | None
    published: int | None
    planned: tuple[int, ...]
    counts: Counts
    changed: tuple[str, ...] = ()


def status(output: Path) -> Status:
    """Return how far a job is. O(batches) small files; needs no Spark and can run beside the job.

    Raises:
        JobError: the folder is no job's.
        DamagedFileError: a commit is not what was written.
    """
    record = job_record(output)
    commits = Commits(output)
    batches = commits.batches()
    counts = Counts()
    newest: dict[str, Any] = {}
    for batch in batches:
        commit = commits.read(batch)
        if commit is not None:
            counts.add(Counts(**commits.counts(commit)))
            newest = commit
    kinds = [kind_of(commits.read(batch) or {}) for batch in commits.side_batches()]
    last = newest.get("batch")
    planned = planned_batches(Path(record["checkpoint"]))
    return Status(
        query=record["query"],
        input=record["input"],
        snapshots=record["snapshots"],
        checkpoint=record["checkpoint"],
        running=is_locked(output / "_lock"),
        batches=len(batches),
        backfills=kinds.count(BACKFILL),
        replays=kinds.count(REPLAY),
        batch=last,
        revision=newest.get("revision"),
        committed=newest.get("committed"),
        published=_published(Path(record["snapshots"])),
        planned=tuple(batch for batch in planned if batch > (-1 if last is None else last)),
        counts=counts,
        changed=tuple(one.source for one in changed_files(commits, Path(record["input"]), LOOKED_AT)),
    )


def _published(snapshots: Path) -> int | None:
    try:
        return latest_revision(snapshots)
    except SnapshotError:
        return None
