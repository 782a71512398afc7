"""Deliveries from a job's output folder: the newest of a subscription, with messages, and the subscriptions
with the most.
"""

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

from selectroute.kafka.record import Record
from selectroute.spark.batch.commits import Commits
from selectroute.spark.inputs.read_files import ReadFile, read_files
from selectroute.spark.job.job import job_record
from selectroute.spark.sinks.schemas import DELIVERIES
from selectroute.spark.sources.files.splits import PARQUET_SUFFIXES
from selectroute.spark.sources.kafka.config import PREFIX
from selectroute.spark.sources.offset_log import FRAME
from selectroute.storage import Location
from selectroute.storage.location import Where

MAX_MESSAGE: Final = 1 << 16
"""Maximum number of characters of a message to return."""

Fetch: TypeAlias = Callable[[list[tuple[str, int, int]]], Mapping[tuple[str, int, int], Record]]
"""Function that returns the records at these topics, partitions and offsets: `KafkaAdmin.records`."""

_COLUMNS: Final = ("subscription", "revision", "source", "partition", "offset", "message_id")


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery with the message's text, or the reason why it is ``missing``. ``headers`` are those of a Kafka
    record; for one without a value, both ``message`` and ``missing`` are None.
    """

    batch: int
    revision: int
    source: str
    partition: int
    offset: int
    message_id: str | None
    message: str | None
    missing: str | None
    headers: list[tuple[str, str | None]] | None = None


def deliveries_of(
    output: Where, subscription: str, limit: int, since: int | None = None, fetch: Fetch | None = None
) -> list[Delivery]:
    """Return the newest deliveries to a subscription, the newest last, of committed batches only.

    Reads batches from the newest on until there are enough, each file in pieces. ``since`` is the first batch
    of the stream to consider, and excludes backfills and replays. ``fetch`` reads Kafka records; without it
    only the positions of a Kafka job's messages are returned.

    Raises:
        JobError: the folder is not a job's.
    """
    record = job_record(output)
    commits = Commits(output)
    numbers = [*commits.batches(), *(() if since is not None else commits.side_batches())]
    found = [commits.read(number) for number in numbers if since is None or number >= since]
    committed = [one for one in found if one is not None]
    newest = sorted(committed, key=lambda one: (one["committed"], one["batch"]))
    files: dict[str, ReadFile] = {}
    for commit in newest:
        files |= {one.source: one for one in read_files(commit)}
    taken: list[Delivery] = []
    for commit in reversed(newest):
        left = limit - len(taken)
        if left <= 0:
            break
        rows: deque[dict[str, Any]] = deque(maxlen=left)
        rows.extend(_rows(commits, commit, subscription))
        taken[:0] = [_delivery(record["input"], commit["batch"], row, files) for row in rows]
    if fetch is not None and record["input"].startswith(PREFIX):
        records = fetch([(one.source, one.partition, one.offset) for one in taken])
        taken = [_with_record(one, records.get((one.source, one.partition, one.offset))) for one in taken]
    return taken


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
    numbers = (*commits.batches(), *commits.side_batches())
    files = (
        file
        for commit in map(commits.read, numbers)
        for file in (() if commit is None else commits.files(commit))
    )
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
    first = totals.take(pc.select_k_unstable(totals, min(top, len(totals)), order))
    ids, counts_of_ids = (first[name].to_pylist() for name in ("subscription", "count"))
    return Busiest(list(zip(ids, counts_of_ids, strict=True)), absent)


_NONE_COUNTED: Final = pa.table(
    {"subscription": pa.array([], pa.string()), "count": pa.array([], pa.int64())}
)
_COUNTED_ROWS: Final = 1 << 18
"""Counts to collect before they are summed."""


def _summed(parts: list[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(parts).group_by("subscription").aggregate([("count", "sum")])
    return summed.select(["subscription", "count_sum"]).rename_columns(_NONE_COUNTED.schema.names)


def _with_record(delivery: Delivery, record: Record | None) -> Delivery:
    if record is None:
        return replace(delivery, missing=f"{delivery.missing} is no longer in Kafka")
    headers = [(name, None if value is None else _text(value)) for name, value in record.headers]
    message = None if record.value is None else _text(record.value)
    return replace(delivery, message=message, missing=None, headers=headers)


def _text(value: bytes) -> str:
    return value[:MAX_MESSAGE].decode("utf-8", "replace")


def _rows(commits: Commits, commit: Mapping[str, Any], subscription: str) -> Iterator[dict[str, Any]]:
    """Yield the deliveries of a batch to a subscription; none of a file that was moved away."""
    files = commits.files(commit)
    for batch in commits.tables.rows(DELIVERIES, commit["batch"], _COLUMNS, files):
        mask = pc.equal(batch.column("subscription").cast(pa.string()), subscription)
        yield from batch.filter(mask).to_pylist()


def _delivery(origin: str, batch: int, row: Mapping[str, Any], files: Mapping[str, ReadFile]) -> Delivery:
    text, missing = _message(origin, row, files)
    kept = {name: row[name] for name in _COLUMNS if name != "subscription"}
    return Delivery(batch=batch, **kept, message=text, missing=missing)


def _message(
    origin: str, row: Mapping[str, Any], files: Mapping[str, ReadFile]
) -> tuple[str | None, str | None]:
    """Return the message from its source and None, or None and the reason why it is missing."""
    source, offset = row["source"], row["offset"]
    if origin.startswith(PREFIX):
        return None, f"record {offset} of partition {row['partition']} of the Kafka topic {source}"
    if origin.startswith(FRAME):
        return None, "rows of a DataFrame can be read only while their batch is routed"
    path = Location.of(origin) / source
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
