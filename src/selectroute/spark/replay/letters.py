"""Dead letters of a job: all of them, and those not yet replayed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.spark.batch.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.job.job import job_record
from selectroute.spark.replay.request import ReplayFilterSpec, Request
from selectroute.spark.sinks.schemas import DEAD_LETTERS
from selectroute.spark.tables.open_tables import open_tables
from selectroute.spark.worker.replay_filter import LETTERS, Scope
from selectroute.storage.location import Where

REASONS: Final[Mapping[str, frozenset[str]]] = {
    "read": frozenset(
        {
            "unreadable-file",
            "unknown-format",
            "link-outside",
            "corrupt-row-group",
            "not-utf-8",
            "too-large",
            "too-many-headers",
            "no-position",
            "unknown-schema",
            "registry-unreachable",
        }
    ),
    "parse": frozenset({"not-json", "too-deep", "not-a-message"}),
    "judge": frozenset({"not-of-its-type", "column-type", "ambiguous-column", "selection-not-available"}),
    "deliver": frozenset(
        {
            "unknown-topic",
            "input-topic",
            "unknown-queue",
            "destination-full",
            "destination-refused",
            "too-large",
            "not-for-queues",
            "not-for-kafka",
        }
    ),
}
"""Reasons of dead letters by stage, including those of earlier releases."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input or delivery that could not be read, judged or delivered.

    Attributes:
        batch: the batch of the dead letter; below 0 for a side batch.
        stage, reason, message: the stage, the reason, and the error text.
        source, partition, offset: the position; ``offset`` is None for a whole file.
        revision: the revision of the batch.
        subscription: of a refused delivery only; other deliveries of the message are not affected.
        raw: the original bytes, possibly truncated; None if they are still in the source. Of a Kafka record
            the value; ``key`` and ``headers`` are the record's, too.
    """

    batch: int
    stage: str
    reason: str
    message: str
    source: str
    partition: int
    offset: int | None
    revision: int
    subscription: str | None
    raw: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def dead_letters(
    output: Where,
    *,
    batches: Collection[int] = (),
    stages: Collection[str] = (),
    reasons: Collection[str] = (),
    subscriptions: Collection[str] = (),
) -> Iterator[DeadLetter]:
    """Yield a job's dead letters of these batches, stages, reasons and subscriptions; empty means all. The
    rest is that of `wanted_letters`.
    """
    wanted = ReplayFilterSpec(tuple(batches), tuple(stages), tuple(reasons), tuple(subscriptions))
    return wanted_letters(output, wanted)


def wanted_letters(
    output: Where, wanted: ReplayFilterSpec, *, newest_first: bool = False, left_only: bool = False
) -> Iterator[DeadLetter]:
    """Yield the dead letters of a job that a filter finds, ordered by batch; with ``left_only`` those that no
    replay took.

    Holds some thousands of rows at a time. Skips a file that is removed during the call.

    Raises:
        JobError: the folder is not a job's, or a file in it can't be read.
    """
    job_record(output)
    tables, history = open_tables(output), History(Commits(output))
    if left_only:
        history.read()
    for batch in sorted(tables.batches(DEAD_LETTERS), reverse=newest_first):
        if wanted.batches and batch not in wanted.batches:
            continue
        for rows in tables.rows(DEAD_LETTERS, batch):
            mask = _left(pa.Table.from_batches([rows]), wanted, history.taken[batch])
            for row in rows.filter(pa.array(mask)).to_pylist():
                yield _letter(batch, row)


def _left(
    rows: pa.Table, wanted: ReplayFilterSpec, taken_of: Sequence[TakenLetters]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the letters of a batch that are wanted and that none of these replays took."""
    table = rows.select(LETTERS.names).cast(LETTERS)
    mask = wanted.mask(table)
    for taken in taken_of:
        mask &= ~taken.mask(table)
    return mask


def _letter(batch: int, row: dict[str, Any]) -> DeadLetter:
    headers = row.pop("headers", None)
    pairs = None if headers is None else tuple((one["key"], one["value"]) for one in headers)
    return DeadLetter(batch, **row, headers=pairs)


@dataclass(frozen=True, slots=True)
class TakenLetters:
    """Letters of its batches that an earlier replay took: all but those whose inputs were gone."""

    wanted: ReplayFilterSpec
    missing: frozenset[str]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TakenLetters:
        """Read the record in a replay's commit."""
        missing = frozenset(name for one in record["missing"] for name in one["files"])
        return cls(ReplayFilterSpec.from_json(record["wanted"]), missing)

    def mask(self, letters: pa.Table) -> npt.NDArray[np.bool_]:
        """Return a mask of the letters of one of these batches that were taken."""
        found = self.wanted.mask(letters)
        if self.missing:
            gone = pa.array(sorted(self.missing), pa.string())
            found &= ~pc.is_in(letters["source"], gone).to_numpy()
        return found


def batches_with_letters(output: Where) -> set[int]:
    """Return the batches with published dead letters, committed or not."""
    return open_tables(output).batches(DEAD_LETTERS)


def letters_left(
    output: Where, batch: int, wanted: ReplayFilterSpec, taken_of: Sequence[TakenLetters]
) -> pa.Table:
    """Return the wanted letters of a batch that no replay took, as `LETTERS`; none if its folder was moved
    away.

    Raises:
        JobError: a file of dead letters can't be read.
    """
    found = open_tables(output).rows(DEAD_LETTERS, batch, LETTERS.names)
    parts = [pa.Table.from_batches([rows]).cast(LETTERS) for rows in found]
    table = pa.concat_tables([LETTERS.empty_table(), *parts])
    return table.filter(pa.array(_left(table, wanted, taken_of)))


def messages_in(letters: pa.Table) -> int | None:
    """Return the number of messages of these letters; None if a letter is for a whole file."""
    if letters["offset"].null_count:
        return None
    return len(letters.group_by(["source", "partition", "offset"]).aggregate([]))


class History:
    """History of backfills and replays from the commits: batches given to subscriptions, letters taken."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._read_to = 0
        self._kinds: dict[int, str] = {}
        self._records: dict[int, dict[str, Any]] = {}
        self._given: defaultdict[int, set[str]] = defaultdict(set)
        self.taken: defaultdict[int, list[TakenLetters]] = defaultdict(list)
        """Letters of a batch that replays took."""
        self.replays: defaultdict[str, list[int]] = defaultdict(list)
        """Replays of a request."""
        self.handled: defaultdict[str, set[int]] = defaultdict(set)
        """Batches of the replays of a request."""

    def read(self) -> None:
        """Read the commits since the last call."""
        for number in range(self._read_to - 1, self._commits.next_side_batch(), -1):
            commit = self._commits.read(number) or {}
            self._kinds[number] = kind = kind_of(commit)
            record = self._records[number] = commit.get(kind, {})
            if kind == BACKFILL:
                for batch in record["batches"]:
                    self._given[batch].update(record["subscriptions"])
            elif kind == REPLAY:
                taken = TakenLetters.of(record)
                for batch in record["batches"]:
                    self.taken[batch].append(taken)
                self.replays[record["request"]].append(number)
                self.handled[record["request"]].update(record["batches"])
            self._read_to = number

    def only(self, batch: int) -> tuple[str, ...] | None:
        """Return the subscriptions to which the letters of a batch are restricted; None for all."""
        if batch >= 0:
            return None
        record = self._records[batch]
        found = record["subscriptions"] if self._kinds[batch] == BACKFILL else record["only"]
        return None if found is None else tuple(found)

    def origins(self, batch: int) -> frozenset[int]:
        """Return the batches of the stream from which the letters of a batch come."""
        todo, found = [batch], set()
        while todo:
            one = todo.pop()
            if one >= 0:
                found.add(one)
            else:
                todo += self._records[one]["batches"]
        return frozenset(found)

    def scope(self, origin: int, only: tuple[str, ...] | None) -> Scope:
        """Return the subscriptions that may get the dead-lettered messages of a batch of the stream."""
        return Scope(None, tuple(sorted(self._given[origin]))) if only is None else Scope(only)


def count_left(output: Where, request: Request) -> Counter[tuple[str, str]]:
    """Count the dead letters that a request would replay, by stage and reason.

    Raises:
        JobError: a file of dead letters can't be read.
    """
    found: Counter[tuple[str, str]] = Counter()
    for left in left_by_batch(output, request):
        found[left.stage, left.reason] += left.letters
    return found


class Left(NamedTuple):
    """Number of dead letters of a batch, stage and reason that no replay took."""

    batch: int
    stage: str
    reason: str
    letters: int


def left_by_batch(output: Where, request: Request) -> Iterator[Left]:
    """Yield the counts of the dead letters that a request would replay, the newest batch first.

    Raises:
        JobError: a file of dead letters can't be read.
    """
    commits = Commits(output)
    history = History(commits)
    history.read()
    for batch in sorted(batches_with_letters(output), reverse=True):
        if request.means(batch) and commits.is_committed(batch):
            letters = letters_left(output, batch, request.wanted, history.taken[batch])
            for row in letters.group_by(["stage", "reason"]).aggregate([([], "count_all")]).to_pylist():
                yield Left(batch, row["stage"], row["reason"], row["count_all"])
