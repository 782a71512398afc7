"""Output folder of a job as commands and services show it: progress, dead letters, replays, and an audit."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from selectroute.index.snapshot_files import revisions
from selectroute.job_output import AuditTotals, DeadLetter, LettersLeft, ReplayedBatch, ReplayProgress
from selectroute.spark.audit.audit import audit
from selectroute.spark.batch.changed_inputs import LOOKED_AT, changed_files
from selectroute.spark.batch.commits import BACKFILL, REPLAY, STREAM, Commits, kind_of
from selectroute.spark.batch.pins import read_pin
from selectroute.spark.job import Commit, job_record
from selectroute.spark.replay.letters import (
    History,
    LetterPlace,
    batches_with_letters,
    counts_left,
    left_by_batch,
    newest_letters,
)
from selectroute.spark.replay.request import (
    ALL,
    ReplayFilterSpec,
    as_of_now,
    is_request_id,
    letters_asked_for,
    open_requests,
    replays_of,
    waiting,
    write_request,
)
from selectroute.spark.sources.checkpoint import planned_batches
from selectroute.spark.tables.schemas import Counts
from selectroute.spark.working_copy import read_only_copy
from selectroute.storage import Location
from selectroute.storage.lease import is_owned
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
        running=is_owned(Location.of(output)),
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


MOST_COUNTED: Final = 100_000
"""Batches whose counts are remembered; those of more are counted at each call."""

_PLACE: Final = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_COUNTS: Final = ("messages", "routed", "unrouted", "dead_lettered", "deliveries")


class JobFolder:
    """Output folder of a job, which may not have run yet; see `JobOutput`.

    It remembers the commits of side batches, and the number of letters left of each batch: both only grow
    with new commits. Threads may share it.
    """

    def __init__(self, output: Where) -> None:
        self._output = Location.of(output)
        self._reading, self._counting = threading.Lock(), threading.Lock()
        self._query: object = None
        self._known: tuple[Commits, History] | None = None
        self._counts: dict[int, tuple[int, list[LettersLeft]]] = {}

    def has_run(self) -> bool:
        """Return whether the job has been started. Raises JobNotFoundError for another folder."""
        if next(self._output.entries(), None) is None:
            return False
        job_record(self._output)
        return True

    def is_held(self) -> bool:
        """Return whether a driver runs the job; see `is_owned`."""
        return is_owned(self._output)

    def letters(
        self,
        wanted: Mapping[str, Sequence[Any]],
        limit: int,
        *,
        left_only: bool = False,
        unasked_only: bool = False,
        after: str | None = None,
    ) -> list[tuple[str, DeadLetter]]:
        """Return the dead letters that a filter finds, those of the newest commit first, each with its
        ``place``. ``left_only``: exclude replayed letters; ``unasked_only``: exclude letters covered by a
        pending request; ``after``: start after this place. O(letters of the batches that are read).

        Raises:
            ValueError: ``after`` is not a place.
        """
        place = None if after is None else _place(after)
        letters = newest_letters(
            self._output,
            _filter(wanted),
            self._up_to_date(),
            after=place,
            left_only=left_only,
            asked=open_requests(self._output) if unasked_only else (),
        )
        return [(f"{place.batch}.{place.row}", letter) for place, letter in islice(letters, limit)]

    def left(self, wanted: Mapping[str, Sequence[Any]]) -> list[LettersLeft]:
        """Return the number of letters that were not replayed, by batch, the newest commit first, and how
        many of them a pending request covers.
        """
        history = self._up_to_date()
        request = as_of_now(self._output, _filter(wanted))
        return list(left_by_batch(self._output, request, history, open_requests(self._output)))

    def all_left(self) -> list[LettersLeft]:
        """Return the number of all letters that were not replayed, as `left`, without regard to requests. A
        batch is read only at the first call, and after a replay took letters of it.
        """
        history = self._up_to_date()
        commits, counts = Commits(self._output), self._counts
        counted: list[LettersLeft] = []
        with self._counting:
            batches = batches_with_letters(self._output)
            for gone in counts.keys() - batches:  # moved away by readers
                del counts[gone]
            for batch in history.newest_first(batches):
                replays = len(history.taken[batch])
                known = counts.get(batch)
                if known is None or known[0] != replays:
                    if not commits.is_committed(batch):
                        continue
                    new = replays, list(counts_left(self._output, batch, ALL, history))
                    if known is not None or len(counts) < MOST_COUNTED:
                        counts[batch] = new
                    known = new
                counted += known[1]
        return counted

    def binding(self) -> dict[str, Any] | None:
        """Return the binding of Kafka records as data, with ``schemas``: whether bodies have schemas; None if
        the job did not record it.
        """
        return job_record(self._output).get("kafka_binding")

    def waiting(self) -> list[str]:
        """Return the ids of the requests that the job has not carried out, the oldest first."""
        return [path.stem for path in waiting(self._output)]

    def replay(self, wanted: Mapping[str, Sequence[Any]], expected: int) -> tuple[str | None, int]:
        """File a request to replay the letters that a filter finds, if their number is as expected; return
        its id, or None, and their number. Later letters are not part of it, nor letters that a pending
        request covers.
        """
        history = self._up_to_date()
        request = as_of_now(self._output, _filter(wanted))
        left = left_by_batch(self._output, request, history, open_requests(self._output))
        number = sum(counts.letters - counts.asked for counts in left)
        if number != expected:
            return None, number
        write_request(self._output, replace(request, letters=number))
        return request.id, number

    def replayed(self, id: str) -> ReplayProgress:
        """Return how far a request is. Raises KeyError for an unknown request."""
        if not is_request_id(id):
            raise KeyError(id)
        done = replays_of(self._output, id)
        letters = letters_asked_for(self._output, id)
        history = self._up_to_date()
        made = list(history.replays[id]) if done is None else done
        commits = Commits(self._output)
        batches = [_replayed_batch(batch, commits.read(batch) or {}) for batch in made]
        making = None if done is not None else self._making(id, commits.next_side_batch())
        return ReplayProgress(
            request=id,
            done=done is not None,
            state="done" if done is not None else "waiting" if making is None else "running",
            letters=letters,
            taken=sum(batch.letters for batch in batches),
            batch=making,
            batches=batches,
        )

    def _making(self, id: str, next_batch: int) -> int | None:
        """Return the batch of a request that is pinned and not committed; None if there is none."""
        pinned = read_pin(next_batch, self._output / "pins")
        return next_batch if pinned is not None and pinned.request == id else None

    def _up_to_date(self) -> History:
        """Return the history of the job, with all commits. Raises JobError, DamagedFileError."""
        record = job_record(self._output)
        with self._reading:
            if self._known is None or record["query"] != self._query:  # of another job, in the same place
                commits = Commits(self._output)
                self._query, self._known, self._counts = record["query"], (commits, History(commits)), {}
            commits, history = self._known
            commits.look_again()
            history.read()
            return history

    def audit(self) -> AuditTotals:
        """Return the totals of an audit of sizes and rows, which does not read the published files."""
        report = audit(self._output, digests=False)
        names = ("batches", "backfills", "replays", "files", "bytes", "pending", "findings")
        return AuditTotals(
            **{name: getattr(report, name) for name in names}, **_some(asdict(report.counts), _COUNTS)
        )


def _replayed_batch(batch: int, commit: Commit) -> ReplayedBatch:
    """Return the batch of a replay, from its commit."""
    return ReplayedBatch(
        batch=batch,
        revision=commit["revision"],
        letters=commit[REPLAY]["letters"],
        missing=[gap["why"] for gap in commit[REPLAY]["missing"]],
        **_some(commit["counts"], (*_COUNTS, "refused")),
    )


def _some(counts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: counts[name] for name in names}


def _filter(wanted: Mapping[str, Sequence[Any]]) -> ReplayFilterSpec:
    return ReplayFilterSpec(**{name: tuple(values) for name, values in wanted.items()})


def _place(text: str) -> LetterPlace:
    parsed = _PLACE.fullmatch(text)
    if parsed is None:
        raise ValueError(f"{text!r} is not the place of a dead letter")
    return LetterPlace(int(parsed[1]), int(parsed[2]))
