"""Status of a job from its output folder: progress, totals, and whether it is running."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from selectroute.index.folder.manifest import revisions
from selectroute.spark.batch.changed_inputs import LOOKED_AT, changed_files
from selectroute.spark.batch.commits import BACKFILL, REPLAY, STREAM, Commits, kind_of
from selectroute.spark.folder import is_owned
from selectroute.spark.job import job_record
from selectroute.spark.replay.request import waiting
from selectroute.spark.sources.checkpoint import planned_batches
from selectroute.spark.tables.schemas import Counts
from selectroute.spark.working_copy import read_only_copy
from selectroute.storage.location import Where


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of a job.

    Attributes:
        query: the id of Spark's query; None before the first batch.
        input, snapshots, checkpoint: the job's folders.
        running: whether a process owns the output folder.
        batches, backfills, replays: numbers of committed ones.
        batch, revision, committed: the newest batch of the stream, its revision, and the time of its commit
            (RFC 3339, UTC); None before the first.
        published: the newest revision in the snapshot folder; None if there is none.
        planned: batches that are planned and not committed: running or interrupted.
        counts: the counts of all batches of the stream.
        changed: those of the newest 2,000 input files that were changed after they were read, as paths below
            the input folder: the new content is not read.
        waiting: ids of the requests for a replay that the job has not carried out.
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
    waiting: tuple[str, ...] = ()


def status(output: Where) -> JobStatus:
    """Return the status of a job, from O(batches) small files. Needs no Spark; the job may be running.

    Raises:
        JobError: the folder is not a job's.
        DamagedFileError: a commit is damaged.
    """
    record = job_record(output)
    commits = Commits(output)
    counts, kinds = Counts(), Counter[str]()
    newest: dict[str, Any] = {}
    for commit in commits.all():
        kinds[kind_of(commit)] += 1
        if kind_of(commit) == STREAM:
            counts.add(Counts(**commit["counts"]))
            newest = commit
    last = newest.get("batch")
    planned = planned_batches(read_only_copy(record["checkpoint"]))
    return JobStatus(
        query=record["query"],
        input=record["input"],
        snapshots=record["snapshots"],
        checkpoint=record["checkpoint"],
        running=is_owned(output),
        batches=kinds[STREAM],
        backfills=kinds[BACKFILL],
        replays=kinds[REPLAY],
        batch=last,
        revision=newest.get("revision"),
        committed=newest.get("committed"),
        published=max(revisions(record["snapshots"]), default=None),
        planned=tuple(batch for batch in planned if batch > (-1 if last is None else last)),
        counts=counts,
        changed=tuple(file.source for file in changed_files(commits, record["input"], LOOKED_AT)),
        waiting=tuple(request.stem for request in waiting(output)),
    )
