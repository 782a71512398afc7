"""Newest outcomes in a job's output folder, with their messages, and its busiest subscriptions."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.kafka.record import Range, Record
from selectroute.spark.batch.commits import Commits
from selectroute.spark.job import Commit, job_record
from selectroute.spark.sources.checkpoint import FRAME
from selectroute.spark.sources.files.source import ReadFile, read_files
from selectroute.spark.sources.files.splits import PARQUET_SUFFIXES
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.sources.kafka.offsets import ranges_of
from selectroute.spark.tables.schemas import DELIVERIES, SCHEMAS, as_written
from selectroute.storage import Location
from selectroute.storage.location import Where


class Busiest(NamedTuple):
    """Subscriptions with the most deliveries as (id, count), by descending count, then by id. ``absent`` is
    the number of delivery files that were moved away and are not counted.
    """

    counts: list[tuple[str, int]]
    absent: int


def busiest(output: Where, top: int) -> Busiest:
    """Count the deliveries of each subscription in committed batches, backfills and replays. Memory is
    proportional to the number of subscriptions with deliveries.

    Raises:
        JobError: the folder is not a job's.
    """
    job_record(output)
    commits = Commits(output)
    totals = _NONE_COUNTED
    pending: list[pa.Table] = []
    absent = waiting = 0
    files = (file for commit in commits.all() for file in commit["files"])
    for batch in commits.tables.scan(DELIVERIES, ["subscription"], files):
        if batch is None:
            absent += 1
            continue
        counts = pc.value_counts(batch.column(0).cast(pa.string()))
        pending.append(pa.table(list(counts.flatten()), _NONE_COUNTED.schema.names))
        waiting += len(counts)
        if waiting > len(totals) + _COUNTED_ROWS:
            totals, pending, waiting = _summed([totals, *pending]), [], 0
    totals = _summed([totals, *pending])
    order = [("count", "descending"), ("subscription", "ascending")]
    first = totals.sort_by(order).slice(0, top)
    ids, counts_of_ids = (first[name].to_pylist() for name in ("subscription", "count"))
    return Busiest(list(zip(ids, counts_of_ids, strict=True)), absent)


_NONE_COUNTED: Final = pa.schema([("subscription", pa.string()), ("count", pa.int64())]).empty_table()
_COUNTED_ROWS: Final = 1 << 18
"""Counts to collect before they are summed."""


def _summed(parts: list[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(parts).group_by("subscription").aggregate([("count", "sum")])
    return summed.select(["subscription", "count_sum"]).rename_columns(_NONE_COUNTED.schema.names)


MAX_MESSAGE: Final = 1 << 16
"""Maximum number of characters of a message to return."""

Fetch: TypeAlias = Callable[[list[Range]], Mapping[Range, Record]]
"""Function that returns the records of these ranges of one offset each: `records_at`."""

_COLUMNS: Final = ("subscription", "revision", "source", "partition", "offset", "message_id")


class Place(NamedTuple):
    """Position of messages: a file or a topic, a partition of it, and a row, line or record, from 0. None is
    any.
    """

    source: str | None = None
    partition: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = zip(("", "partition ", "offset "), self, strict=True)
        return ", ".join(f"{name}{value}" for name, value in parts if value is not None)

    def may_be_in(self, commit: Commit) -> bool:
        """Return whether a batch may have read messages at this position, by its commit alone."""
        inputs = commit["inputs"]
        if self.source is None or commit["batch"] < 0:
            return True
        if "sizes" in inputs:
            return self.source in {as_written(name) for name in inputs["sizes"]}
        if "end" in inputs:
            return any(
                range_.source == self.source
                and self.partition in (None, range_.partition)
                and (self.offset is None or range_.start <= self.offset < range_.end)
                for range_ in ranges_of(inputs)
            )
        return True

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a table of outcomes at this position."""
        for name, value in self._asdict().items():
            if value is not None:
                column = rows.column(name)
                rows = rows.filter(pc.equal(column.cast(pa.string()) if name == "source" else column, value))
        return rows


ANY: Final = Place()
"""Position of all messages."""


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """Delivery, or unrouted message, with the message's text, or the reason why it is ``missing``.

    ``subscription`` is None for an unrouted message. ``headers`` are those of a Kafka record; for one without
    a value, both ``message`` and ``missing`` are None.
    """

    batch: int
    subscription: str | None
    revision: int
    source: str
    partition: int
    offset: int
    message_id: str | None
    message: str | None
    missing: str | None
    headers: list[tuple[str, str | None]] | None = None


def newest_outcomes(
    output: Where,
    sink: str,
    limit: int,
    since: int | None = None,
    fetch: Fetch | None = None,
    place: Place = ANY,
    subscription: str | None = None,
) -> list[MessageOutcome]:
    """Return the newest deliveries, or unrouted messages, the newest last, of committed batches only.

    Reads batches from the newest on until there are enough, each file in pieces.

    Args:
        output: the job's output folder.
        sink: ``deliveries`` or ``unrouted``.
        limit: the most to return.
        since: the first batch of the stream to consider; excludes backfills and replays.
        fetch: reads Kafka records; without it only the positions of a Kafka job's messages are returned.
        place: selects messages.
        subscription: the id of a subscription; None for all.

    Raises:
        JobError: the folder is not a job's.
    """
    record = job_record(output)
    commits = Commits(output)
    newest = sorted(commits.all(since), key=lambda commit: (commit["committed"], commit["batch"]))
    files: dict[str, ReadFile] = {}
    for commit in newest:
        files |= {file.source: file for file in read_files(commit)}
    taken: list[MessageOutcome] = []
    for commit in reversed(newest):
        left = limit - len(taken)
        if left <= 0:
            break
        if not place.may_be_in(commit):
            continue
        rows: deque[dict[str, Any]] = deque(maxlen=left)
        rows.extend(_rows(commits, commit, sink, subscription, place))
        taken[:0] = [_outcome(record["input"], commit["batch"], row, files) for row in rows]
    if fetch is not None and record["input"].startswith(PREFIX):
        of_batches = {commit["batch"]: commit for commit in newest}
        at = [Place(outcome.source, outcome.partition, outcome.offset) for outcome in taken]
        places = [
            record_place(of_batches[outcome.batch], place) for outcome, place in zip(taken, at, strict=True)
        ]
        records = fetch([position for position in places if position is not None])
        taken = [
            _with_record(outcome, None if place is None else records.get(place))
            for outcome, place in zip(taken, places, strict=True)
        ]
    return taken


def record_place(commit: Commit, place: Place) -> Range | None:
    """Return where the record of Kafka at a position is, by the commit of a batch that read it; None if the
    batch did not.
    """
    for range_ in ranges_of(commit["inputs"]):
        offset = place.offset
        if (
            (range_.source, range_.partition) == place[:2]
            and offset is not None
            and range_.start <= offset < range_.end
        ):
            return range_._replace(start=offset, end=offset + 1, skipped=0)
    return None


def _with_record(outcome: MessageOutcome, record: Record | None) -> MessageOutcome:
    if record is None:
        return replace(outcome, missing=f"{outcome.missing} is no longer in Kafka")
    headers = [(name, None if value is None else _text(value)) for name, value in record.headers]
    message = None if record.value is None else _text(record.value)
    return replace(outcome, message=message, missing=None, headers=headers)


def _text(value: bytes) -> str:
    return value[:MAX_MESSAGE].decode("utf-8", "replace")


def _rows(
    commits: Commits, commit: Commit, sink: str, subscription: str | None, place: Place
) -> Iterator[dict[str, Any]]:
    """Yield the wanted rows of a batch; none of a file that was moved away."""
    columns = [name for name in SCHEMAS[sink].names if name in _COLUMNS]
    for batch in commits.tables.rows(sink, commit["batch"], columns, commit["files"]):
        rows = place.filter(batch)
        if subscription is not None:
            rows = rows.filter(pc.equal(rows.column("subscription").cast(pa.string()), subscription))
        yield from rows.to_pylist()


def _outcome(input: str, batch: int, row: dict[str, Any], files: Mapping[str, ReadFile]) -> MessageOutcome:
    text, missing = _message(input, row, files)
    values = {name: row.get(name) for name in _COLUMNS}
    return MessageOutcome(batch=batch, **values, message=text, missing=missing)  # type: ignore[arg-type]


def _message(input: str, row: dict[str, Any], files: Mapping[str, ReadFile]) -> tuple[str | None, str | None]:
    """Return the message from its source and None, or None and the reason why it is missing."""
    source, offset = row["source"], row["offset"]
    if input.startswith(PREFIX):
        return None, f"record {offset} of partition {row['partition']} of the Kafka topic {source}"
    if input.startswith(FRAME):
        return None, "rows of a DataFrame can be read only while their batch is routed"
    path = Location.of(input) / source
    if (entry := path.entry()) is None:
        return None, f"{path} is gone"
    known = files.get(source)
    if known and not known.is_same(entry) and (change := known.change(entry)) is not None:
        return None, f"{path} was changed: {change}"
    try:
        read = _of_parquet if Path(path.name).suffix.lower() in PARQUET_SUFFIXES else _of_lines
        text = read(path, offset)
    except (OSError, pa.ArrowException) as error:
        return None, f"{path} cannot be read: {error}"
    return (None, f"{path} has no such row") if text is None else (text[:MAX_MESSAGE], None)


def _of_lines(path: Location, offset: int) -> str | None:
    with path.open() as file:
        for number, line in enumerate(file):
            if number == offset:
                return line.decode("utf-8", "replace").strip()
    return None


def _of_parquet(path: Location, offset: int) -> str | None:
    first = 0
    with path.open() as data, pq.ParquetFile(data) as file:
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if offset < first + count:
                for batch in file.iter_batches(batch_size=1_024, row_groups=[group]):
                    if offset < first + len(batch):
                        return json.dumps(batch.slice(offset - first, 1).to_pylist()[0], default=str)
                    first += len(batch)
            first += count
    return None
