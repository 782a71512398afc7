"""Dead letters of a job: all of them, and those not yet replayed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from selectroute.job_output import DeadLetter, LettersLeft
from selectroute.spark.batch.commits import BACKFILL, REPLAY, Commits, kind_of
from selectroute.spark.job import job_record
from selectroute.spark.replay.request import ALL, ReplayFilterSpec, Request
from selectroute.spark.tables.open_tables import open_tables
from selectroute.spark.tables.schemas import DEAD_LETTERS
from selectroute.spark.tables.tables import OutcomeTables
from selectroute.spark.task.replay_filter import LETTERS, Scope
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
    "judge": frozenset({"column-type", "ambiguous-column", "selection-not-available"}),
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
"""Reasons of dead letters by stage."""

_AT_ONCE: Final = 64
"""Letters that are made objects at a time, with their bytes."""


class LetterPlace(NamedTuple):
    """Place of a dead letter: its batch, and its row among the letters of the batch, which never change."""

    batch: int
    row: int


def wanted_letters(
    output: Where, wanted: ReplayFilterSpec = ALL, *, left_only: bool = False
) -> Iterator[DeadLetter]:
    """Yield the dead letters of a job that a filter finds, ordered by batch; with ``left_only``, exclude
    replayed letters.

    Holds some thousands of rows at a time. Skips a file that is removed during the call.

    Raises:
        JobError: the folder is not a job's, or a file in it can't be read.
        DamagedFileError: a commit is damaged.
    """
    job_record(output)
    tables, history = open_tables(output), History(Commits(output))
    history.read()
    for batch in sorted(tables.batches(DEAD_LETTERS)):
        for _, letter in _letters_of(tables, batch, wanted, history.taken[batch], left_only=left_only):
            yield letter


def newest_letters(
    output: Where,
    wanted: ReplayFilterSpec,
    history: History,
    *,
    after: LetterPlace | None = None,
    left_only: bool = False,
    asked: Sequence[Request] = (),
) -> Iterator[tuple[LetterPlace, DeadLetter]]:
    """Yield the dead letters of a job that a filter finds, the newest commit first, with their places.

    Args:
        output: the job's folder.
        wanted: the filter.
        history: the job's history, read up to now.
        after: the place to begin after: what comes meanwhile is newer, so pages neither repeat nor skip.
        left_only: exclude replayed letters.
        asked: exclude letters covered by these requests.

    Raises:
        JobError: the folder is not a job's, or a file in it can't be read.
    """
    job_record(output)
    tables = open_tables(output)
    for batch in history.newest_first(tables.batches(DEAD_LETTERS)):
        first = 0
        if after is not None:
            if history.order(batch) > history.order(after.batch):
                continue
            first = after.row + 1 if batch == after.batch else 0
        of_batch = [request.wanted for request in asked if history.asks(request, batch)]
        for row, letter in _letters_of(
            tables, batch, wanted, history.taken[batch], first=first, left_only=left_only, without=of_batch
        ):
            yield LetterPlace(batch, row), letter


def _letters_of(
    tables: OutcomeTables,
    batch: int,
    wanted: ReplayFilterSpec,
    taken_of: Sequence[TakenLetters],
    *,
    first: int = 0,
    left_only: bool = False,
    without: Sequence[ReplayFilterSpec] = (),
) -> Iterator[tuple[int, DeadLetter]]:
    """Yield the wanted letters of a batch from a row on, with their rows."""
    if wanted.batches and batch not in wanted.batches:
        return
    before = 0
    for rows in tables.rows(DEAD_LETTERS, batch):
        table = _keys(rows)
        replays = _replays(table, taken_of)
        mask = wanted.mask(table)
        if left_only:
            mask &= replays == 0
        for unwanted in without:
            mask &= ~unwanted.mask(table)
        mask[: max(0, first - before)] = False
        numbers = np.flatnonzero(mask)
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            letters = rows.take(pa.array(some)).to_pylist()
            for number, replay, row in zip(some.tolist(), replays[some].tolist(), letters, strict=True):
                headers = row.pop("headers")
                pairs = (
                    None if headers is None else tuple((header["key"], header["value"]) for header in headers)
                )
                yield before + number, DeadLetter(batch=batch, **row, headers=pairs, replay=replay or None)
        before += len(rows)


def _keys(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows.select(LETTERS.names)]).cast(LETTERS)


def _replays(letters: pa.Table, taken_of: Sequence[TakenLetters]) -> npt.NDArray[np.int64]:
    """Return the batch of the replay that took each letter of a batch; 0 if none did."""
    replays = np.zeros(len(letters), np.int64)
    for taken in taken_of:
        replays[(replays == 0) & taken.mask(letters)] = taken.replay
    return replays


@dataclass(frozen=True, slots=True)
class TakenLetters:
    """Letters of its batches that an earlier replay took: all but those whose inputs were gone."""

    replay: int
    wanted: ReplayFilterSpec
    missing: frozenset[str]

    @classmethod
    def of(cls, replay: int, record: Mapping[str, Any]) -> TakenLetters:
        """Read the record in the commit of a replay."""
        missing = frozenset(name for gap in record["missing"] for name in gap["files"])
        return cls(replay, ReplayFilterSpec.from_json(record["wanted"]), missing)

    def mask(self, letters: pa.Table) -> npt.NDArray[np.bool_]:
        """Return a mask of the letters of one of these batches that were taken."""
        mask = self.wanted.mask(letters)
        if self.missing:
            gone = pa.array(sorted(self.missing), pa.string())
            mask &= ~pc.is_in(letters["source"], gone).to_numpy()
        return mask


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
    rows = open_tables(output).rows(DEAD_LETTERS, batch, LETTERS.names)
    table = pa.concat_tables([LETTERS.empty_table(), *map(_keys, rows)])
    return table.filter(pa.array(wanted.mask(table) & (_replays(table, taken_of) == 0)))


def messages_in(letters: pa.Table) -> int | None:
    """Return the number of messages of these letters; None if a letter is for a whole file."""
    if letters["offset"].null_count:
        return None
    return len(letters.group_by(["source", "partition", "offset"]).aggregate([]))


class History:
    """History of backfills and replays from the commits: backfilled batches, replayed letters."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._read_to = 0
        self._kinds: dict[int, str] = {}
        self._records: dict[int, dict[str, Any]] = {}
        self.backfilled: defaultdict[int, set[str]] = defaultdict(set)
        """Subscriptions that got a batch of the stream by backfills."""
        self.taken: defaultdict[int, list[TakenLetters]] = defaultdict(list)
        """Letters of a batch that replays took."""
        self.replays: defaultdict[str, list[int]] = defaultdict(list)
        """Replays of a request."""
        self.handled: defaultdict[str, set[int]] = defaultdict(set)
        """Batches of the replays of a request."""
        self.letters: Counter[str] = Counter()
        """Number of letters that the replays of a request took."""

    def read(self) -> None:
        """Read the commits since the last call."""
        for number in range(self._read_to - 1, self._commits.next_side_batch(), -1):
            commit = self._commits.read(number) or {}
            self._kinds[number] = kind = kind_of(commit)
            record = self._records[number] = commit.get(kind, {})
            if kind == BACKFILL:
                for batch in record["batches"]:
                    self.backfilled[batch].update(record["subscriptions"])
            elif kind == REPLAY:
                taken = TakenLetters.of(number, record)
                for batch in record["batches"]:
                    self.taken[batch].append(taken)
                self.replays[record["request"]].append(number)
                self.handled[record["request"]].update(record["batches"])
                self.letters[record["request"]] += record["letters"]
            self._read_to = number

    def order(self, batch: int) -> tuple[int, int]:
        """Return a key that sorts batches by the time of their commits, as `Commits` does; a side batch
        without a commit is the oldest.
        """
        return (batch, 0) if batch >= 0 else (self._records.get(batch, {}).get("after", -1), -batch)

    def newest_first(self, batches: Iterable[int]) -> list[int]:
        """Return batches in the reverse order of their commits."""
        return sorted(batches, key=self.order, reverse=True)

    def asks(self, request: Request, batch: int) -> bool:
        """Return whether a request that waits will still ask for letters of a batch."""
        return request.means(batch) and batch not in self.handled[request.id]

    def only(self, batch: int) -> tuple[str, ...] | None:
        """Return the subscriptions to which the letters of a batch are restricted; None for all."""
        if batch >= 0:
            return None
        record = self._records[batch]
        only = record["subscriptions"] if self._kinds[batch] == BACKFILL else record["only"]
        return None if only is None else tuple(only)

    def origins(self, batch: int) -> frozenset[int]:
        """Return the batches of the stream from which the letters of a batch come."""
        todo, origins = [batch], set()
        while todo:
            number = todo.pop()
            if number >= 0:
                origins.add(number)
            else:
                todo += self._records[number]["batches"]
        return frozenset(origins)

    def scope(self, origin: int, only: tuple[str, ...] | None) -> Scope:
        """Return the subscriptions that may get the dead-lettered messages of a batch of the stream."""
        return Scope(None, tuple(sorted(self.backfilled[origin]))) if only is None else Scope(only)


def count_left(output: Where, request: Request) -> Counter[tuple[str, str]]:
    """Count the dead letters that a request would replay, by stage and reason.

    Raises:
        JobError: a file of dead letters can't be read.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for left in left_by_batch(output, request):
        counts[left.stage, left.reason] += left.letters
    return counts


def left_by_batch(
    output: Where, request: Request, history: History | None = None, asked: Sequence[Request] = ()
) -> Iterator[LettersLeft]:
    """Yield the counts of the dead letters that a request would replay, those of the newest commit first.

    Args:
        output: the job's folder.
        request: the request.
        history: the job's history, read up to now; read here unless given.
        asked: requests that wait, whose letters are counted apart.

    Raises:
        JobError: a file of dead letters can't be read.
    """
    commits = Commits(output)
    if history is None:
        history = History(commits)
        history.read()
    for batch in history.newest_first(batches_with_letters(output)):
        if request.means(batch) and commits.is_committed(batch):
            yield from counts_left(output, batch, request.wanted, history, asked)


def counts_left(
    output: Where, batch: int, wanted: ReplayFilterSpec, history: History, asked: Sequence[Request] = ()
) -> Iterator[LettersLeft]:
    """Yield the counts of the wanted letters of one batch that no replay took. Raises JobError."""
    letters = letters_left(output, batch, wanted, history.taken[batch])
    is_asked = np.zeros(len(letters), np.bool_)
    for request in asked:
        if history.asks(request, batch):
            is_asked |= request.wanted.mask(letters)
    letters = letters.append_column("asked", pa.array(is_asked).cast(pa.int64()))
    counts = letters.group_by(["stage", "reason"]).aggregate([([], "count_all"), ("asked", "sum")])
    for row in counts.to_pylist():
        yield LettersLeft(batch, row["stage"], row["reason"], row["count_all"], row["asked_sum"])
