"""What a subscription got: its newest deliveries, read off a job's output folder, and their messages."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from selectroute.spark.commits import Commits
from selectroute.spark.file_intake import file_size
from selectroute.spark.job import job_record
from selectroute.spark.kafka_input import PREFIX
from selectroute.spark.plan import PARQUET_SUFFIXES
from selectroute.spark.sinks import DELIVERIES

MAX_MESSAGE: Final = 1 << 16
"""Characters of a message that are shown."""

_COLUMNS: Final = ("subscription", "revision", "source", "partition", "offset", "message_id")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery, and the message's text, or why there is none."""

    batch: int
    revision: int
    source: str
    partition: int
    offset: int
    message_id: str | None
    message: str | None
    missing: str | None


def deliveries_of(output: Path, subscription: str, limit: int, since: int | None = None) -> list[Delivery]:
    """Return the newest deliveries to a subscription, the newest last, of committed batches only.

    Reads batches from the newest on until there are enough, each file in pieces; ``since`` is the first batch
    of the stream that counts, and leaves backfills and replays out.

    Raises:
        JobError: the folder is no job's.
    """
    record = job_record(output)
    commits = Commits(output)
    numbers = [*commits.batches(), *(() if since is not None else commits.asides())]
    found = [commits.read(number) for number in numbers if since is None or number >= since]
    committed = [one for one in found if one is not None]
    newest = sorted(committed, key=lambda one: (one["committed"], one["batch"]))
    sizes: dict[str, int | None] = {}
    for commit in newest:
        sizes |= commit["inputs"].get("sizes", {})
    taken: list[Delivery] = []
    for commit in reversed(newest):
        left = limit - len(taken)
        if left <= 0:
            break
        rows: deque[dict[str, Any]] = deque(maxlen=left)
        for file in commits.files(commit):
            if file["path"].startswith(f"{DELIVERIES}/"):
                rows.extend(_rows(output / file["path"], subscription))
        taken[:0] = [_delivery(record["input"], commit["batch"], row, sizes) for row in rows]
    return taken


def _rows(path: Path, subscription: str) -> Iterator[dict[str, Any]]:
    """The deliveries of one file to a subscription; none of a file that was moved away."""
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        return
    with file:
        for batch in file.iter_batches(columns=list(_COLUMNS)):
            of_it = pc.equal(batch.column("subscription").cast(pa.string()), subscription)
            yield from batch.filter(of_it).to_pylist()


def _delivery(origin: str, batch: int, row: Mapping[str, Any], sizes: Mapping[str, int | None]) -> Delivery:
    text, missing = _message(origin, row, sizes)
    kept = {name: row[name] for name in _COLUMNS if name != "subscription"}
    return Delivery(batch=batch, **kept, message=text, missing=missing)


def _message(
    origin: str, row: Mapping[str, Any], sizes: Mapping[str, int | None]
) -> tuple[str | None, str | None]:
    """The message where it came from, or why it cannot be had."""
    source, offset = row["source"], row["offset"]
    if origin.startswith(PREFIX):
        return None, f"record {offset} of partition {row['partition']} of the Kafka topic {source}"
    path = Path(origin) / source
    size = file_size(path)
    if size is None:
        return None, f"{path} is gone"
    if sizes.get(source, size) != size:
        return None, f"{path} is another file now: it has {size:,} bytes, and had {sizes[source]:,}"
    try:
        read = _of_parquet if path.suffix.lower() in PARQUET_SUFFIXES else _of_lines
        text = read(path, offset)
    except (OSError, pa.ArrowException) as error:
        return None, f"{path} cannot be read: {error}"
    return (None, f"{path} has no such row") if text is None else (text[:MAX_MESSAGE], None)


def _of_lines(path: Path, offset: int) -> str | None:
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number == offset:
                return line.decode("utf-8", "replace").strip()
    return None


def _of_parquet(path: Path, offset: int) -> str | None:
    first = 0
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if offset < first + count:
                for batch in file.iter_batches(batch_size=1_024, row_groups=[group]):
                    if offset < first + len(batch):
                        return json.dumps(batch.slice(offset - first, 1).to_pylist()[0], default=str)
                    first += len(batch)
            first += count
    return None
